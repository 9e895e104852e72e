"""What a head writes from each token: its value through the output matrix.

A head parks attention on tokens it takes nothing from, often the first. The norm of attention times
what the value and output matrices make of a token leaves those out.

Source: Kobayashi, Kuribayashi, Yokoi & Inui (2020), Attention is Not Only a Weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.models.load import LoadedModel


class HeadWriters:
    """The norms |v W_O| of every head, layer by layer.

    Args:
        model: A model whose values can be hooked and whose output matrices are known.

    Attributes:
        hooks: Names of the hooks that give the values.

    Raises:
        InputError: if a layer has no such hook or matrix.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._products: dict[str, Float[Tensor, "head value value"]] = {}
        self.hooks: list[str] = []
        if model.bridge is None:
            raise _unknown(model)
        for pattern in model.pattern_hooks:
            stack, number, *_ = pattern.split(".")
            hook = pattern.replace("hook_pattern", "hook_v")
            try:
                matrix = getattr(model.bridge, stack)[int(number)].attn.W_O.detach()
                known = hook in model.bridge.hook_dict
            except (AttributeError, IndexError):
                known = False
            if not known:
                raise _unknown(model)
            self._products[pattern] = matrix.float() @ matrix.float().mT
            self.hooks.append(hook)

    def norms(self, pattern: str, values: Mapping[str, Tensor]) -> Float[Tensor, "row head token"]:
        """Norms of what every head writes from every token.

        Args:
            pattern: Name of the layer's pattern hook.
            values: What the hooks gave, by name; ``(row, token, head, value)``, where heads may
                share values (grouped queries).
        """
        products = self._products[pattern]
        value = _of(values, pattern.replace("hook_pattern", "hook_v"))
        shared = len(products) // value.shape[2]
        value = value.to(products.dtype).repeat_interleave(shared, dim=2).transpose(1, 2)
        squares = ((value @ products.to(value.device)) * value).sum(-1)
        return torch.sqrt(squares.clamp_min(0.0))


def _of(values: Mapping[str, Tensor], hook: str) -> Tensor:
    """The value of a hook, which may go by the name of the point it stands for."""
    if hook in values:
        return values[hook]
    prefix = hook.removesuffix("hook_v")
    return next(value for name, value in values.items() if name.startswith(prefix))


def _unknown(model: LoadedModel) -> InputError:
    return InputError(
        f"`model` {model.name} ({model.architecture}) does not show what its heads write; use "
        "--edges attention"
    )
