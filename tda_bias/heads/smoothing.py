"""What smoothing births and deaths to one number of steps costs, measured on one group of a run."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.group_statistic import GroupLayout, statistic_from_gram, unstable_heads
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.store.record import Number, RecordPart
from tda_bias.topology.vectors import Sampler


class SmoothingRecord(RecordPart):
    """S of all heads of a group by smoothed and by exact distances, both dimensions together.

    ``size`` is the median of |S|, ``change`` that of its changes, ``largest`` the largest change in
    a stable head, ``rank_correlation`` Spearman's of |S|.
    """

    group: str
    size: Number
    change: Number
    largest: Number
    rank_correlation: Number


def statistics_of(
    sampler: Sampler, layout: GroupLayout, n_layers: int
) -> Float[np.ndarray, "dim layer head"]:
    """S of every head of a group whose texts a sampler has taken in."""
    by_dim = zip(
        *(
            [statistic_from_gram(gram.numpy(), layout).S for gram, _ in dims]
            for dims in sampler.layers()
        ),
        strict=True,
    )
    return np.stack([np.concatenate(of_dim).reshape(n_layers, -1) for of_dim in by_dim])


def smoothing_record(result: GroupResult) -> SmoothingRecord | None:
    """The cost of smoothing in a group; None where it was not measured, or S is of pairs."""
    smoothed, exact = result.statistic.S, result.exact
    if exact is None or not np.isfinite(smoothed).any():
        return None
    change, sizes = np.abs(smoothed - exact), (np.abs(smoothed).ravel(), np.abs(exact).ravel())
    stable = ~unstable_heads(result.statistic.var_unrelated)
    return SmoothingRecord(
        group=result.group,
        size=float(np.nanmedian(sizes[1])),
        change=float(np.nanmedian(change)),
        largest=float(np.nanmax(np.where(stable, change, np.nan))),
        rank_correlation=spearman_over_items(*sizes),
    )
