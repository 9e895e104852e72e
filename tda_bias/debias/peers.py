"""Edits that others would make instead of training heads: erasing a concept (LEACE), steering.

Both change the residual stream after layers while the model runs, in closed form from the training
items and their twins; there is no loop. Data augmentation (CDA), the third, is a loss of
``training``, learned by the whole model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tda_bias.debias.learners import Learner
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.attention import AttentionLayer, attention_layers
from tda_bias.models.hooks import stopped_before
from tda_bias.models.language_model import common_prefix, padded
from tda_bias.twins.words import gender_words
from tda_bias.types import InputError, Triple

Stream = Float[Tensor, "row token width"]
Change = Callable[[Stream, AttentionLayer], Stream]


@contextmanager
def blocks_changed(layers: Sequence[AttentionLayer], change: Change) -> Iterator[None]:
    """Change the residual stream after layers, for whatever runs inside."""
    with ExitStack() as stack:
        for layer in layers:

            def after(_: nn.Module, __: Any, output: Any, layer: AttentionLayer = layer) -> Any:
                if isinstance(output, tuple):
                    return (change(output[0], layer), *output[1:])
                return change(output, layer)

            stack.enter_context(layer.block.register_forward_hook(after))
        yield


# -- texts that differ in a concept ----------------------------------------------------------------


def concept(triple: Triple) -> str:
    """The concept a triple is about: of the category gender a gender, else its target."""
    if triple.category != "gender":
        return triple.group
    return "women" if triple.group.lower() in gender_words().feminine else "men"


@dataclass(frozen=True)
class ConceptTexts:
    """Items and twins in one batch, with the number of each row's concept.

    Tokens are ``read`` from the first on in which a text differs from its twin: what stands before
    knows nothing of the concept. Rows that are no twins are ``original``.
    """

    inputs: dict[str, Tensor]
    read: Bool[Tensor, "row token"]
    label: Int[Tensor, " row"]
    original: Bool[Tensor, " row"]


def concept_texts(texts: TwinTexts, items: Sequence[int]) -> ConceptTexts:
    """The related texts of items and of their twins.

    Raises:
        InputError: if there are no twins, or all texts are about one concept.
    """
    ids: list[list[int]] = []
    first: list[int] = []
    labels: list[str] = []
    for item in items:
        twins = [twin for twin in texts.twins[item] for _ in (0, 1)]
        for twin, pair in zip(twins, texts.sequences(item), strict=True):
            ids += pair
            first += [common_prefix(*pair)] * 2
            labels += [concept(texts.triples[item]), concept(twin)]
    names = sorted(set(labels))
    if len(names) < 2:
        raise InputError(
            "leace and steering need texts about two concepts at least; give twins, or leave them "
            "out of --controls"
        )
    rows, mask = padded(ids)
    device = texts.model.device
    read = mask.bool() & (torch.arange(rows.shape[1]) >= torch.tensor(first)[:, None])
    label = torch.tensor([names.index(name) for name in labels])
    original = torch.arange(len(ids)) % 2 == 0
    return ConceptTexts(
        {"input_ids": rows.to(device), "attention_mask": mask.to(device)},
        read.to(device), label.to(device), original.to(device),
    )  # fmt: skip


# -- edits of the residual stream ------------------------------------------------------------------


class Edit(Learner):
    """A change of the residual stream after one layer (a share of all) or each, of some strength.

    Raises:
        InputError: as ``concept_texts``, or if a package is not installed.
    """

    strengths: tuple[float, ...] = (1.0,)

    def __init__(self, texts: TwinTexts, items: Sequence[int], layer: float | None) -> None:
        super().__init__(texts.model.hf_model)
        every = attention_layers(texts.model)
        self.layers = every if layer is None else [every[round(layer * (len(every) - 1))]]
        self.strength = 1.0
        self._model = texts.model
        self._read = concept_texts(texts, items)

    def changed(self, hidden: Stream, layer: AttentionLayer) -> Stream:
        """The residual stream after a layer, changed."""
        raise NotImplementedError

    def running(self) -> AbstractContextManager[None]:
        """Run the model with its residual stream changed; of strength 0 it is the model itself."""
        return blocks_changed(self.layers, self.changed) if self.strength else nullcontext()

    def values(self) -> dict[str, Tensor]:
        """The strength."""
        return {"strength": torch.tensor(self.strength)}

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Set the strength."""
        self.strength = float(values["strength"])

    def _fit(self, fit: Callable[[Float[Tensor, "place width"], AttentionLayer], None]) -> None:
        """Show every layer's stream at the places that are read, edited after each once fitted."""

        def fitted(hidden: Tensor, layer: AttentionLayer) -> Tensor:
            fit(hidden[self._read.read].float(), layer)
            return self.changed(hidden, layer)

        head: Any = self._model.hf_model.get_output_embeddings()
        with blocks_changed(self.layers, fitted), torch.no_grad(), stopped_before(head):
            self._model.hf_model(**self._read.inputs, use_cache=False)

    def _of_places(self, of_rows: Tensor) -> Tensor:
        """A value of each row at every place that is read."""
        return of_rows[:, None].expand(self._read.read.shape)[self._read.read]


