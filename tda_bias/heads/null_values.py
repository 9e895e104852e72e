"""What tests need of the values of many heads under many draws, in two passes over them.

A block of draws at a time, which stays in the processor's cache, and in torch, which uses all
cores: sums over draws are in double precision though the values are in single.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Values that one step of a pass works on.
_BLOCK = 200_000


def null_summary(
    null: Float[np.ndarray, "draw test"],
    threshold: Float[np.ndarray, " test"],
    *,
    two_sided: bool = False,
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"], Int[np.ndarray, " test"]]:
    """Mean and standard deviation of every test over draws, and how many draws reach a threshold.

    Args:
        null: The values under every draw.
        threshold: Where a draw begins to count; NaN is never reached.
        two_sided: Sizes are held against the threshold.
    """
    values, limit = torch.from_numpy(null), torch.from_numpy(threshold)
    # About the first draw: what does not vary has exactly no spread, and squares lose no digits.
    origin = values[0].double()
    total, squares = torch.zeros_like(origin), torch.zeros_like(origin)
    reached = torch.zeros(len(limit), dtype=torch.long)
    for block in _blocks(values):
        wide = block.double()
        counted = (wide.abs() if two_sided else wide) >= limit
        reached += counted.sum(0)
        wide = wide - origin
        total += wide.sum(0)
        squares += wide.square_().sum(0)
    mean = total / len(values)
    variance = (squares / len(values) - mean**2).clamp_(min=0.0)
    return (mean + origin).numpy(), variance.sqrt().numpy(), reached.numpy()


def largest_standardised(
    null: Float[np.ndarray, "draw test"],
    usable: Bool[np.ndarray, " test"],
    mean: Float[np.ndarray, " test"],
    sd: Float[np.ndarray, " test"],
    *,
    two_sided: bool = False,
) -> Float[np.ndarray, " draw"]:
    """Of every draw the largest value over usable tests, less its mean and over its SD."""
    chosen = slice(None) if usable.all() else torch.from_numpy(np.flatnonzero(usable))
    centre, scale = (torch.from_numpy(of_test[usable]) for of_test in (mean, sd))
    largest = []
    for block in _blocks(torch.from_numpy(null)):
        standardised = (block[:, chosen].double() - centre).div_(scale)
        largest.append((standardised.abs_() if two_sided else standardised).amax(1))
    return np.asarray(torch.cat(largest).numpy())


def _blocks(values: Tensor) -> Iterator[Tensor]:
    yield from torch.split(values, max(1, _BLOCK // max(1, values.shape[1])))
