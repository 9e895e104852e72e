"""Gates, adapters and the whole model as learners, beside the slices of heads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.mask import HeadMask, Learner, changed_weights, weight_hashes
from tda_bias.debias.protocol import How
from tda_bias.models.attention import AttentionLayer, attention_layers
from tda_bias.models.hooks import heads_changed, require_heads
from tda_bias.models.load import LanguageModel
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ADAPTER = "default"
L = TypeVar("L", bound=Learner)


def learner(
    how: How, model: LanguageModel, heads: Sequence[HeadId], *, rank: int = 8, seed: int = 0
) -> Learner:
    """A learner of some heads, or for ``full`` of the whole model.

    ``lora`` has adapters of a rank, whose first values come from the seed.

    Raises:
        InputError: if a head does not exist, the attention is laid out in a way not known, or
            ``lora`` lacks its package.
    """
    match how:
        case "gates":
            return HeadGates(model, heads)
        case "tune":
            return HeadMask(model.hf_model, heads)
        case "lora":
            return HeadLora(model.hf_model, heads, rank=rank, seed=seed)
        case "full":
            return WholeModel(model.hf_model)
        case _:
            raise ValueError(f"{how} learns nothing: see ``tda_bias.debias.peers``")


@contextmanager
def undone(learned: L) -> Iterator[L]:
    """Take back a learner's changes when the block ends, however it ends."""
    with learned:
        try:
            yield learned
        finally:
            learned.undo()


# -- gates on heads --------------------------------------------------------------------------------


