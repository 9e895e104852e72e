"""Effects of removing heads of a model on outcomes: exact for sets of heads, estimated for each.

A head is removed by replacing its output (before the output projection) with its mean over texts,
or with zero. The first-order estimate is the slope of an outcome as a head's output is moved toward
what would replace it, times the whole way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.ablation.readings import Outcome, Readings, Values
from tda_bias.ablation.removal import HeadRemover
from tda_bias.models.attention import AttentionLayer, attention_layers
from tda_bias.models.hooks import head_means, require_heads, require_separate_heads
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import log_probs_with_gradients, refuse_undefined
from tda_bias.models.scoring import TreePass
from tda_bias.store.cache import Cache, Part, texts_hash
from tda_bias.store.hashes import bytes_hash
from tda_bias.types import Ablation, HeadId, InputError, Precision

# A backward pass costs about two forward ones.
FORWARD_AND_BACKWARD = 3


class HeadEffects:
    """Removes heads of a model, or moves them, while outcomes are read.

    Args:
        model: A causal, masked or sequence-to-sequence language model; faster without hooks.
        texts: Token ids of texts with special tokens, over all places of which means are taken.
        ablation: ``mean`` over these places, or ``zero``.
        batch_size: Texts per forward pass.
        precision: Of matrix products while heads are removed. First-order estimates and means of
            heads are of single precision.

    Raises:
        InputError: if ``ablation`` is not known, the model is in another precision already or
            keeps its heads in a way that is not known, or a text does not fit.
    """

    def __init__(
        self,
        model: LanguageModel,
        texts: Sequence[Sequence[int]],
        *,
        ablation: Ablation = "zero",
        batch_size: int = 32,
        precision: Precision = "float32",
    ) -> None:
        if ablation not in get_args(Ablation):
            allowed = " or ".join(get_args(Ablation))
            raise InputError(f"`ablation` must be {allowed}; got {ablation!r}")
        self.model = model
        self.ablation, self.batch_size, self.precision = ablation, batch_size, precision
        self.layers = attention_layers(model)
        require_separate_heads(model, self.layers)
        self.replacement: Float[Tensor, "layer head d"] | None = None
        self._replaced_by: str | int = 0
        if ablation == "mean":
            self._replaced_by = texts_hash([(list(ids),) for ids in texts])
            self.replacement = head_means(model, self.layers, texts, batch_size=batch_size)
        self._remover = HeadRemover(model, self.layers, self.replacement, precision=precision)

    @property
    def about(self) -> dict[str, Any]:
        """The way in which heads are removed, as saved parts name it."""
        return {"replacement": self._replaced_by, "precision": self.precision}

    @property
    def heads(self) -> list[HeadId]:
        """Every head that can be removed, layer by layer."""
        return [HeadId(layer.number, h) for layer in self.layers for h in range(layer.n_heads)]

    # -- exact effects of sets of heads --

    def removed(self, heads: Sequence[HeadId]) -> AbstractContextManager[None]:
        """Remove heads from the model for whatever runs inside, as ``HeadRemover.removed``."""
        return self._remover.removed(heads)

    def removal_parts(
        self, readings: Readings, sets: Sequence[Sequence[HeadId]], name: str = ""
    ) -> list[Part]:
        """What ``Readings.by_tree`` is made of, without each set of heads; the empty set is none.

        Computing a part raises an ``InputError`` if removing a head changes nothing, or a
        log-probability is NaN.

        Raises:
            InputError: if a head does not exist.
        """
        require_heads(self.model, self.layers, [head for heads in sets for head in heads])

        def read(tree_pass: TreePass) -> Float[np.ndarray, "set reading"]:
            values = self._remover.read(tree_pass, sets)
            refuse_undefined(self.model, values)
            return values

        about = {"heads": [[str(head) for head in heads] for heads in sets]}
        title = f"{name} pass".strip()
        return readings.parts(title, {**self.about, **about}, read, times=len(sets))

    def unchanged(self, outcome: Outcome, cache: Cache) -> Values:
        """What the model gives with all of its heads, which every process needs."""
        parts = self.removal_parts(outcome.readings, [()], f"{outcome.name} unchanged")
        cache.prepare(parts)
        (values,) = outcome.readings.by_tree(map(cache.get, parts), 1)
        return values

    # -- first-order estimates for every head --

    def estimate_parts(self, outcome: Outcome, values: Values) -> list[Part]:
        """The parts that ``estimates`` is made of, of an outcome whose unchanged values are given.

        So an outcome takes two readings of its texts: its values, and the gradient of the linear
        functions of its readings that they fix.
        """
        slopes = outcome.slopes(values)
        weights = {name: bytes_hash([own.tobytes() for own in of]) for name, of in slopes.items()}

        def read(tree_pass: TreePass) -> Float[np.ndarray, "number layer head"]:
            texts = list(zip(tree_pass.tree, tree_pass.readings, strict=True))
            own = [np.concatenate([of[t][which] for t, which in texts]) for of in slopes.values()]
            return self._slopes_of(tree_pass, own)

        return outcome.readings.parts(
            f"{outcome.name} slopes",
            {**self.about, "weights": weights},
            read,
            times=1 + (FORWARD_AND_BACKWARD - 1) * len(slopes),
        )

    def estimates(
        self, outcome: Outcome, values: Values, arrays: Iterable[Mapping[str, np.ndarray]]
    ) -> dict[str, Float[np.ndarray, "layer head"]]:
        """By number of the outcome, the estimated change on removal of every head.

        ``arrays`` are those of ``estimate_parts``. NaN for layers without attention.
        """
        total = np.sum([of_pass["values"] for of_pass in arrays], axis=0)
        return dict(zip(outcome.slopes(values), self.by_number(total), strict=True))

    def by_number(
        self, values: Float[np.ndarray, "number position head"]
    ) -> Float[np.ndarray, "number layer head"]:
        """Values of layers with attention by the model's numbers of its layers; NaN for others."""
        layers = self.layers
        every = np.full((len(values), layers[-1].number + 1, layers[0].n_heads), np.nan)
        every[:, [layer.number for layer in layers]] = values
        return every

    def change(self, position: int, z: Float[Tensor, "row token head d"]) -> Tensor:
        """What removal adds to the output of the heads of a layer."""
        return -z if self.replacement is None else self.replacement[position].to(z) - z

    def read_with_gradients(
        self, tree_pass: TreePass
    ) -> tuple[Float[Tensor, " reading"], list[Tensor]]:
        """The readings of a pass, and what they can be differentiated by; see ``watched``."""
        with torch.enable_grad(), watched(self.model.hf_model, self.layers) as seen:
            values = log_probs_with_gradients(
                self.model.hf_model, tree_pass.inputs, tree_pass.places, tree_pass.place,
                tree_pass.token,
            )  # fmt: skip
        return values, seen

    def _slopes_of(
        self, tree_pass: TreePass, weights: Sequence[Float[np.ndarray, " reading"]]
    ) -> Float[np.ndarray, "number layer head"]:
        """Effects on linear functions of a pass's readings, to first order."""
        values, seen = self.read_with_gradients(tree_pass)
        shape = len(weights), len(self.layers), self.layers[0].n_heads
        estimates = np.zeros(shape)
        for number, weight in enumerate(weights):
            total = (torch.from_numpy(weight).to(values) * values).sum()
            slopes = torch.autograd.grad(total, seen[:-1], retain_graph=number + 1 < len(weights))
            for index, layer in enumerate(self.layers):
                z, slope = (layer.by_head(x).detach() for x in (seen[index], slopes[index]))
                own = (self.change(index, z) * slope).double().sum((0, 1, 3))
                estimates[number, index] = own.cpu().numpy()
        return estimates


@contextmanager
def watched(hf_model: Any, layers: Sequence[AttentionLayer]) -> Iterator[list[Tensor]]:
    """Let gradients begin at the first layer's input, and keep what they are taken of.

    There are none of parameters, which would cost memory.

    Yields:
        What every layer's projection was given, then the last layer's output.
    """
    seen = [torch.empty(0)] * (len(layers) + 1)
    learning = [p for p in hf_model.parameters() if p.requires_grad]

    def begin(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (arguments[0].detach().requires_grad_(), *arguments[1:])

    def end(_: nn.Module, __: Any, output: Any) -> None:
        seen[-1] = output[0] if isinstance(output, tuple) else output

    with ExitStack() as stack:
        for parameter in learning:
            stack.callback(parameter.requires_grad_(False).requires_grad_)
        stack.callback(layers[0].block.register_forward_pre_hook(begin).remove)
        stack.callback(layers[-1].block.register_forward_hook(end).remove)
        for index, layer in enumerate(layers):

            def keep(_: nn.Module, arguments: tuple[Tensor, ...], index: int = index) -> None:
                seen[index] = arguments[0]

            stack.callback(layer.projection.register_forward_pre_hook(keep).remove)
        yield seen
