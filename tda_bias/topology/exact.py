"""Inner products of sets as they are, without smoothing them to a common number of steps.

A sorted set of m values is a quantile function with m equal steps. Of two sets with n and m values
both functions are constant between the borders i/n and j/m, which cut [0, 1] into n + m - 1 pieces
at most: sums over these are the exact integrals, and the squared distance of two quantile functions
is the squared 2-Wasserstein distance of the sets (each value of a set weighs alike).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

# Values of quantile functions on common pieces, in double precision, that are in memory at a time.
_BLOCK_ELEMENTS = 8_000_000


def exact_gram_matrices(
    values: Float[np.ndarray | Tensor, "row values"],
    offsets: Int[np.ndarray, " text+1"],
    n_steps: int = 0,
) -> tuple[Float64[Tensor, "row text text"], Float64[Tensor, "row text"]]:
    """Inner products of the quantile functions of all pairs of texts, and sums of the sets.

    Args:
        values: Sorted sets of all texts one after the other, one row per head.
        offsets: Where each text's set, which is not empty, begins in a row, and the last ends.
        n_steps: Not read; it is what ``gram_matrices`` smooths to.

    Returns:
        <q_i - c, q_j - c>, c the mean of the quantile functions of all texts, in squared
        attention-weight units, on the CPU; and the sums. Then G_ii + G_jj - 2 G_ij is the squared
        2-Wasserstein distance of the sets of texts i and j.
    """
    rows = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    sizes = np.diff(offsets)
    of_size = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
    largest = max(int(sizes.max()), 1)
    step = max(1, _BLOCK_ELEMENTS // (len(sizes) * 2 * largest))
    products = np.empty((len(rows), len(sizes), len(sizes)))
    sums = np.empty((len(rows), len(sizes)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        sets = {
            size: np.stack([rows[part, offsets[t] : offsets[t + 1]] for t in texts], axis=1).astype(
                np.float64
            )
            for size, texts in of_size.items()
        }
        for size, texts in of_size.items():
            sums[part, texts] = sets[size].sum(-1)
        _fill(products[part], sets, of_size)
    products -= products.mean(-1, keepdims=True)
    products -= products.mean(-2, keepdims=True)
    return torch.from_numpy(products), torch.from_numpy(sums)


def _fill(
    products: Float64[np.ndarray, "row text text"],
    sets: dict[int, Float64[np.ndarray, "row of_size value"]],
    of_size: dict[int, Int[np.ndarray, " of_size"]],
) -> None:
    # About a constant near all of them: what is subtracted later then loses no digits.
    centre = np.mean([values.mean((1, 2)) for values in sets.values()], axis=0)[:, None, None]
    near = {size: values - centre for size, values in sets.items()}
    sizes = list(near)
    for place, size in enumerate(sizes):
        for other in sizes[place:]:
            first, second, width = refinement(size, other)
            block = (near[size][..., first] * width) @ near[other][..., second].swapaxes(1, 2)
            products[:, of_size[size][:, None], of_size[other]] = block
            products[:, of_size[other][:, None], of_size[size]] = block.swapaxes(1, 2)


@cache
def refinement(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pieces on which quantile functions of n and of m values are both constant.

    Returns:
        Of each piece the place of its value in either set, and its width; widths sum to 1.

    Examples:
        >>> first, second, width = refinement(2, 3)
        >>> first, second, width.round(3)
        (array([0, 0, 1, 1]), array([0, 1, 1, 2]), array([0.333, 0.167, 0.167, 0.333]))
    """
    # In units of 1 / (n m), where every border is a whole number.
    borders = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    starts = borders[:-1]
    return starts // m, starts // n, np.diff(borders) / (n * m)
