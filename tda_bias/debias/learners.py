"""What of a model learns: gates, slices of heads, adapters on heads, or everything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tda_bias.debias.gates import HeadGates
from tda_bias.debias.lora import HeadLora
from tda_bias.debias.mask import HeadMask
from tda_bias.models.load import LanguageModel
from tda_bias.types import HeadId

How = Literal["gates", "tune", "lora", "full"]


class Learner(ABC):
    """Something that learns, and can be taken away again.

    Attributes:
        heads: What may change; empty for everything.
        first: The lowest layer that changes; below it nothing is computed twice.
    """

    heads: tuple[HeadId, ...]
    first: int

    @abstractmethod
    def parameters(self) -> list[nn.Parameter]:
        """For the optimiser."""

    @abstractmethod
    def values(self) -> dict[str, Tensor]:
        """What was learned: copies on the CPU."""

    @abstractmethod
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put back what ``values`` gave."""

    @abstractmethod
    def apply(self) -> None:
        """Make it part of the model's weights; the learner is of no use afterwards."""

    @abstractmethod
    def undo(self) -> None:
        """Give the model back as it was; the learner is of no use afterwards."""

    def attach(self, optimiser: Optimizer) -> None:
        """Keep everything else as it is after every step; nothing to do where it cannot move."""
        return

    def running(self) -> AbstractContextManager[None]:
        """The model as it is now."""
        return nullcontext()

    def penalty(self) -> Tensor | None:
        """What pulls toward the unchanged model, if anything does."""
        return None

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        return


def learner(how: How, model: LanguageModel, heads: Sequence[HeadId], *, seed: int = 0) -> Learner:
    """A learner of some heads, or for ``full`` of the whole model.

    Args:
        how: What learns.
        model: A model without hooks.
        heads: Which heads, for all but ``full``.
        seed: Of first values, for ``lora``.

    Raises:
        InputError: if a head does not exist, the attention is laid out in a way not known, or
            ``lora`` lacks its package.
    """
    match how:
        case "gates":
            return GateLearner(model, heads)
        case "tune":
            return TuneLearner(model, heads)
        case "lora":
            return LoraLearner(model, heads, seed=seed)
        case _:
            return FullLearner(model)


class GateLearner(Learner):
    """One scalar per head."""

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId]) -> None:
        self.gates = HeadGates(model, heads)
        self.heads, self.first = self.gates.heads, self.gates.lowest
        # The model itself must not change: no slice of it learns.
        self._mask = HeadMask(model.hf_model, self.heads[:1])
        self._required = {p: p.requires_grad for p in model.hf_model.parameters()}
        for parameter in self._required:
            parameter.requires_grad_(False)

    def parameters(self) -> list[nn.Parameter]:
        """For the optimiser."""
        return [self.gates.values]

    def running(self) -> AbstractContextManager[None]:
        """The model with its gates."""
        return self.gates.attached()

    def penalty(self) -> Tensor:
        """The gates' distance from 1."""
        return self.gates.penalty()

    def values(self) -> dict[str, Tensor]:
        """What was learned."""
        return {"gates": self.gates.values.detach().cpu().clone()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        self.gates.values.copy_(values["gates"])

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        self._mask.check()

    def apply(self) -> None:
        """Make it part of the weights."""
        self.gates.fold()
        self._release()

    def undo(self) -> None:
        """Give the model back as it was."""
        self._release()

    def _release(self) -> None:
        for parameter, required in self._required.items():
            parameter.requires_grad_(required)


class TuneLearner(Learner):
    """Queries, keys, values and outputs of heads."""

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId]) -> None:
        self._mask = HeadMask(model.hf_model, heads)
        self.heads = tuple(sorted(self._mask.heads))
        self.first = min(head.layer for head in self.heads)
        self._mask.__enter__()

    def parameters(self) -> list[nn.Parameter]:
        """For the optimiser."""
        return self._mask.parameters()

    def attach(self, optimiser: Optimizer) -> None:
        """Put everything outside the heads back after every step."""
        self._mask.attach(optimiser)

    def values(self) -> dict[str, Tensor]:
        """What was learned."""
        return self._mask.values()

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        self._mask.load(values)

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        self._mask.check()

    def apply(self) -> None:
        """Make it part of the weights."""
        self._mask.check()
        self._mask.release()

    def undo(self) -> None:
        """Give the model back as it was."""
        self._mask.undo()
        self._mask.release()


class LoraLearner(Learner):
    """Adapters on heads."""

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId], *, seed: int = 0) -> None:
        self.lora = HeadLora(model.hf_model, heads, seed=seed)
        self.heads = tuple(sorted(self.lora.heads))
        self.first = min(head.layer for head in self.heads)

    def parameters(self) -> list[nn.Parameter]:
        """For the optimiser."""
        return self.lora.parameters()

    def attach(self, optimiser: Optimizer) -> None:
        """Put everything outside the heads back after every step."""
        self.lora.attach(optimiser)

    def values(self) -> dict[str, Tensor]:
        """What was learned."""
        return self.lora.values()

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        self.lora.load(values)

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        self.lora.check()

    def apply(self) -> None:
        """Make it part of the weights."""
        self.lora.merge()

    def undo(self) -> None:
        """Give the model back as it was."""
        self.lora.unload()


class FullLearner(Learner):
    """Every parameter of the model."""

    heads: tuple[HeadId, ...] = ()
    first = 0

    def __init__(self, model: LanguageModel) -> None:
        self._named = dict(model.hf_model.named_parameters())
        self._before = self.values()
        self._required = {name: p.requires_grad for name, p in self._named.items()}
        for parameter in self._named.values():
            parameter.requires_grad_(True)

    def parameters(self) -> list[nn.Parameter]:
        """For the optimiser."""
        return list(self._named.values())

    def values(self) -> dict[str, Tensor]:
        """What was learned."""
        return {name: p.detach().cpu().clone() for name, p in self._named.items()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        for name, parameter in self._named.items():
            parameter.data.copy_(values[name])

    def apply(self) -> None:
        """Make it part of the weights."""
        self._release()

    def undo(self) -> None:
        """Give the model back as it was."""
        self.load(self._before)
        self._release()

    def _release(self) -> None:
        for name, parameter in self._named.items():
            parameter.requires_grad_(self._required[name])


@contextmanager
def undone(learned: Learner) -> Iterator[Learner]:
    """A learner whose changes are taken back when the block ends, however it ends."""
    try:
        yield learned
    finally:
        learned.undo()
