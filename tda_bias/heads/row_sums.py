"""Whether attention patterns are what they must be: rows that sum to 1, and no later token seen."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass
class RowCheck:
    """Counts of attention rows that do not sum to 1, which half precision and sinks produce.

    Attributes:
        tolerance: Largest allowed distance from 1.
        failed: Layer to number of (text, head, query) rows outside.
        checked: Rows looked at.
        worst: Largest distance seen.
    """

    tolerance: float
    failed: dict[int, int] = field(default_factory=dict)
    checked: int = 0
    worst: float = 0.0


@dataclass(frozen=True)
class LayerCheck:
    """What is wrong with the patterns of a layer, still on its device.

    Attributes:
        values: Largest distance of a row's sum from 1, number of rows beyond the tolerance, number
            of texts with NaN or infinities, largest attention to a later token.
        n_texts: Texts.
        n_heads: Heads.
    """

    values: Float[Tensor, "4"]
    n_texts: int
    n_heads: int

    @classmethod
    def of(
        cls,
        patterns: Float[Tensor, "text head query key"],
        inside: Bool[Tensor, "text token"],
        *,
        tolerance: float,
        direction: bool,
    ) -> LayerCheck:
        """Measure; ``direction`` also looks for attention to later tokens."""
        sums = (patterns @ inside[:, None, :, None].to(patterns.dtype)).squeeze(-1)
        off = torch.where(inside[:, None, :], (sums - 1.0).abs(), 0.0)
        later = off.new_zeros(())
        if direction:
            both = inside[:, None, :, None] & inside[:, None, None, :]
            later = torch.where(both, patterns.triu(1), 0.0).abs().max()
        values = (
            off.max(),
            ((off > tolerance) & inside[:, None, :]).sum(),
            (~torch.isfinite(off).flatten(1).all(1)).sum(),
            later,
        )
        return cls(torch.stack([value.float() for value in values]), *patterns.shape[:2])
