"""The protocol of learners, and the first of them: some heads are trained, bit for bit.

A head is a slice of four matrices that its neighbours share, so an optimiser moves the neighbours
too: through weight decay, through momentum, and by rounding. Masking gradients alone does not stop
that. Here everything outside the slices is put back after every step, and compared at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import torch
import xxhash
from torch import Tensor, nn

from tda_bias.ablation.head_weights import Slice, head_slices
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel, TrainerCallback


class Learner:
    """A change of a model that is trained, and can be taken away again.

    Entering the block freezes everything else of the model; leaving it gives all parameters their
    ``requires_grad`` back.

    Args:
        hf_model: A plain Hugging Face model, without hooks.
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

    Args:
        hf_model: A plain Hugging Face model, without hooks.
        heads: The heads to train.

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
        """Numbers that can change."""
        return sum(int(mask.sum()) for mask in self._masks.values())

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything outside the slices back, as it was when the mask was made."""
        for name, mask in self._masks.items():
            parameter = self._named[name]
            mask, before = self._on(parameter, name)
            torch.where(mask, parameter.data, before, out=parameter.data)

    def callback(self) -> TrainerCallback:
        """Freezes, restores after every step and checks at the end, for ``transformers.Trainer``.

        Hand it over before training; weight decay and clipping may be what they are.
        """
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
    return str(xxhash.xxh3_128_hexdigest(raw.numpy().data))


def weight_hashes(hf_model: nn.Module, *, leave_out: Set[int] = frozenset()) -> dict[str, str]:
    """Hash of every tensor of a model by its name, but of those at some addresses."""
    state = hf_model.state_dict()
    return {name: _hash(t) for name, t in state.items() if t.data_ptr() not in leave_out}


def changed_weights(hf_model: nn.Module, hashes: Mapping[str, str]) -> list[str]:
    """Names of tensors that are not what they were."""
    state = hf_model.state_dict()
    return [name for name, before in hashes.items() if _hash(state[name]) != before]
