"""What learns: slices of heads, gates, adapters, or the whole model.

A head is a slice of four matrices that its neighbours share, so an optimiser moves the neighbours
too: through weight decay, through momentum, and by rounding. Masking gradients alone does not stop
that. ``HeadMask`` puts everything outside the slices back after every step, and compares it at the
end, bit for bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.ablation.head_weights import Slice, head_slices
from tda_bias.debias.protocol import How
from tda_bias.models.attention import AttentionLayer, attention_layers
from tda_bias.models.hooks import heads_changed, require_heads
from tda_bias.models.load import LanguageModel
from tda_bias.store.hashes import bytes_hash
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel, TrainerCallback

_ADAPTER = "default"
L = TypeVar("L", bound="Learner")


class Learner:
    """A change of a model that is trained, and can be taken away again.

    Entering the block freezes everything else of the model, which has no hooks; leaving it gives
    all parameters their ``requires_grad`` back.
    """

    def __init__(self, hf_model: nn.Module) -> None:
        self._hf_model = hf_model
        self._required = {p: p.requires_grad for p in hf_model.parameters()}

    def __enter__(self) -> Self:
        learning = set(map(id, self.parameters()))
        for parameter in self._required:
            parameter.requires_grad_(id(parameter) in learning)
        return self

    def __exit__(self, *_: object) -> None:
        for parameter, required in self._required.items():
            parameter.requires_grad_(required)
            parameter.grad = None

    def named(self) -> dict[str, nn.Parameter]:
        """Parameters that learn, by name; none where nothing is learned step by step."""
        return {}

    def parameters(self) -> list[nn.Parameter]:
        """Parameters for the optimiser."""
        return list(self.named().values())

    @property
    def n_values(self) -> int:
        """Numbers that can change."""
        return sum(parameter.numel() for parameter in self.parameters())

    def values(self) -> dict[str, Tensor]:
        """Copies of what was learned, on the CPU."""
        return {name: p.detach().cpu().clone() for name, p in self.named().items()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put back what ``values`` gave."""
        for name, parameter in self.named().items():
            parameter.copy_(values[name].to(parameter))

    def undo(self) -> None:
        """Give the model back as it was; nothing to do where its weights did not change."""

    def apply(self) -> None:
        """Make it part of the model's weights, where it is not; the learner is of no use then."""

    def running(self) -> AbstractContextManager[None]:
        """Run the model as it is now."""
        return nullcontext()

    def restore(self) -> None:
        """Put everything else back after a step; nothing to do where it cannot move."""

    def attach(self, optimiser: Optimizer) -> RemovableHandle:
        """Restore after every step of an optimiser, by itself."""
        return optimiser.register_step_post_hook(lambda *_: self.restore())

    def penalty(self) -> Tensor | None:
        """Pull toward the unchanged model, if there is one."""
        return None

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""


def learner(how: How, model: LanguageModel, heads: Sequence[HeadId], *, seed: int = 0) -> Learner:
    """A learner of heads, or for ``full`` of the whole model; the seed is of ``lora``.

    Raises:
        InputError: if a head does not exist, the attention is laid out in a way not known, or
            ``lora`` lacks its package.
        ValueError: if ``how`` learns nothing: ``leace``, ``steering``.
    """
    match how:
        case "gates":
            return HeadGates(model, heads)
        case "tune":
            return HeadMask(model.hf_model, heads)
        case "lora":
            return HeadLora(model.hf_model, heads, seed=seed)
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


# -- slices of heads -------------------------------------------------------------------------------


