"""Matrix products in bfloat16 while everything else stays in single precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tda_bias.models.language_model import LanguageModel

Precision = Literal["float32", "bfloat16"]


class Computing:
    """How a model computes while it is trained, checked or read.

    In ``bfloat16`` matrix products are computed in half precision (``torch.autocast``), which is
    faster where the hardware has instructions for it. Weights that learn keep their single
    precision; those that do not are rounded once instead of at every pass, which takes half as
    much memory again.

    Args:
        model: A model in single precision.
        precision: ``float32`` leaves everything as it is.
        frozen: Nothing learns, whatever the parameters say of themselves; no backward pass follows.
    """

    def __init__(
        self, model: LanguageModel, precision: Precision = "float32", *, frozen: bool = False
    ) -> None:
        self._hf_model: Any = model.hf_model
        self._frozen = frozen
        self._device = model.device.type
        self._half = precision == "bfloat16"
        # By what they are rounded of, which copies of the model share.
        self._rounded: dict[Tensor, Tensor] = {}

    def of_copy(self, model: LanguageModel) -> Computing:
        """The same for another model with the same weights in memory."""
        precision: Precision = "bfloat16" if self._half else "float32"
        other = Computing(model, precision, frozen=self._frozen)
        other._rounded = self._rounded
        return other

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
                if type(module) is nn.Linear and not self._learns(module.weight):
                    vars(module)["forward"] = self._product(module)
                    stack.callback(vars(module).pop, "forward")
            yield

    def _learns(self, weight: Tensor) -> bool:
        return weight.requires_grad and not self._frozen

    def _product(self, module: nn.Linear) -> _RoundedProduct:
        if module.weight not in self._rounded:
            self._rounded[module.weight] = module.weight.detach().bfloat16()
        return _RoundedProduct(self._rounded[module.weight], module.bias)


class _RoundedProduct:
    """A linear map with rounded weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self._bias = bias

    def __call__(self, given: Tensor) -> Tensor:
        return nn.functional.linear(given, self.weight, self._bias)


def weight_now(module: nn.Linear) -> Tensor:
    """The weights a linear map computes with: rounded while ``Computing`` runs its model."""
    product = vars(module).get("forward")
    return product.weight if isinstance(product, _RoundedProduct) else module.weight
