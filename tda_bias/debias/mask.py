"""Training some heads and nothing else, bit for bit, in any training loop.

A head is a slice of four matrices that its neighbours share, so an optimiser moves the neighbours
too: through weight decay, through momentum, and by rounding. Masking gradients alone does not stop
that. Here everything outside the slices is put back after every step, and compared at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch import Tensor, nn

from tda_bias.ablation.head_weights import Part, Slice, head_slices
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel, TrainerCallback

PARTS: tuple[Part, ...] = ("q", "k", "v", "o")


class HeadMask:
    """Lets the slices of some heads be trained, and nothing else.

    Entering the block freezes every other parameter; leaving it gives all parameters their
    ``requires_grad`` back. Keys and values that heads share (grouped queries) are trained for all
    of them. The bias of an output projection belongs to no head and stays.

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
        parts: Which of their projections.

    Raises:
        InputError: if there is no head, the model lacks one, or its attention is laid out in a way
            that is not known.
    """

    def __init__(
        self, hf_model: PreTrainedModel, heads: Sequence[HeadId], *, parts: Sequence[Part] = PARTS
    ) -> None:
        unique = list(dict.fromkeys(heads))
        slices = [s for head in unique for s in head_slices(hf_model, head) if s.part in parts]
        if not slices:
            raise InputError("`heads` and `parts` name nothing to train")
        self.heads = tuple(unique)
        self.slices = tuple(dict.fromkeys(slices))
        self._hf_model = hf_model
        self._named = dict(hf_model.named_parameters())
        self._masks: dict[str, Tensor] = {}
        for piece in self.slices:
            like = self._named[piece.parameter]
            mask = self._masks.setdefault(piece.parameter, torch.zeros_like(like, dtype=torch.bool))
            piece.of(mask).fill_(True)
        self._before = {name: self._named[name].detach().clone() for name in self._masks}
        self._hashes = _hashes(hf_model.state_dict(), leave_out=self._aliases())
        self._required = {name: p.requires_grad for name, p in self._named.items()}

    def parameters(self) -> list[nn.Parameter]:
        """Parameters for an optimiser: the whole matrices that hold the slices."""
        return [self._named[name] for name in self._masks]

    @property
    def n_values(self) -> int:
        """Numbers that can change."""
        return sum(int(mask.sum()) for mask in self._masks.values())

    def __enter__(self) -> HeadMask:
        for name, parameter in self._named.items():
            parameter.requires_grad_(name in self._masks)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give all parameters their ``requires_grad`` back."""
        for name, parameter in self._named.items():
            parameter.requires_grad_(self._required[name])

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything outside the slices back, as it was when the mask was made."""
        for name, mask in self._masks.items():
            parameter = self._named[name]
            mask, before = self._on(parameter, name)
            torch.where(mask, parameter.data, before, out=parameter.data)

    def attach(self, optimiser: Optimizer) -> RemovableHandle:
        """Restore after every step of an optimiser, by itself."""
        return optimiser.register_step_post_hook(lambda *_: self.restore())

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
                mask.release()

        return _Callback()

    def check(self) -> None:
        """Make sure that nothing else changed, to the last bit.

        Raises:
            AssertionError: naming what did.
        """
        changed = [
            name
            for name, before in self._hashes.items()
            if _hash(self._hf_model.state_dict()[name]) != before
        ]
        for name in self._masks:
            mask, before = self._on(self._named[name], name)
            now = self._named[name].detach()
            if not torch.equal(_bits(now)[~mask], _bits(before)[~mask]):
                changed.append(name)
        if changed:
            raise AssertionError(f"{', '.join(changed[:3])} changed outside the chosen heads")

    # -- what was learned --

    def values(self) -> dict[str, Tensor]:
        """The slices as they are now, by ``parameter:axis:start``: copies on the CPU."""
        return {
            slice_name(piece): piece.of(self._named[piece.parameter].detach()).cpu().clone()
            for piece in self.slices
        }

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put slices back that ``values`` gave."""
        for piece in self.slices:
            part = piece.of(self._named[piece.parameter].data)
            part.copy_(values[slice_name(piece)].to(part))

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

    def _aliases(self) -> set[int]:
        return {self._named[name].data_ptr() for name in self._masks}


def slice_name(part: Slice) -> str:
    """Names a slice among those of one model."""
    return f"{part.parameter}:{part.axis}:{part.start}"


def _bits(tensor: Tensor) -> Tensor:
    """Its values as whole numbers: 0 and -0 differ, and NaN equals itself."""
    return tensor.contiguous().view(
        {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
    )


def _hash(tensor: Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return str(xxhash.xxh3_128_hexdigest(raw.numpy().data))


def _hashes(state: Mapping[str, Tensor], *, leave_out: set[int]) -> dict[str, str]:
    return {name: _hash(t) for name, t in state.items() if t.data_ptr() not in leave_out}