class HeadGates(Learner):
    """Scalars on the outputs of heads, 1 in the beginning.

    The model itself, which has no hooks, is not changed until ``apply`` multiplies each head's
    columns of the output projection by its gate, which is the same function, exactly, also under
    grouped queries. ``gates`` has a number for each of ``heads``, which are in order.

    Raises:
        InputError: if a head does not exist, or the attention is laid out in a way not known.
    """

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId]) -> None:
        if not heads:
            raise InputError("`heads` names nothing to train")
        super().__init__(model.hf_model)
        layers = attention_layers(model)
        require_heads(model, layers, heads)
        self._layers = {layer.number: layer for layer in layers}
        self.heads = tuple(sorted(set(heads)))
        self.gates = nn.Parameter(torch.ones(len(self.heads), device=model.device))
        self._hashes = weight_hashes(model.hf_model)

    def named(self) -> dict[str, nn.Parameter]:
        """The gates."""
        return {"gates": self.gates}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the model with its gates; gradients reach the gates."""
        places: dict[int, list[int]] = {}
        for place, head in enumerate(self.heads):
            places.setdefault(head.layer, []).append(place)

        def gated(z: Tensor, layer: AttentionLayer) -> Tensor:
            of_layer = places[layer.number]
            heads = torch.tensor([self.heads[place].head for place in of_layer], device=z.device)
            gain = torch.ones(layer.n_heads, dtype=self.gates.dtype, device=z.device)
            gain = gain.index_put((heads,), self.gates[of_layer].to(z.device))
            return (z * gain[:, None]).to(z.dtype)  # the gate is not rounded

        with heads_changed([self._layers[number] for number in sorted(places)], gated):
            yield

    def penalty(self) -> Float[Tensor, ""]:
        """Sum of the distances from 1: what an L1 pull toward the unchanged model is made of."""
        return (self.gates - 1).abs().sum()

    @torch.no_grad()
    def apply(self) -> None:
        """Multiply each head's columns of the output projection by its gate, in place.

        Afterwards the gates are not to run again: that would apply them twice.
        """
        for head, gate in zip(self.heads, self.gates.tolist(), strict=True):
            columns = self._layers[head.layer].columns(head.head)
            columns.copy_((columns.double() * gate).to(columns))

    def check(self) -> None:
        """Raise AssertionError if a weight of the model changed."""
        changed = changed_weights(self._hf_model, self._hashes)
        if changed:
            raise AssertionError(f"{', '.join(changed[:3])} changed, and not by the gates")


# -- adapters on heads -----------------------------------------------------------------------------


def require_peft() -> Any:
    """The package, or an InputError if it is not installed."""
    try:
        import peft
    except ImportError:
        raise InputError(
            "`how` lora needs the package peft: pip install 'tdabias[lora]'; gates and tune do not"
        ) from None
    return peft


class HeadLora(Learner):
    """An adapter on the projections of some heads, which plain peft loads.

    peft puts adapters on whole matrices. Here the rows of ``lora_B`` (queries, keys, values) and
    the columns of ``lora_A`` (output projection) that belong to other heads are 0 and stay so.
    The model is wrapped in place; ``undo`` takes the adapter away, ``apply`` adds it to the
    weights.

    Args:
        hf_model: A plain Hugging Face model, without hooks.
        heads: The heads.
        rank: Rank of every adapter; what it adds is multiplied by 2.
        seed: Of the first values of ``lora_A``.

    Raises:
        InputError: as ``HeadMask``, or if peft is not installed.
    """

    def __init__(
        self,
        hf_model: PreTrainedModel,
        heads: Sequence[HeadId],
        *,
        rank: int = 8,
        seed: int = 0,
    ) -> None:
        peft = require_peft()
        super().__init__(hf_model)
        # It also shows, at the end, that no weight of the model itself has changed.
        self._before = mask = HeadMask(hf_model, heads)
        weights = [piece for piece in mask.slices if piece.parameter.endswith(".weight")]
        targets = sorted({piece.parameter.removesuffix(".weight") for piece in weights})
        linear = isinstance(hf_model.get_submodule(targets[0]), nn.Linear)
        self._inside: dict[str, tuple[str, Tensor]] = {}
        for piece in weights:
            name = piece.parameter.removesuffix(".weight")
            side = "lora_A" if piece.part == "o" else "lora_B"
            size = hf_model.get_parameter(piece.parameter).shape[piece.axis]
            inside = self._inside.setdefault(name, (side, torch.zeros(size, dtype=torch.bool)))[1]
            inside[piece.start : piece.stop] = True
        config = peft.LoraConfig(
            r=rank, lora_alpha=2.0 * rank, target_modules=targets, fan_in_fan_out=not linear,
            lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        )  # fmt: skip
        with torch.random.fork_rng(), warnings.catch_warnings():
            # peft still asks transformers under a name that is going to change.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is", FutureWarning)
            torch.manual_seed(seed)
            self.peft_model: Any = peft.get_peft_model(hf_model, config)
        self._modules = {name: hf_model.get_submodule(name) for name in targets}
        self.restore()

    def named(self) -> dict[str, nn.Parameter]:
        """The adapter's matrices."""
        named = self.peft_model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    @property
    def n_values(self) -> int:
        """Numbers that can change: those of the chosen heads."""
        outside = sum(int(place.sum()) * matrix.shape[1] for matrix, place in self._outside())
        return super().n_values - outside

    @torch.no_grad()
    def restore(self) -> None:
        """Set what belongs to other heads to 0 again."""
        for matrix, outside in self._outside():
            matrix[outside] = 0

    def check(self) -> None:
        """Raise AssertionError if the adapter touches anything but the heads."""
        for matrix, outside in self._outside():
            if int(matrix[outside].count_nonzero()):
                raise AssertionError("the adapter changed outside the chosen heads")

    def save(self, folder: str | Path) -> None:
        """Write the adapter: ``peft.PeftModel.from_pretrained(model, folder)`` reads it."""
        self.peft_model.save_pretrained(str(folder))

    def apply(self) -> None:
        """Add the adapter to the model's weights, and take it away."""
        self.peft_model.merge_and_unload()

    def undo(self) -> None:
        """Give the model back as it was, bit for bit; raise AssertionError if that fails."""
        self.peft_model.unload()
        self._before.check()

    def _outside(self) -> list[tuple[Tensor, Tensor]]:
        """Matrices with the rows of ``lora_B``, or the columns of ``lora_A``, that must be 0."""
        outside = []
        for name, (side, inside) in self._inside.items():
            weight = getattr(self._modules[name], side)[_ADAPTER].weight.data
            matrix = weight.T if side == "lora_A" else weight
            outside.append((matrix, ~inside.to(matrix.device)))
        return outside


def lora_rank(model: LanguageModel, heads: Sequence[HeadId], every: Sequence[HeadId]) -> int:
    """The rank at which LoRA on all attention has about as many numbers as the slices of heads."""
    named = dict(model.hf_model.named_parameters())
    slices = {  # keys and values that heads share count once
        (s.parameter, s.start): s for head in heads for s in head_slices(model.hf_model, head)
    }
    names = {s.parameter for head in every for s in head_slices(model.hf_model, head)}
    of_heads = sum(s.of(named[s.parameter]).numel() for s in slices.values())
    of_a_rank = sum(sum(named[name].shape) for name in names if named[name].ndim == 2)
    return max(1, round(of_heads / of_a_rank))


# -- the whole model -------------------------------------------------------------------------------


class WholeModel(Learner):
    """Every parameter of a model."""

    def __init__(self, hf_model: nn.Module) -> None:
        super().__init__(hf_model)
        self._before = self.values()

    def named(self) -> dict[str, nn.Parameter]:
        """All of them."""
        return dict(self._hf_model.named_parameters())

    def undo(self) -> None:
        """Put the model back as it was before training."""
        self.load(self._before)
