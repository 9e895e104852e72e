"""The topology's inner loops on a processor, compiled by Numba: one matrix at a time, in cache.

Importing this module takes half a second, so what needs it imports it when it computes. The first
call on a machine compiles for a few seconds; the machine code stays where Numba keeps it (beside
this file, else in the user's cache folder, or in ``NUMBA_CACHE_DIR``).

Weights are compared as integers. The bits of a floating-point number, with all but the sign turned
around in negative ones, are ordered as the numbers are; and a maximum of integers, unlike one of
floating-point numbers, may be taken in any order, so the compiler makes vector instructions of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from filelock import FileLock
from jaxtyping import Float, Int

# Doubles of centred step functions that are worked on at a time: half a megabyte stays in cache.
_BLOCK_ELEMENTS = 1 << 16
# Sums may be taken in any order and with fused multiplication; nothing else is given up.
_ANY_ORDER = {"reassoc", "contract", "nsz"}


# -- trees -----------------------------------------------------------------------------------------


def maximum_spanning_trees(
    patterns: Int[np.ndarray, "matrix query key"],
    take_larger: bool,
    births: Int[np.ndarray, "matrix births"],
    edges: Int[np.ndarray, "matrix edges"],
) -> None:
    """Prim's algorithm, n - 1 steps of O(n) work, on the bits of attention weights.

    Args:
        patterns: Weights of query i and key j < i; all others are read only with
            ``take_larger``, which takes the larger of [i, j] and [j, i]. Any strides.
        take_larger: Whether attention goes both ways and the larger weight counts.
        births: Filled with the keys of the tree's weights, in the order of the tree.
        edges: Filled with the keys of all weights.
    """
    n = patterns.shape[1]
    lowest, highest = np.iinfo(patterns.dtype).min, np.iinfo(patterns.dtype).max
    sign = 8 * patterns.itemsize - 1
    # An odd number of cache lines per row: a column then falls on all sets of the cache.
    width = ((n + 15) // 16 | 1) * 16
    weights = np.empty((n, width), patterns.dtype)
    nearest = np.empty(n, patterns.dtype)
    ceiling = np.empty(n, patterns.dtype)
    for matrix in range(len(patterns)):
        edge = 0
        for i in range(n):
            for j in range(i):
                weight = patterns[matrix, i, j]
                weight ^= (weight >> sign) & highest
                if take_larger:
                    other = patterns[matrix, j, i]
                    other ^= (other >> sign) & highest
                    weight = max(weight, other)
                weights[i, j] = weight
                weights[j, i] = weight
            for j in range(i):
                edges[matrix, edge + j] = weights[i, j]
            edge += i
        nearest[:] = lowest
        ceiling[:] = highest
        token = 0
        for step in range(n - 1):
            ceiling[token] = lowest  # reached: never the farthest again
            row = weights[token]
            best = lowest
            for j in range(n):
                nearer = min(max(nearest[j], row[j]), ceiling[j])
                nearest[j] = nearer
                best = max(best, nearer)
            births[matrix, step] = best
            token = 0
            while nearest[token] != best or ceiling[token] == lowest:
                token += 1


def split_edges(
    edges: Int[np.ndarray, "matrix edges"],
    births: Int[np.ndarray, "matrix births"],
    births_out: Int[np.ndarray, "matrix row"],
    births_at: int,
    deaths_out: Int[np.ndarray, "matrix row"],
    deaths_at: int,
) -> None:
    """Ascending keys to the bits of ascending births and deaths: the edges that are no births.

    Args:
        edges: Keys of all edges, ascending.
        births: Keys of the births, ascending.
        births_out: Filled with births from column ``births_at`` on.
        births_at: See there.
        deaths_out: Filled with deaths from column ``deaths_at`` on; may be the same array.
        deaths_at: See there.
    """
    n_edges, n_births = edges.shape[1], births.shape[1]
    highest = np.iinfo(edges.dtype).max
    sign = 8 * edges.itemsize - 1
    for matrix in range(len(edges)):
        start = 0
        for birth in range(n_births + 1):
            end = n_edges
            if birth < n_births:
                key = births[matrix, birth]
                births_out[matrix, births_at + birth] = key ^ ((key >> sign) & highest)
                # The first edge that is not smaller. After an equal birth this is the next of the
                # equal edges.
                low = start
                while low < end:
                    middle = (low + end) // 2
                    if edges[matrix, middle] < key:
                        low = middle + 1
                    else:
                        end = middle
            to = deaths_at - birth
            for edge in range(start, end):
                key = edges[matrix, edge]
                deaths_out[matrix, to + edge] = key ^ ((key >> sign) & highest)
            start = end + 1


# -- Gram matrices ---------------------------------------------------------------------------------


def fill_gram(
    values: Float[np.ndarray, "row values"],
    offsets: Int[np.ndarray, " texts+1"],
    n_steps: int,
    first: int,
    last: int,
    gram: Float[np.ndarray, "row text text"],
) -> None:
    """Sums of products of centred step functions over some of their steps, in blocks.

    Args:
        values: The sorted sets of all texts one after the other, none empty.
        offsets: Where the set of each text begins in a row, and where the last ends.
        n_steps: Number of steps, at least the size of the largest set.
        first: The first of the steps that are summed over.
        last: The step after their last.
        gram: Filled with the sums of products of the step functions minus their mean over texts.
    """
    texts = len(offsets) - 1
    padded = (texts + 3) // 4 * 4  # products are taken of two and four texts at a time
    width = min(max(64, _BLOCK_ELEMENTS // padded), last - first)
    block = np.zeros((padded, width))
    mean = np.empty(width)
    products = np.empty((padded, padded))
    for row in range(len(values)):
        products[:] = 0.0
        for start in range(first, last, width):
            stop = min(start + width, last)
            mean[:] = 0.0
            for text in range(texts):
                steps = block[text, : stop - start]
                _write_steps(values[row, offsets[text] : offsets[text + 1]], n_steps, start, steps)
                for k in range(stop - start):
                    mean[k] += steps[k]
            for k in range(stop - start):
                mean[k] /= texts
            for text in range(texts):
                for k in range(stop - start):
                    block[text, k] -= mean[k]
            _add_products(block, stop - start, products)
        for i in range(texts):
            for j in range(i + 1):
                gram[row, i, j] = products[i, j]
                gram[row, j, i] = products[i, j]


# Only other kernels call these two: they need no types and no file of their own.
@numba.njit(nogil=True)
def _write_steps(
    values: Float[np.ndarray, " size"], n_steps: int, start: int, out: Float[np.ndarray, " width"]
) -> None:
    """Steps ``start``, ... of a set's step function; as ``step_function`` for size <= n_steps."""
    size = len(values)
    whole = start * size // n_steps
    part = start * size - whole * n_steps
    share = 1.0 / size
    for k in range(len(out)):
        left = np.float64(values[whole])
        part += size
        beyond = 1 if part >= n_steps else 0
        part -= beyond * n_steps
        whole += beyond
        right = np.float64(values[min(whole, size - 1)])
        # Where the step ends in the same value, ``right`` is ``left``.
        out[k] = left + part * beyond * share * (right - left)


