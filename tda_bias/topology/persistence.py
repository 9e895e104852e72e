"""Attention patterns to births and deaths of the graph filtration, batched over every leading axis.

A pattern is read as a weighted complete graph on its tokens. Dropping edges in ascending weight,
connected components are born at the edges of a maximum spanning tree and cycles die at all the
others; the two sorted sets are the whole persistent homology of the filtration.

Source: Varadarajan & Songdechakraiwut, section 2.1; Songdechakraiwut & Chung (2023) for the
decomposition into births and deaths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.types import Attention, InputError

Array = TypeVar("Array", np.ndarray, Tensor)
Task = Callable[[], None]


@dataclass(frozen=True)
class BirthsDeaths(Generic[Array]):
    """The two sorted sets of a graph filtration.

    Attributes:
        births: Weights of a maximum spanning tree, ascending, shape ``(..., n - 1)``.
        deaths: All other weights, ascending, shape ``(..., (n - 1)(n - 2) / 2)``.
    """

    births: Array
    deaths: Array


def n_births(n_tokens: int) -> int:
    """Number of births of a text of ``n_tokens`` tokens."""
    return max(n_tokens - 1, 0)


def n_deaths(n_tokens: int) -> int:
    """Number of deaths of a text of ``n_tokens`` tokens."""
    return max((n_tokens - 1) * (n_tokens - 2) // 2, 0)


def births_deaths(pattern: Array, *, attention: Attention = "causal") -> BirthsDeaths[Array]:
    """Births and deaths of the graph filtration of attention patterns.

    Compiled on a processor, in torch on accelerators and for a few small matrices: the same to the
    last digit.

    Args:
        pattern: Attention weights ``(..., query, key)``, NumPy or torch, any floating type; half
            precision is computed in float32.
        attention: ``causal`` takes the weight of tokens i < j from ``pattern[j, i]`` and reads
            nothing else; ``bidirectional`` the larger of ``pattern[i, j]`` and ``pattern[j, i]``.

    Returns:
        Sorted births ``(..., n - 1)`` and deaths ``(..., (n - 1)(n - 2) / 2)``, attention-weight
        units, of the kind that came in. One token gives two empty sets, two give no deaths.

    Raises:
        InputError: if the pattern is not square, is empty, is not of a floating type, or holds NaN
            or infinities; or if ``attention`` is neither of the two.
    """
    if isinstance(pattern, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(pattern))
        sets = births_deaths(tensor, attention=attention)
        return BirthsDeaths(sets.births.numpy(), sets.deaths.numpy())
    _check(pattern, attention)
    leading, n = pattern.shape[:-2], pattern.shape[-1]
    flat = pattern.detach().reshape(leading.numel(), n, n)
    if pays(flat.device, flat.numel()):
        births, deaths = _compiled(flat, attention)
    else:
        _refuse_non_finite(torch.isfinite(flat).all())
        weights = edge_weights(flat.unsqueeze(1), attention)
        births, deaths = padded_births_deaths(weights, torch.full((len(flat),), n))
    return BirthsDeaths(births.reshape(*leading, -1), deaths.reshape(*leading, -1))


def _check(pattern: Tensor, attention: str) -> None:
    if attention not in get_args(Attention):
        allowed = ", ".join(get_args(Attention))
        raise InputError(f"`attention` must be one of {allowed}; got {attention!r}")
    if pattern.ndim < 2 or pattern.shape[-1] != pattern.shape[-2] or pattern.shape[-1] == 0:
        shape = tuple(pattern.shape)
        raise InputError(f"`pattern` must have the shape (..., n, n) with n >= 1; got {shape}")
    if not pattern.is_floating_point():
        raise InputError(f"`pattern` must hold floating-point numbers; got {pattern.dtype}")


def _compiled(
    pattern: Float[Tensor, "matrix query key"], attention: Attention
) -> tuple[Tensor, Tensor]:
    weights = at_least_single(pattern)
    matrices, n = weights.shape[:2]
    births = weights.new_empty(matrices, n_births(n))
    deaths = weights.new_empty(matrices, n_deaths(n))
    rows = Rows(births.numpy()), Rows(deaths.numpy())
    in_threads(tasks_of(weights.numpy(), *rows, attention, check=True))
    return births, deaths


def at_least_single(pattern: Tensor) -> Tensor:
    """The pattern in single or double precision."""
    return pattern if pattern.dtype in (torch.float32, torch.float64) else pattern.float()


def edge_weights(
    pattern: Float[Tensor, "... query key"], attention: Attention
) -> Float[Tensor, "... token token"]:
    """The symmetric matrix of edge weights of a pattern; its diagonal carries no meaning."""
    pattern = at_least_single(pattern)
    if attention == "bidirectional":
        return torch.maximum(pattern, pattern.mT)
    token = torch.arange(pattern.shape[-1], device=pattern.device)
    return torch.where(token[:, None] > token, pattern, pattern.mT)


# -- all matrices at once, in torch: what accelerators run -----------------------------------------

# Nothing here waits for a device or moves data off it.

# Elements of the edge-weight matrices that one pass works on: near a processor's caches; enough to
# keep an accelerator busy in each of the n - 1 steps.
_CHUNK_ELEMENTS = 4_000_000
_CHUNK_ELEMENTS_ON_ACCELERATOR = 128_000_000


def padded_births_deaths(
    weights: Float[Tensor, "text head token token"], lengths: Int[Tensor, " text"]
) -> tuple[Float[Tensor, "text head births"], Float[Tensor, "text head deaths"]]:
    """Births and deaths of texts of different lengths that share one padded batch.

    Args:
        weights: Symmetric edge weights; whatever stands at or beyond a text's length is ignored.
        lengths: Number of tokens of each text, at least 1, on the CPU.

    Returns:
        Sorted along the last axis and padded with ``inf`` at its end: a text of n tokens has its
        ``n_births(n)`` and ``n_deaths(n)`` values first.
    """
    text, head, n = weights.shape[:3]
    births = weights.new_empty(text, head, n_births(n))
    deaths = weights.new_empty(text, head, n_deaths(n))
    on_processor = weights.device.type == "cpu"
    elements = _CHUNK_ELEMENTS if on_processor else _CHUNK_ELEMENTS_ON_ACCELERATOR
    step = max(1, elements // max(1, head * n * n))
    for start in range(0, text, step):
        part = slice(start, start + step)
        births[part], deaths[part] = _tree_and_rest(weights[part], lengths[part])
    return births, deaths


def _tree_and_rest(weights: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    text, head, n = weights.shape[:3]
    padded = int(lengths.min()) < n
    lengths = lengths.to(weights.device)
    matrices = weights.reshape(text * head, n, n)
    births = maximum_spanning_trees(matrices, lengths.repeat_interleave(head))
    row, column = torch.tril_indices(n, n, -1, device=weights.device)
    entry = (row * n + column).expand(text * head, -1)
    edges = matrices.flatten(1).gather(1, entry).reshape(text, head, -1)
    if padded:
        # The later token of an edge stands at ``row``: padding makes an edge of weight inf, which
        # sorts after every real one.
        edges.masked_fill_(row >= lengths[:, None, None], torch.inf)
    births, edges = _ascending(births), _ascending(edges.flatten(0, 1))
    rest = _without(edges, births)
    return births.reshape(text, head, -1), rest.reshape(text, head, -1)


def maximum_spanning_trees(
    weights: Float[Tensor, "matrix n n"], lengths: Int[Tensor, " matrix"]
) -> Float[Tensor, "matrix n-1"]:
    """Prim's algorithm on all matrices at once: n - 1 steps of O(n) work each, in tree order.

    Tokens at or beyond a matrix's length count as reached from the start; once the others are, the
    remaining births are inf.
    """
    matrices, n = weights.shape[:2]
    every = torch.arange(matrices, device=weights.device)
    births = weights.new_empty(matrices, n - 1)
    reached = torch.arange(n, device=weights.device) >= lengths[:, None]
    reached[:, 0] = True
    nearest = weights[:, 0].masked_fill(reached, -torch.inf)
    for step in range(n - 1):
        births[:, step], token = nearest.max(dim=1)
        if step == n - 2:
            break
        reached[every, token] = True
        torch.maximum(nearest, weights[every, token], out=nearest)
        nearest.masked_fill_(reached, -torch.inf)
    return births.masked_fill_(torch.isneginf(births), torch.inf)


def _ascending(values: Tensor) -> Tensor:
    if values.device.type == "cpu":
        # NumPy's sort is written in vector instructions and does not return the permutation.
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(dim=-1).values


def _without(
    edges: Float[Tensor, "matrix edges"], births: Float[Tensor, "matrix births"]
) -> Float[Tensor, "matrix deaths"]:
    """The multiset difference of two ascending sets, the second contained in the first."""
    # The k-th of several equal births takes the k-th of the equal edges.
    birth = torch.arange(births.shape[1], device=births.device)
    first_equal = torch.searchsorted(births, births)
    taken = torch.searchsorted(edges, births) + birth - first_equal
    # taken - birth edges that stay lie before a taken one, which puts later ones off by one.
    death = torch.arange(edges.shape[1] - births.shape[1], device=births.device)
    death = death.expand(len(edges), -1).contiguous()
    return edges.gather(1, death + torch.searchsorted(taken - birth, death, right=True))


# -- compiled kernels, a few matrices per task of a thread -----------------------------------------


# Pattern entries from which on loading the kernels pays, a second per process: below, torch does
# not use several threads either.
_LARGE = 1 << 15
# Pattern entries of one task: some tenths of a millisecond, and its edges stay in cache.
_TASK_ELEMENTS = 1 << 18


def pays(device: torch.device, n_elements: int) -> bool:
    """True if so many pattern entries on this device are a case for the kernels."""
    return device.type == "cpu" and n_elements >= _LARGE


def in_threads(tasks: Sequence[Task]) -> None:
    """Run tasks that release the interpreter most of their time, in as many threads as torch uses.

    Each thread takes the next task when it is done with its last, so that a busy core holds nobody
    up. Torch's own threads are shared out meanwhile.

    Raises:
        Exception: the first that a task raised, in their order; tasks not yet started are dropped.
    """
    before = torch.get_num_threads()
    threads = min(before, len(tasks))
    if threads <= 1:
        for task in tasks:
            task()
        return
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(max(1, before // threads))
    try:
        for future in [pool.submit(task) for task in tasks]:
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)


class Rows(NamedTuple):
    """The place of sorted sets: columns from ``at`` on of a contiguous array, a row per matrix."""

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
    attention: Attention,
    *,
    check: bool = False,
) -> list[Task]:
    """Tasks that fill in the births and deaths of patterns, a few matrices each.

    Patterns may have any strides; ``check`` refuses NaN and infinities, wherever they stand.
    """
    matrices, n = patterns.shape[:2]
    step = max(1, _TASK_ELEMENTS // (n * n))
    parts = [slice(start, start + step) for start in range(0, matrices, step)]
    take_larger = attention == "bidirectional"
    return [
        partial(_fill, patterns[part], births.part(part), deaths.part(part), take_larger, check)
        for part in parts
    ]


def _fill(patterns: np.ndarray, births: Rows, deaths: Rows, take_larger: bool, check: bool) -> None:
    from tda_bias.topology.kernels import kernels

    if check:
        _refuse_non_finite(np.isfinite(patterns).all())
    compiled = kernels(patterns.dtype)
    bits = _bits_of(patterns.dtype)
    matrices, n = patterns.shape[:2]
    tree = np.empty((matrices, n - 1), bits)
    edges = np.empty((matrices, n * (n - 1) // 2), bits)
    compiled.maximum_spanning_trees(patterns.view(bits), take_larger, tree, edges)
    # NumPy's sort is written in vector instructions: ten times as fast as what Numba compiles.
    tree.sort(axis=1)
    edges.sort(axis=1)
    compiled.split_edges(edges, tree, births.bits, births.at, deaths.bits, deaths.at)


def _bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


def _refuse_non_finite(finite: bool | np.bool | torch.Tensor) -> None:
    if not finite:
        raise InputError("`pattern` holds NaN or infinite attention weights; run in float32")
