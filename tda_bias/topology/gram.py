"""Sorted sets of a group's texts to inner products of their step functions.

Everything that is computed of a group's texts follows from the inner products of their step
functions about a common origin, here their mean: squared distances to any centre, hence variances,
and differences. The matrices do not grow with the length of the texts, and a (text, step) array
never exists: steps are made and used a block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tda_bias.threads import in_threads
from tda_bias.topology.steps import StepGrid

# Step values in double precision that torch works on at a time.
_BLOCK_ELEMENTS = 8_000_000
# Steps that one task of a thread sums over at most, and products, about a millisecond's, that it
# takes at least where a row has fewer.
_TASK_STEPS = 1 << 15
_TASK_PRODUCTS = 8_000_000


@dataclass(frozen=True)
class Gram:
    """Inner products and sums of the sorted sets of some heads and one dimension; on the CPU.

    Attributes:
        products: <f_i - c, f_j - c> / n_steps, c the mean of the step functions of all texts;
            squared attention-weight units.
        sums: Sums of the sets; attention-weight units.
    """

    products: Float64[Tensor, "row text text"]
    sums: Float64[Tensor, "row text"]

    @classmethod
    def joined(cls, parts: Sequence[Gram]) -> Gram:
        """That of the rows of several."""
        if len(parts) == 1:
            return parts[0]
        products, sums = zip(*((part.products, part.sums) for part in parts), strict=True)
        return cls(torch.cat(products), torch.cat(sums))


def gram_matrices(
    values: Float[np.ndarray | Tensor, "row values"],
    offsets: Int[np.ndarray, " text+1"],
    grid: StepGrid,
    *,
    compiled: bool,
) -> Gram:
    """Inner products of the step functions of all pairs of texts, for every row.

    Args:
        values: Sorted sets of all texts one behind the other, one row per head; NumPy where
            ``compiled``.
        offsets: Where the set of each text begins in a row, and where the last ends; no set is
            empty.
        grid: Made for these sizes.
        compiled: Use the kernel, which knows step functions only; otherwise torch, on the device of
            ``values``.
    """
    if compiled and isinstance(values, np.ndarray) and grid.distance == "steps":
        return _compiled(values, offsets, grid)
    return _batched(torch.as_tensor(values), offsets, grid)


def _compiled(values: np.ndarray, offsets: np.ndarray, grid: StepGrid) -> Gram:
    from tda_bias.topology.kernels import kernels

    rows, texts = len(values), len(offsets) - 1
    step = max(1, _TASK_PRODUCTS // (texts * texts * grid.n_steps))
    starts = range(0, grid.n_steps, _TASK_STEPS)
    products = np.empty((len(starts), rows, texts, texts))
    sums = np.empty((rows, texts))
    fill = kernels(values.dtype).fill_gram

    def task(part: slice, piece: int) -> None:
        start = starts[piece]
        last = min(start + _TASK_STEPS, grid.n_steps)
        fill(values[part], offsets, grid.n_steps, start, last, products[piece, part])
        if piece == 0:
            sets = values[part, : offsets[-1]]
            np.add.reduceat(sets, offsets[:-1], axis=1, dtype=np.float64, out=sums[part])

    parts = [slice(start, start + step) for start in range(0, rows, step)]
    in_threads([partial(task, part, piece) for part in parts for piece in range(len(starts))])
    total = products[0] if len(starts) == 1 else products.sum(0)
    total /= grid.n_steps
    return Gram(torch.from_numpy(total), torch.from_numpy(sums))


def _batched(values: Tensor, offsets: np.ndarray, grid: StepGrid) -> Gram:
    rows, texts = len(values), len(offsets) - 1
    sets = [values[:, start:stop] for start, stop in pairwise(offsets)]
    products = values.new_zeros((rows, texts, texts), dtype=torch.float64)
    width = max(1, _BLOCK_ELEMENTS // (rows * texts))
    for start in range(0, grid.n_steps, width):
        stop = min(start + width, grid.n_steps)
        block = torch.stack(
            [grid.columns(of_text.double(), start, stop) for of_text in sets], dim=1
        )
        block -= block.mean(1, keepdim=True)
        products.baddbmm_(block, block.mT)
    sums = torch.stack([of_text.sum(1, dtype=torch.float64) for of_text in sets], dim=1)
    return Gram((products / grid.n_steps).cpu(), sums.cpu())
