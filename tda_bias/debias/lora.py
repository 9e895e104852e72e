"""LoRA on chosen heads: ordinary adapters whose entries outside these heads are 0.

peft puts adapters on whole matrices. Here the rows of ``lora_B`` (queries, keys, values) and the
columns of ``lora_A`` (output projection) that belong to other heads are 0 and stay so; what is
saved is an ordinary adapter that plain peft loads.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tda_bias.ablation.head_weights import Part
from tda_bias.debias.mask import PARTS, HeadMask
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

_ADAPTER = "default"


def require_peft() -> Any:
    """The package.

    Raises:
        InputError: if it is not installed.
    """
    try:
        import peft
    except ImportError:
        raise InputError(
            "`how` lora needs the package peft: pip install 'tdabias[lora]'; gates and tune do not"
        ) from None
    return peft


class HeadLora:
    """An adapter on the projections of some heads.

    The model is wrapped in place; ``unload`` takes the adapter away, ``merge`` adds it to the
    weights.

    Args:
        hf_model: A plain Hugging Face model, without hooks.
        heads: The heads.
        rank: Rank of every adapter.
        alpha: Its scale: what it adds is multiplied by ``alpha / rank``.
        parts: Which projections of the heads.
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
        alpha: float = 16.0,
        parts: Sequence[Part] = PARTS,
        seed: int = 0,
    ) -> None:
        peft = require_peft()
        # Its hashes also show, at the end, that no weight of the model itself has changed.
        mask = HeadMask(hf_model, heads, parts=parts)
        self.heads = mask.heads
        self._before = mask
        weights = [piece for piece in mask.slices if piece.parameter.endswith(".weight")]
        targets = sorted({piece.parameter.removesuffix(".weight") for piece in weights})
        linear = isinstance(hf_model.get_submodule(targets[0]), nn.Linear)
        rows = {name: _size(hf_model.get_submodule(name), linear) for name in targets}
        self._inside: dict[str, tuple[str, Tensor]] = {}
        for piece in weights:
            name = piece.parameter.removesuffix(".weight")
            side = "lora_A" if piece.part == "o" else "lora_B"
            size = rows[name][0 if side == "lora_A" else 1]
            inside = self._inside.setdefault(name, (side, torch.zeros(size, dtype=torch.bool)))[1]
            inside[piece.start : piece.stop] = True
        config = peft.LoraConfig(
            r=rank, lora_alpha=alpha, target_modules=targets, fan_in_fan_out=not linear,
            lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        )  # fmt: skip
        with torch.random.fork_rng(), warnings.catch_warnings():
            # peft still asks transformers under a name that is going to change.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is", FutureWarning)
            torch.manual_seed(seed)
            self.peft_model: Any = peft.get_peft_model(hf_model, config)
        self._modules = {name: hf_model.get_submodule(name) for name in targets}
        self.restore()

    def parameters(self) -> list[nn.Parameter]:
        """Parameters for an optimiser."""
        return [p for p in self.peft_model.parameters() if p.requires_grad]

    @torch.no_grad()
    def restore(self) -> None:
        """Set what belongs to other heads to 0 again."""
        for matrix, outside in self._outside():
            matrix[outside] = 0

    def attach(self, optimiser: Optimizer) -> RemovableHandle:
        """Restore after every step of an optimiser, by itself."""
        return optimiser.register_step_post_hook(lambda *_: self.restore())

    def check(self) -> None:
        """Make sure that the adapter touches nothing but the heads.

        Raises:
            AssertionError: if it does.
        """
        for matrix, outside in self._outside():
            if int(matrix[outside].count_nonzero()):
                raise AssertionError("the adapter changed outside the chosen heads")

    def save(self, folder: str | Path) -> None:
        """Write the adapter: ``peft.PeftModel.from_pretrained(model, folder)`` reads it."""
        self.peft_model.save_pretrained(str(folder))

    def values(self) -> dict[str, Tensor]:
        """The adapter's matrices: copies on the CPU."""
        return {name: p.detach().cpu().clone() for name, p in self._matrices().items()}

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Put matrices back that ``values`` gave."""
        for name, parameter in self._matrices().items():
            parameter.copy_(values[name].to(parameter))

    def merge(self) -> PreTrainedModel:
        """The model with the adapter added to its weights, and no adapter any more."""
        merged: PreTrainedModel = self.peft_model.merge_and_unload()
        self._before.release()
        return merged

    def unload(self) -> PreTrainedModel:
        """The model as it was, bit for bit.

        Raises:
            AssertionError: if a weight of it has changed.
        """
        plain: PreTrainedModel = self.peft_model.unload()
        self._before.check()
        self._before.release()
        return plain

    def _matrices(self) -> dict[str, nn.Parameter]:
        named = self.peft_model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    def _outside(self) -> list[tuple[Tensor, Tensor]]:
        """Matrices with the rows of ``lora_B``, or the columns of ``lora_A``, that must be 0."""
        outside = []
        for name, (side, inside) in self._inside.items():
            weight = getattr(self._modules[name], side)[_ADAPTER].weight.data
            matrix = weight.T if side == "lora_A" else weight
            outside.append((matrix, ~inside.to(matrix.device)))
        return outside


def _size(module: nn.Module, linear: bool) -> tuple[int, int]:
    """Width of a projection's input and output."""
    rows, columns = module.get_parameter("weight").shape
    return (columns, rows) if linear else (rows, columns)
