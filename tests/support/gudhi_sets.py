"""Births and deaths by GUDHI, one matrix at a time: the reference."""

import gudhi
import numpy as np


def gudhi_sets(pattern, attention="causal"):
    """Sorted births and deaths of the filtration by descending weight, ``(..., values)``."""
    pattern = np.asarray(pattern)
    n = pattern.shape[-1]
    flipped = np.swapaxes(pattern, -1, -2)
    weights = np.maximum(pattern, flipped) if attention == "bidirectional" else pattern
    sets = [_filtered(one) for one in weights.reshape(-1, n, n)]
    births, deaths = (np.stack(values) for values in zip(*sets, strict=True))
    leading = pattern.shape[:-2]
    return births.reshape(*leading, -1), deaths.reshape(*leading, -1)


def _filtered(weights):
    n = len(weights)
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
