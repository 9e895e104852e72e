"""Attention patterns to births and deaths of the graph filtration, batched over every leading axis.

A pattern is read as a weighted complete graph on its tokens. Dropping edges in ascending weight,
connected components are born at the edges of a maximum spanning tree and cycles die at all the
others; the two sorted sets are the whole persistent homology of the filtration.

Source: Varadarajan & Songdechakraiwut, section 2.1; Songdechakraiwut & Chung (2023) for the
decomposition into births and deaths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.types import Attention, Backend, Combine, InputError

Array = TypeVar("Array", np.ndarray, Tensor)

# Elements of the edge-weight matrices that one pass of the batched tree works on: large enough
# that the cost of a call does not matter, small enough to stay near the processor's caches.
_CHUNK_ELEMENTS = 4_000_000


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


def births_deaths(
    pattern: Array,
    *,
    attention: Attention = "causal",
    combine: Combine = "max",
    backend: Backend = "mst",
) -> BirthsDeaths[Array]:
    """Births and deaths of the graph filtration of attention patterns.

    Args:
        pattern: Attention weights ``(..., query, key)``, NumPy or torch, any floating type; half
            precision is computed in float32.
        attention: ``causal`` takes the weight of tokens i < j from ``pattern[j, i]`` and reads
            nothing else; ``bidirectional`` combines ``pattern[i, j]`` and ``pattern[j, i]``.
        combine: How the two directions are combined: the larger, or the mean.
        backend: ``mst`` is the batched tree; ``gudhi`` the reference, one matrix at a time.

    Returns:
        Sorted births ``(..., n - 1)`` and deaths ``(..., (n - 1)(n - 2) / 2)``, attention-weight
        units, of the kind that came in. One token gives two empty sets, two give no deaths.

    Raises:
        InputError: if the pattern is not square, is empty, holds NaN or infinities, or an option
            is unknown.

    Examples:
        Three tokens: the maximum spanning tree keeps .7 and .5, the edge of .2 closes a cycle.

        >>> pattern = np.array([[1.0, 0.0, 0.0], [0.7, 0.3, 0.0], [0.2, 0.5, 0.3]])
        >>> births_deaths(pattern, attention="causal")
        BirthsDeaths(births=array([0.5, 0.7]), deaths=array([0.2]))
    """
    if isinstance(pattern, np.ndarray):
        found = births_deaths(
            torch.from_numpy(np.ascontiguousarray(pattern)),
            attention=attention,
            combine=combine,
            backend=backend,
        )
        return BirthsDeaths(found.births.numpy(), found.deaths.numpy())
    _check(pattern, attention, combine, backend)
    leading, n = pattern.shape[:-2], pattern.shape[-1]
    lengths = torch.full((leading.numel(),), n)
    flat = pattern.reshape(leading.numel(), 1, n, n)
    weights = edge_weights(flat, attention=attention, combine=combine)
    found = ragged_births_deaths(weights, lengths, backend=backend)
    return BirthsDeaths(found.births.reshape(*leading, -1), found.deaths.reshape(*leading, -1))


def _check(pattern: Tensor, attention: str, combine: str, backend: str) -> None:
    for name, value, allowed in (
        ("attention", attention, get_args(Attention)),
        ("combine", combine, get_args(Combine)),
        ("backend", backend, get_args(Backend)),
    ):
        if value not in allowed:
            raise InputError(f"`{name}` must be one of {', '.join(allowed)}; got {value!r}")
    if pattern.ndim < 2 or pattern.shape[-1] != pattern.shape[-2] or pattern.shape[-1] == 0:
        shape = tuple(pattern.shape)
        raise InputError(f"`pattern` must have the shape (..., n, n) with n >= 1; got {shape}")
    if not pattern.is_floating_point():
        raise InputError(f"`pattern` must hold floating-point numbers; got {pattern.dtype}")
    if not torch.isfinite(pattern).all():
        raise InputError("`pattern` holds NaN or infinite attention weights; run in float32")


def edge_weights(
    pattern: Float[Tensor, "... query key"], *, attention: Attention, combine: Combine
) -> Float[Tensor, "... token token"]:
    """The symmetric matrix of edge weights of a pattern; its diagonal carries no meaning."""
    if pattern.dtype in (torch.float16, torch.bfloat16):
        pattern = pattern.float()
    if attention == "causal":
        n = pattern.shape[-1]
        token = torch.arange(n, device=pattern.device)
        return torch.where(token[:, None] > token, pattern, pattern.mT)
    if combine == "max":
        return torch.maximum(pattern, pattern.mT)
    return (pattern + pattern.mT) / 2


def ragged_births_deaths(
    weights: Float[Tensor, "text head token token"],
    lengths: Int[Tensor, " text"],
    *,
    backend: Backend = "mst",
) -> BirthsDeaths[Tensor]:
    """Births and deaths of texts of different lengths that share one padded batch.

    Args:
        weights: Symmetric edge weights; whatever stands at or beyond a text's length is ignored.
        lengths: Number of tokens of each text, at least 1.
        backend: As in ``births_deaths``.

    Returns:
        Sorted along the last axis and padded with ``inf`` at its end: a text of n tokens has its
        ``n_births(n)`` and ``n_deaths(n)`` values first.
    """
    text, head, n = weights.shape[:3]
    if backend == "gudhi":
        return _ragged_gudhi(weights, lengths)
    births = weights.new_empty(text, head, n_births(n))
    deaths = weights.new_empty(text, head, n_deaths(n))
    step = max(1, _CHUNK_ELEMENTS // max(1, head * n * n))
    for start in range(0, text, step):
        part = slice(start, start + step)
        births[part], deaths[part] = _tree_and_rest(weights[part], lengths[part])
    return BirthsDeaths(births, deaths)


def _tree_and_rest(weights: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    text, head, n = weights.shape[:3]
    lengths = lengths.to(weights.device)
    matrices = weights.reshape(text * head, n, n)
    births = _maximum_spanning_tree(matrices, lengths.repeat_interleave(head))
    row, column = torch.tril_indices(n, n, -1, device=weights.device)
    entry = (row * n + column).expand(text * head, -1)
    edges = matrices.flatten(1).gather(1, entry).reshape(text, head, -1)
    if int(lengths.min()) < n:
        # The later token of an edge stands at ``row``: padding makes an edge of weight inf, which
        # sorts behind every real one.
        edges.masked_fill_(row >= lengths[:, None, None], torch.inf)
    births, edges = _ascending(births), _ascending(edges.flatten(0, 1))
    rest = _without(edges, births)
    return births.reshape(text, head, -1), rest.reshape(text, head, -1)


def _maximum_spanning_tree(
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
        # NumPy's sort is vectorised and some ten times faster here than torch's, which also
        # returns the permutation.
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(dim=-1).values


def _without(
    edges: Float[Tensor, "matrix edges"], births: Float[Tensor, "matrix births"]
) -> Float[Tensor, "matrix deaths"]:
    """The multiset difference of two ascending sets, the second contained in the first."""
    # The k-th of several equal births takes the k-th of the equal edges.
    first_equal = torch.searchsorted(births, births)
    rank = torch.arange(births.shape[1], device=births.device) - first_equal
    taken = torch.searchsorted(edges, births) + rank
    rest = _ascending(edges.scatter(1, taken, torch.inf))
    return rest[:, : edges.shape[1] - births.shape[1]]


def _ragged_gudhi(weights: Tensor, lengths: Tensor) -> BirthsDeaths[Tensor]:
    text, head, n = weights.shape[:3]
    births = weights.new_full((text, head, n_births(n)), torch.inf)
    deaths = weights.new_full((text, head, n_deaths(n)), torch.inf)
    for t, length in enumerate(lengths.tolist()):
        for h in range(head):
            found = _gudhi_single(weights[t, h, :length, :length].double().cpu().numpy())
            births[t, h, : n_births(length)] = torch.from_numpy(found.births)
            deaths[t, h, : n_deaths(length)] = torch.from_numpy(found.deaths)
    return BirthsDeaths(births, deaths)


def _gudhi_single(weights: Float[np.ndarray, "n n"]) -> BirthsDeaths[np.ndarray]:
    """One matrix through GUDHI's persistent cohomology of the filtration by descending weight."""
    import gudhi

    n = weights.shape[0]
    tree = gudhi.SimplexTree()
    # GUDHI ends the process on an edge that appears before its vertices: they come first of all.
    before_all = -float(weights.max()) - 1.0
    for token in range(n):
        tree.insert([token], filtration=before_all)
    for later in range(1, n):
        for earlier in range(later):
            tree.insert([earlier, later], filtration=-float(weights[later, earlier]))
    tree.compute_persistence(min_persistence=-1.0, persistence_dim_max=True)
    components = tree.persistence_intervals_in_dimension(0).reshape(-1, 2)[:, 1]
    cycles = tree.persistence_intervals_in_dimension(1).reshape(-1, 2)[:, 0]
    return BirthsDeaths(np.sort(-components[np.isfinite(components)]), np.sort(-cycles))
