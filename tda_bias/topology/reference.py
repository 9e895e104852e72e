"""Births and deaths by GUDHI's persistent cohomology, one matrix at a time: the reference."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


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
