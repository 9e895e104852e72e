"""Matrix products in bfloat16 while everything that is learned stays in single precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tda_bias.models.load import LanguageModel

Precision = Literal["float32", "bfloat16"]


class Computing:
    """How a model computes while it is trained and checked.

    In ``bfloat16`` matrix products are computed in half precision (``torch.autocast``), which is
    faster where the hardware has instructions for it. Weights that learn keep their single
    precision; those that do not are rounded once instead of at every pass, which takes half as
    much memory again.

    Args:
        model: A model in single precision.
        precision: ``float32`` leaves everything as it is.
    """

    def __init__(self, model: LanguageModel, precision: Precision = "float32") -> None:
        self._hf_model: Any = model.hf_model
        self._device = model.device.type
        self._half = precision == "bfloat16"
        self._rounded: dict[nn.Module, Tensor] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The model as it computes here, for forward passes; backward passes follow them."""
        if not self._half:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(torch.autocast(self._device, torch.bfloat16))
            if self._device == "cpu":
                # Here the fused attention's backward pass is slow in half precision.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            for module in self._hf_model.modules():
                if type(module) is nn.Linear and not module.weight.requires_grad:
                    vars(module)["forward"] = self._product(module)
                    stack.callback(vars(module).pop, "forward")
            yield

    def _product(self, module: nn.Linear) -> Callable[[Tensor], Tensor]:
        if module not in self._rounded:
            self._rounded[module] = module.weight.detach().bfloat16()
        weight = self._rounded[module]
        return lambda given: nn.functional.linear(given, weight, module.bias)