class Erasure(Edit):
    """LEACE: the residual stream without what tells a linear reader the concept.

    After all layers each eraser is fitted to the stream that those before it left (concept
    scrubbing). The covariance is that of all tokens read, the labels are those of their texts.

    Source: Belrose et al. 2023, https://arxiv.org/abs/2306.03819; the package ``concept-erasure``.
    """

    def __init__(self, texts: TwinTexts, items: Sequence[int], layer: float | None) -> None:
        leace = require_leace()
        super().__init__(texts, items, layer)
        one_hot = nn.functional.one_hot(self._read.label)[:, 1:]
        labels = torch.stack([self._of_places(column) for column in one_hot.T], -1).double()
        self._erasers: dict[int, Any] = {}

        def fit(stream: Tensor, layer: AttentionLayer) -> None:
            found = leace.LeaceEraser.fit(stream.double(), labels)
            self._erasers[layer.number] = leace.LeaceEraser(
                found.proj_left.float(), found.proj_right.float(), found.bias.float()
            )

        self._fit(fit)

    def changed(self, hidden: Stream, layer: AttentionLayer) -> Stream:
        """The stream without the concept."""
        with torch.autocast(hidden.device.type, enabled=False):
            erased: Tensor = self._erasers[layer.number](hidden.float())
        return erased.to(hidden.dtype)

    @property
    def n_values(self) -> int:
        """Numbers of the erasers."""
        erasers = self._erasers.values()
        return sum(e.proj_left.numel() + e.proj_right.numel() + e.bias.numel() for e in erasers)


class Steering(Edit):
    """A steering vector, added to the residual stream at every token.

    It is the mean of texts about men less that of their twins about women, at the tokens read; in
    categories other than gender, of the originals less their twins. It is multiplied by ``sign``
    and, at every check, by the next of the ``strengths``.
    """

    strengths = (0.5, 1.0, 2.0)

    def __init__(
        self, texts: TwinTexts, items: Sequence[int], layer: float | None, sign: int = 1
    ) -> None:
        super().__init__(texts, items, layer)
        genders = texts.triples[items[0]].category == "gender"
        first = self._of_places(self._read.label == 0 if genders else self._read.original)
        self.vectors: dict[int, Tensor] = {}

        def fit(stream: Tensor, layer: AttentionLayer) -> None:
            self.vectors[layer.number] = sign * (stream[first].mean(0) - stream[~first].mean(0))

        self._fit(fit)

    def changed(self, hidden: Stream, layer: AttentionLayer) -> Stream:
        """The stream with the vector added."""
        return hidden + (self.strength * self.vectors[layer.number]).to(hidden.dtype)

    @property
    def n_values(self) -> int:
        """Numbers of the vectors."""
        return sum(vector.numel() for vector in self.vectors.values())


def require_leace() -> Any:
    """The package, or an InputError if it is not installed."""
    try:
        with warnings.catch_warnings():
            # The package still compiles a function in a way that torch is going to drop.
            warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
            import concept_erasure
    except ImportError:
        raise InputError(
            "`controls` leace needs the package concept-erasure: pip install 'tdabias[leace]'"
        ) from None
    return concept_erasure