class HeadMask(Learner):
    """Lets the slices of some heads be trained, and nothing else, bit for bit.

    Keys and values that heads share (grouped queries) are trained for all of them. The bias of an
    output projection belongs to no head and stays.

    Example, in a loop of one's own::

        with HeadMask(hf_model, heads) as mask:
            optimiser = torch.optim.AdamW(mask.parameters(), weight_decay=0.1)
            mask.attach(optimiser)  # or call mask.restore() after every step
            ...
            mask.check()

    and with ``transformers.Trainer``: ``Trainer(..., callbacks=[mask.callback()])``.

    Raises:
        InputError: if there is no head, the model lacks one, or its attention is laid out in a way
            that is not known.
    """

    def __init__(self, hf_model: PreTrainedModel, heads: Sequence[HeadId]) -> None:
        super().__init__(hf_model)
        slices = [piece for head in heads for piece in head_slices(hf_model, head)]
        if not slices:
            raise InputError("`heads` name nothing to train")
        self.slices = tuple(dict.fromkeys(slices))  # heads may share keys and values
        self._named = dict(hf_model.named_parameters())
        self._masks: dict[str, Tensor] = {}
        for piece in self.slices:
            like = self._named[piece.parameter]
            mask = self._masks.setdefault(piece.parameter, torch.zeros_like(like, dtype=torch.bool))
            piece.of(mask).fill_(True)
        self._before = {name: self._named[name].detach().clone() for name in self._masks}
        self._hashes = weight_hashes(
            hf_model, leave_out={self._named[n].data_ptr() for n in self._masks}
        )

    def parameters(self) -> list[nn.Parameter]:
        """Parameters for an optimiser: the whole matrices that hold the slices."""
        return [self._named[name] for name in self._masks]

    @property
    def n_values(self) -> int:
        """Numbers that can change: those in the slices."""
        return sum(int(mask.sum()) for mask in self._masks.values())

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything outside the slices back, as it was when the mask was made."""
        for name, mask in self._masks.items():
            parameter = self._named[name]
            mask, before = self._on(parameter, name)
            torch.where(mask, parameter.data, before, out=parameter.data)

    def callback(self) -> TrainerCallback:
        """For ``transformers.Trainer``: freezes, restores after every step, checks at the end."""
        from transformers import TrainerCallback

        mask = self

        class _Callback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                mask.__enter__()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                mask.restore()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                mask.check()
                mask.__exit__()

        return _Callback()

    def check(self) -> None:
        """Raise AssertionError, naming what changed, if anything else did: to the last bit."""
        changed = changed_weights(self._hf_model, self._hashes)
        for name in self._masks:
            mask, before = self._on(self._named[name], name)
            now = self._named[name].detach()
            # As bytes: 0 and -0 differ, and NaN equals itself.
            if not torch.equal(*(part[~mask].view(torch.uint8) for part in (now, before))):
                changed.append(name)
        if changed:
            raise AssertionError(f"{', '.join(changed[:3])} changed outside the chosen heads")

    def values(self) -> dict[str, Tensor]:
        """The slices as they are now, by ``parameter:axis:start``: copies on the CPU."""
        return {
            _name(piece): piece.of(self._named[piece.parameter].detach()).cpu().clone()
            for piece in self.slices
        }

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put slices back that ``values`` gave."""
        for piece in self.slices:
            part = piece.of(self._named[piece.parameter].data)
            part.copy_(values[_name(piece)].to(part))

    @torch.no_grad()
    def undo(self) -> None:
        """Put the slices back too, as they were when the mask was made."""
        for name, before in self._before.items():
            self._named[name].data.copy_(before)

    def _on(self, parameter: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Mask and values before, where the parameter is: a trainer may have moved it."""
        if self._masks[name].device != parameter.device:
            self._masks[name] = self._masks[name].to(parameter.device)
            self._before[name] = self._before[name].to(parameter.device)
        return self._masks[name], self._before[name]


def _name(piece: Slice) -> str:
    return f"{piece.parameter}:{piece.axis}:{piece.start}"


def _hash(tensor: Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return bytes_hash([raw.numpy().data])


def weight_hashes(hf_model: nn.Module, *, leave_out: Set[int] = frozenset()) -> dict[str, str]:
    """Hash of every tensor of a model by its name, but of those at some addresses."""
    state = hf_model.state_dict()
    return {name: _hash(t) for name, t in state.items() if t.data_ptr() not in leave_out}


def changed_weights(hf_model: nn.Module, hashes: Mapping[str, str]) -> list[str]:
    """Names of tensors that are not what they were."""
    state = hf_model.state_dict()
    return [name for name, before in hashes.items() if _hash(state[name]) != before]


# -- gates on heads --------------------------------------------------------------------------------


class HeadGates(Learner):
    """Scalars on the outputs of heads, 1 in the beginning: ``gates``, in the order of ``heads``.

    The model itself is not changed until ``apply`` multiplies each head's columns of the output
    projection by its gate, which is the same function, exactly, also under grouped queries.

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
        """Sum of the distances from 1."""
        return (self.gates - 1).abs().sum()

    @torch.no_grad()
    def apply(self) -> None:
        """Multiply each head's columns of the output projection by its gate, in place.

        The gates must not run afterwards: they would apply twice.
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
    weights. What it adds is multiplied by 2; the seed is that of the first values of ``lora_A``.

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

    def save(self, folder: Path) -> None:
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


# -- the whole model -------------------------------------------------------------------------------


class WholeModel(Learner):
    """Every parameter of a model."""

    def __init__(self, hf_model: nn.Module) -> None:
        super().__init__(hf_model)
        self._before = self.values()

    def named(self) -> dict[str, nn.Parameter]:
        """Every parameter."""
        return dict(self._hf_model.named_parameters())

    def undo(self) -> None:
        """Put the model back as it was before training."""
        self.load(self._before)
