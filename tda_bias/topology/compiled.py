"""Births and deaths on a processor: compiled kernels, a few matrices per task of a thread."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from tda_bias.threads import Task
from tda_bias.types import InputError

# Pattern entries from which on loading the kernels pays, a second per process: below, torch does
# not use several threads either.
_LARGE = 1 << 15
# Pattern entries of one task: some tenths of a millisecond, and its edges stay in cache.
_TASK_ELEMENTS = 1 << 18


def pays(device: torch.device, n_elements: int) -> bool:
    """True if so many pattern entries on this device are a case for the kernels."""
    return device.type == "cpu" and n_elements >= _LARGE


class Rows(NamedTuple):
    """The place of sorted sets: columns of a contiguous array, a row per matrix.

    Attributes:
        values: The array.
        at: The first column.
    """

    values: Float[np.ndarray, "matrix row"]
    at: int = 0

    def part(self, matrices: slice) -> Rows:
        """The rows of some matrices."""
        return Rows(self.values[matrices], self.at)

    @property
    def bits(self) -> np.ndarray:
        """The array as integers."""
        return self.values.view(_bits_of(self.values.dtype))


def tasks_of(
    patterns: Float[np.ndarray, "matrix query key"],
    births: Rows,
    deaths: Rows,
    *,
    both_directions: bool = False,
    check: bool = False,
) -> list[Task]:
    """Tasks that fill in the births and deaths of patterns, a few matrices each.

    Args:
        patterns: float32 or float64, any strides.
        births: Where the sorted births go.
        deaths: Where the sorted deaths go.
        both_directions: The larger of the weights [i, j] and [j, i] counts; otherwise that of the
            later token i.
        check: Refuse NaN and infinities, wherever they stand.
    """
    matrices, n = patterns.shape[:2]
    step = max(1, _TASK_ELEMENTS // (n * n))
    parts = [slice(start, start + step) for start in range(0, matrices, step)]

    return [
        partial(_fill, patterns[part], births.part(part), deaths.part(part), both_directions, check)
        for part in parts
    ]


def _fill(
    patterns: np.ndarray, births: Rows, deaths: Rows, both_directions: bool, check: bool
) -> None:
    from tda_bias.topology.kernels import kernels

    if check:
        refuse_non_finite(np.isfinite(patterns).all())
    compiled = kernels(patterns.dtype)
    bits = _bits_of(patterns.dtype)
    matrices, n = patterns.shape[:2]
    tree = np.empty((matrices, n - 1), bits)
    edges = np.empty((matrices, n * (n - 1) // 2), bits)
    compiled.maximum_spanning_trees(patterns.view(bits), both_directions, tree, edges)
    # NumPy's sort is written in vector instructions: ten times as fast as what Numba compiles.
    tree.sort(axis=1)
    edges.sort(axis=1)
    compiled.split_edges(edges, tree, births.bits, births.at, deaths.bits, deaths.at)


def _bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def refuse_non_finite(finite: bool | np.bool | torch.Tensor) -> None:
    """Raise unless all weights were finite."""
    if not finite:
        raise InputError("`pattern` holds NaN or infinite attention weights; run in float32")