@numba.njit(nogil=True, fastmath=_ANY_ORDER)
def _add_products(
    block: Float[np.ndarray, "text step"], width: int, products: Float[np.ndarray, "text text"]
) -> None:
    """Add the inner products of rows, in tiles of two by four, on and below the diagonal."""
    for i in range(0, len(block), 2):
        for j in range(0, i + 1, 4):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for k in range(width):
                a, b = block[i, k], block[i + 1, k]
                c0, c1, c2, c3 = block[j, k], block[j + 1, k], block[j + 2, k], block[j + 3, k]
                a0 += a * c0
                a1 += a * c1
                a2 += a * c2
                a3 += a * c3
                b0 += b * c0
                b1 += b * c1
                b2 += b * c2
                b3 += b * c3
            products[i, j] += a0
            products[i, j + 1] += a1
            products[i, j + 2] += a2
            products[i, j + 3] += a3
            products[i + 1, j] += b0
            products[i + 1, j + 1] += b1
            products[i + 1, j + 2] += b2
            products[i + 1, j + 3] += b3


# -- compilation -----------------------------------------------------------------------------------


class Kernels(NamedTuple):
    """The compiled functions for one type of attention weights; none holds the interpreter."""

    maximum_spanning_trees: Callable[..., None]
    split_edges: Callable[..., None]
    fill_gram: Callable[..., None]


@cache
def kernels(dtype: np.dtype[Any]) -> Kernels:
    """The kernels for ``float32`` or ``float64``, compiled or read from the cache."""
    bits = numba.from_dtype(np.dtype(f"i{dtype.itemsize}"))
    weight, index = numba.from_dtype(dtype), numba.intp
    rows = bits[:, ::1]
    return Kernels(
        _compiled(maximum_spanning_trees, bits[:, :, :], numba.boolean, rows, rows),
        _compiled(split_edges, rows, rows, rows, index, rows, index),
        _compiled(
            fill_gram,
            *(weight[:, ::1], index[::1]),
            *(index, index, index),
            numba.float64[:, :, ::1],
        ),
    )


def _compiled(function: Callable[..., None], *types: Any) -> Callable[..., None]:
    lock: AbstractContextManager[Any] = nullcontext()
    kernel: Any
    try:
        kernel = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder can be written: every process compiles for itself
        kernel = numba.njit(nogil=True)(function)
    else:
        # Of two processes that add to the index at the same time, one would find the other's
        # machine code under its own type or processor.
        lock = FileLock(Path(kernel.stats.cache_path) / f"{function.__name__}.lock")
    with lock:
        kernel.compile(types)
    compiled: Callable[..., None] = kernel
    return compiled
