"""Matrix products in bfloat16 while everything else stays in single precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tda_bias.models.language_model import LanguageModel
from tda_bias.types import InputError

Precision = Literal["float32", "bfloat16"]


class Computing:
    """A way to compute while a model is trained, checked or read.

    In ``bfloat16`` matrix products are computed in half precision (``torch.autocast``), which is
    faster where the hardware has instructions for it. Weights that learn keep their single
    precision; those that do not are rounded once instead of at every pass, which takes half as
    much memory again.

    Args:
        model: A model in single precision.
        precision: ``float32`` leaves everything as it is.
        frozen: Nothing learns, whatever the parameters say of themselves, and no backward pass
            follows. The output embeddings are then not rounded: a logit in half precision is off
            by up to a sixteenth, in a confident prediction without anything to average it out.

    Raises:
        InputError: if the precision is not known, or the model is in another one already.
    """

    def __init__(
        self, model: LanguageModel, precision: Precision = "float32", *, frozen: bool = False
    ) -> None:
        if precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise InputError(f"`precision` must be one of {known}; got {precision!r}")
        if precision != "float32" and model.dtype != torch.float32:
            raise InputError(
                f"`precision` {precision} rounds a model in float32; `model` {model.name} is in "
                f"{model.dtype_name}"
            )
        self._hf_model: Any = model.hf_model
        self._frozen = frozen
        self._device = model.device.type
        self._half = precision == "bfloat16"
        self._rounded: dict[Tensor, Tensor] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The model as it computes here, for forward passes; backward passes follow them."""
        if not self._half:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(torch.autocast(self._device, torch.bfloat16))
            if self._device == "cpu" and not self._frozen:
                # Here the fused attention's backward pass is slow in half precision.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            for module in self._hf_model.modules():
                # What others have put there stays: accelerate, or this very function around itself.
                if type(module) is nn.Linear and "forward" not in vars(module):
                    product = self._product(module)
                    if product is not None:
                        vars(module)["forward"] = product
                        stack.callback(vars(module).pop, "forward")
            yield

    def _product(self, module: nn.Linear) -> Callable[[Tensor], Tensor] | None:
        if self._frozen and module is self._hf_model.get_output_embeddings():
            return partial(in_single_precision, module.weight, module.bias)
        if module.weight.requires_grad and not self._frozen:
            return None
        if module.weight not in self._rounded:
            self._rounded[module.weight] = module.weight.detach().bfloat16()
        weight = self._rounded[module.weight]
        return lambda given: nn.functional.linear(given, weight, module.bias)


def in_single_precision(weight: Tensor, bias: Tensor | None, given: Tensor) -> Tensor:
    """A linear map that is not rounded, whatever runs around it."""
    with torch.autocast(given.device.type, enabled=False):
        return nn.functional.linear(given.to(weight.dtype), weight, bias)
