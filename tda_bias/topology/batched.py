"""Births and deaths of all matrices at once, in torch: what accelerators run.

Nothing here waits for a device or moves data off it.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

# Elements of the edge-weight matrices that one pass works on. On a processor: large enough that
# the cost of a call does not matter, small enough to stay near its caches. An accelerator has to
# be kept busy by each of the n - 1 steps.
_CHUNK_ELEMENTS = 4_000_000
_CHUNK_ELEMENTS_ON_ACCELERATOR = 128_000_000


def batched_births_deaths(
    weights: Float[Tensor, "text head token token"], lengths: Int[Tensor, " text"]
) -> tuple[Float[Tensor, "text head births"], Float[Tensor, "text head deaths"]]:
    """Sorted births and deaths of padded texts; as ``ragged_births_deaths``.

    Args:
        weights: Symmetric edge weights.
        lengths: Number of tokens of each text, on the CPU.
    """
    text, head, n = weights.shape[:3]
    births = weights.new_empty(text, head, n - 1)
    deaths = weights.new_empty(text, head, (n - 1) * (n - 2) // 2)
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
        # sorts behind every real one.
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


# -- the reference: GUDHI, one matrix at a time ----------------------------------------------------


def gudhi_births_deaths(
    weights: Float[Tensor, "text head token token"], lengths: Int[Tensor, " text"]
) -> tuple[Float[Tensor, "text head births"], Float[Tensor, "text head deaths"]]:
    """Sorted births and deaths of padded texts; as ``ragged_births_deaths``."""
    text, head, n = weights.shape[:3]
    births = weights.new_full((text, head, n - 1), torch.inf)
    deaths = weights.new_full((text, head, (n - 1) * (n - 2) // 2), torch.inf)
    for t, length in enumerate(lengths.tolist()):
        for h in range(head):
            matrix = weights[t, h, :length, :length].double().cpu().numpy()
            components, cycles = _births_deaths(matrix)
            births[t, h, : len(components)] = torch.from_numpy(components)
            deaths[t, h, : len(cycles)] = torch.from_numpy(cycles)
    return births, deaths


def _births_deaths(weights: Float[np.ndarray, "n n"]) -> tuple[np.ndarray, np.ndarray]:
    """The filtration by descending weight."""
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
    return np.sort(-components[np.isfinite(components)]), np.sort(-cycles)
