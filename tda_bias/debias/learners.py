"""Learners: gates, slices of heads, adapters on heads, or everything, by one protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tda_bias.ablation.head_weights import head_slices
from tda_bias.debias.gates import HeadGates
from tda_bias.debias.lora import HeadLora
from tda_bias.debias.mask import HeadMask
from tda_bias.models.attention import attention_layers
from tda_bias.models.automatic import auto_class
from tda_bias.models.checkpoint import refuse_code_in_folder, refuse_compiled_code
from tda_bias.models.language_model import LanguageModel
from tda_bias.types import HeadId, InputError

How = Literal["gates", "tune", "lora", "full"]


class Learner(Protocol):
    """Something that learns, and can be taken away again."""

    heads: tuple[HeadId, ...]

    @property
    def first(self) -> int:
        """The lowest layer that changes; below it nothing is computed twice."""
        return min((head.layer for head in self.heads), default=0)

    def parameters(self) -> list[nn.Parameter]:
        """Parameters for the optimiser."""

    def values(self) -> dict[str, Tensor]:
        """Copies of what was learned, on the CPU."""

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put back what ``values`` gave."""

    def release(self) -> None:
        """Let the model's parameters learn that did before."""
        return None

    def apply(self) -> None:
        """Make it part of the model's weights; the learner is of no use afterwards."""
        self.release()

    def undo(self) -> None:
        """Give the model back as it was; the learner is of no use afterwards."""
        self.release()

    def attach(self, optimiser: Optimizer) -> Any:
        """Keep everything else as it is after every step; nothing to do where it cannot move."""
        return None

    def running(self) -> AbstractContextManager[None]:
        """Run the model as it is now."""
        return nullcontext()

    def penalty(self) -> Tensor | None:
        """Pull toward the unchanged model, if there is one."""
        return None

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        return None


def learner(how: How, model: LanguageModel, heads: Sequence[HeadId], *, seed: int = 0) -> Learner:
    """A learner of some heads, or for ``full`` of the whole model.

    Args:
        how: Its kind.
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
        self.heads = self.gates.heads
        # The model itself must not change: no slice of it learns.
        self._mask = HeadMask(model.hf_model, self.heads[:1])
        self._model = _required(model.hf_model, False)

    def parameters(self) -> list[nn.Parameter]:
        """Give the optimiser its parameters."""
        return [self.gates.values]

    def running(self) -> AbstractContextManager[None]:
        """Run the model with its gates."""
        return self.gates.attached()

    def penalty(self) -> Tensor:
        """Sum the gates' distances from 1."""
        return self.gates.penalty()

    def values(self) -> dict[str, Tensor]:
        """Copy what was learned."""
        return {"gates": self.gates.values.detach().cpu().clone()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        self.gates.values.copy_(values["gates"])

    def check(self) -> None:
        """Raise AssertionError if anything else changed."""
        self._mask.check()

    def release(self) -> None:
        """Let parameters learn that did before."""
        _release(self._model)

    def apply(self) -> None:
        """Make it part of the weights."""
        self.gates.fold()
        self.release()


class TuneLearner(HeadMask, Learner):
    """Queries, keys, values and outputs of heads."""

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId]) -> None:
        super().__init__(model.hf_model, heads)
        self.__enter__()

    def apply(self) -> None:
        """Make it part of the weights."""
        self.check()
        self.release()

    def undo(self) -> None:
        """Give the model back as it was."""
        super().undo()
        self.release()


class LoraLearner(HeadLora, Learner):
    """Adapters on heads."""

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId], *, seed: int = 0) -> None:
        super().__init__(model.hf_model, heads, seed=seed)

    def apply(self) -> None:
        """Make it part of the weights."""
        self.merge()

    def undo(self) -> None:
        """Give the model back as it was."""
        self.unload()


class FullLearner(Learner):
    """Every parameter of the model."""

    heads = ()

    def __init__(self, model: LanguageModel) -> None:
        self._named = dict(model.hf_model.named_parameters())
        self._before = self.values()
        self._model = _required(model.hf_model, True)

    def parameters(self) -> list[nn.Parameter]:
        """Give the optimiser its parameters."""
        return list(self._named.values())

    def values(self) -> dict[str, Tensor]:
        """Copy what was learned."""
        return {name: p.detach().cpu().clone() for name, p in self._named.items()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put that back."""
        for name, parameter in self._named.items():
            parameter.data.copy_(values[name])

    def release(self) -> None:
        """Let parameters learn that did before."""
        _release(self._model)

    def undo(self) -> None:
        """Give the model back as it was."""
        self.load(self._before)
        self.release()


def _required(hf_model: nn.Module, required: bool) -> dict[nn.Parameter, bool]:
    """Let all parameters of a model learn, or none; returns what they did before."""
    before = {parameter: parameter.requires_grad for parameter in hf_model.parameters()}
    for parameter in before:
        parameter.requires_grad_(required)
    return before


def _release(before: Mapping[nn.Parameter, bool]) -> None:
    for parameter, required in before.items():
        parameter.requires_grad_(required)


@contextmanager
def undone(learned: Learner) -> Iterator[Learner]:
    """Take back a learner's changes when the block ends, however it ends."""
    try:
        yield learned
    finally:
        learned.undo()


# -- models that cannot be trained -----------------------------------------------------------------


def refuse_untrainable(name: str) -> None:
    """Refuse a model whose heads cannot be trained, by its configuration: no weight is loaded.

    A model whose configuration cannot be read is left to the loader, which says why.

    Args:
        name: As ``load_language_model`` takes it.

    Raises:
        InputError: naming the architecture and the parameters that cannot be cut into heads.
    """
    from transformers import AutoConfig

    from tda_bias.models.packaged import local_source

    refuse_code_in_folder(name)
    try:
        config = AutoConfig.from_pretrained(local_source(name), trust_remote_code=False)
        refuse_compiled_code(name, config)
        with torch.device("meta"):
            skeleton = auto_class(config, "language").from_config(config)
    except Exception:  # of many kinds; the loader turns them into one line
        return
    refuse_uncut_heads(skeleton, name)


def refuse_uncut_heads(hf_model: Any, name: str) -> None:
    """Refuse a model whose attention cannot be cut into heads.

    Args:
        hf_model: A plain Hugging Face model; its weights may be on the meta device.
        name: What the user calls it.

    Raises:
        InputError: naming the architecture and the parameters.
    """
    architecture = type(hf_model).__name__
    if getattr(hf_model.config.get_text_config(), "num_attention_heads", None) is None:
        raise InputError(
            f"`model` {name} ({architecture}) has no attention heads, so that none can be trained"
        )
    try:
        layers = attention_layers(LanguageModel(hf_model, None, name))
        head_slices(hf_model, HeadId(layers[0].number, 0))
    except InputError:
        named = [
            parameter.removesuffix(".weight")
            for parameter, weight in hf_model.named_parameters()
            if "att" in parameter and weight.ndim > 1
        ]
        one_layer = [parameter for parameter in named if ".0." in parameter] or named[:4]
        raise InputError(
            f"`model` {name} ({architecture}) keeps its attention in a form that this version "
            f"cannot cut into heads ({', '.join(one_layer)}), so that single heads cannot be "
            "trained; other commands read it"
        ) from None
