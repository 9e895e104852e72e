"""Rank correlations over targets or items and their tests by permutation: pure arrays.

Many columns (heads) are held against one quantity under one set of permutations, so that the
largest correlation of each permutation gives family-wise p-values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.stats.resampling import (
    benjamini_hochberg,
    bootstrap_intervals,
    family_wise_share,
    permutation_pvalue,
    permutations_within,
    share_reached,
    spearman,
    standardised_ranks,
    tolerance,
    two_sided_share,
)

# Between head profiles.
Distance = Literal["cosine", "spearman"]
# Permutations are worked off in blocks of so many.
_BLOCK = 500
# Of the bootstrap interval of one correlation.
_BOOTSTRAP = 2000
# What a least-squares fit leaves of ranks is nothing below this share of their number.
_NOTHING = 1e-9


def correlation(
    x: Float[np.ndarray, " target"],
    y: Float[np.ndarray, " target"],
    orders: Int[np.ndarray, "draw target"],
    rng: np.random.Generator,
) -> dict[str, float]:
    """Spearman of two quantities: ``spearman p low high pearson``.

    p is two-sided over the given orders, the interval BCa. Where a quantity does not vary,
    everything is NaN; where no resample varies, the interval is.
    """
    ranks_x, ranks_y = standardised_ranks(x), standardised_ranks(y)
    rho = float(ranks_x @ ranks_y)
    if np.isnan(rho):
        return dict.fromkeys(("spearman", "p", "low", "high", "pearson"), np.nan)

    def statistic(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        # A resample of one value only has no correlation: it counts as none.
        return np.asarray(np.nan_to_num(spearman(a, b)))

    interval = bootstrap_intervals((x, y), statistic, paired=True, n_resamples=_BOOTSTRAP, rng=rng)
    low, high = interval.bca
    return {
        "spearman": rho,
        "p": two_sided_share(ranks_x[orders] @ ranks_y, rho),
        "low": float(low),
        "high": float(high),
        "pearson": float(np.corrcoef(x, y)[0, 1]),
    }


def partial_correlation(
    x: Float[np.ndarray, " target"],
    y: Float[np.ndarray, " target"],
    covariates: Float[np.ndarray, "target covariate"],
    orders: Int[np.ndarray, "draw target"],
) -> dict[str, float]:
    """Correlation of what ranks leave after a least-squares fit on the covariates' ranks.

    Returns:
        ``partial p_partial``; NaN without covariates, with too few targets for them, or where they
        leave nothing.
    """
    if not covariates.shape[1] or len(x) < covariates.shape[1] + 3:
        return {"partial": np.nan, "p_partial": np.nan}
    left_x, left_y = (ranks_without(values[:, None], covariates)[:, 0] for values in (x, y))
    rho = float(left_x @ left_y)
    if np.isnan(rho):
        return {"partial": np.nan, "p_partial": np.nan}
    return {"partial": rho, "p_partial": two_sided_share(left_x[orders] @ left_y, rho)}


def ranks_without(
    values: Float[np.ndarray, "item column"], covariates: Float[np.ndarray, "item covariate"]
) -> Float[np.ndarray, "item column"]:
    """Residuals of each column's ranks on the covariates' ranks, each of length 1.

    A column that the covariates explain wholly, or that holds a NaN, becomes NaN.
    """
    basis = _basis(covariates)
    ranks = stats.rankdata(values, axis=0)
    left = ranks - basis @ (basis.T @ ranks)
    length = np.sqrt((left**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(length > _NOTHING * len(values), left / length, np.nan)


def _basis(covariates: np.ndarray) -> np.ndarray:
    """An orthonormal basis of a constant and the covariates' ranks."""
    ranks = stats.rankdata(covariates, axis=0)
    design = np.column_stack([np.full(len(ranks), 1.0), ranks - ranks.mean(0)])
    left, size, _ = np.linalg.svd(design, full_matrices=False)
    return np.asarray(left[:, size > _NOTHING * size[0]])


@dataclass(frozen=True)
class ColumnTests:
    """Rank correlations of many columns with one quantity.

    Attributes:
        rho: ``(column,)`` Spearman, partial where covariates were given; NaN where a column does
            not vary.
        pvalue: Two-sided, over permutations of the quantity.
        pvalue_max: The same, family-wise over all columns.
        qvalue: Benjamini-Hochberg over all columns.
        needed: The |rho| from which a column has a family-wise p below .05; NaN without any
            defined column.
    """

    rho: Float[np.ndarray, " column"]
    pvalue: Float[np.ndarray, " column"]
    pvalue_max: Float[np.ndarray, " column"]
    qvalue: Float[np.ndarray, " column"]
    needed: float


def column_tests(
    columns: Float[np.ndarray, "item column"],
    quantity: Float[np.ndarray, " item"],
    orders: Int[np.ndarray, "draw item"],
    *,
    covariates: Float[np.ndarray, "item covariate"] | None = None,
) -> ColumnTests:
    """Which columns go with a quantity over items.

    Args:
        columns: One number per item and head.
        quantity: One number per item.
        orders: Permutations of the items, shared by all columns.
        covariates: Numbers per item whose ranks are taken out of both sides. What they explain of
            the quantity stays in place; what they leave is permuted (Freedman & Lane 1983).
    """
    if covariates is None:
        ranks, quantity_ranks = standardised_ranks(columns), standardised_ranks(quantity)
        explained = np.zeros((len(quantity_ranks), 0))
    else:
        ranks = ranks_without(columns, covariates)
        quantity_ranks = ranks_without(quantity[:, None], covariates)[:, 0]
        explained = _basis(covariates)
    defined = ~np.isnan(ranks).any(0) & ~np.isnan(quantity_ranks).any()
    rho = np.full(columns.shape[1], np.nan)
    if not defined.any():
        return ColumnTests(rho, rho, rho, rho, np.nan)
    rho[defined] = quantity_ranks @ ranks[:, defined]
    size = np.abs(rho[defined])
    count, largest = np.zeros(defined.sum()), np.empty(len(orders))
    for start in range(0, len(orders), _BLOCK):
        part = slice(start, start + _BLOCK)
        null = np.abs(_permuted(quantity_ranks, orders[part], explained) @ ranks[:, defined])
        count += (null >= size - tolerance(size)).sum(0)
        largest[part] = null.max(1)
    pvalue, pvalue_max = np.full_like(rho, np.nan), np.full_like(rho, np.nan)
    pvalue[defined] = permutation_pvalue(count, len(orders), exact=False)
    pvalue_max[defined] = family_wise_share(largest, size)
    needed = float(np.quantile(largest, 0.95, method="higher"))
    return ColumnTests(rho, pvalue, pvalue_max, benjamini_hochberg(pvalue), needed)


def _permuted(
    values: np.ndarray, orders: np.ndarray, explained: np.ndarray
) -> Float[np.ndarray, "draw item"]:
    """Permuted residuals, scaled to length 1 after another fit; what it explains may stay in.

    The columns are free of the covariates, so only the length of the residuals matters.
    """
    moved = values[orders]
    if not explained.shape[1]:
        return np.asarray(moved)
    lost = ((moved @ explained) ** 2).sum(1, keepdims=True)
    left = np.sqrt(np.maximum(1 - lost, 0.0))
    return np.asarray(np.divide(moved, left, out=np.zeros_like(moved), where=left > _NOTHING))


def mantel(
    values: Float[np.ndarray, "target head"],
    quantity: Float[np.ndarray, " target"],
    category: Sequence[str],
    *,
    distance: Distance = "cosine",
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Do targets with similar head profiles have similar values? Spearman over pairs of targets.

    Args:
        values: T of every head for every target.
        quantity: One number per target; pairs differ by its absolute difference.
        category: Permutations of targets stay within.
        distance: Of head profiles: 1 - cosine, or 1 - Spearman.
        n_resamples: Permutations.
        rng: The generator they come from.

    Returns:
        ``rho p``, one-sided: similar profiles with similar values.
    """
    profile = standardised_ranks(values, axis=1) if distance == "spearman" else values
    length = np.linalg.norm(profile, axis=1, keepdims=True)
    profile = np.divide(profile, length, out=np.zeros_like(profile), where=length > 0)
    pairs = np.triu_indices(len(values), 1)
    apart = standardised_ranks((1 - profile @ profile.T)[pairs])
    difference = np.abs(quantity[:, None] - quantity[None])
    rank = np.zeros_like(difference)
    rank[pairs] = standardised_ranks(difference[pairs])
    rank += rank.T
    rho = float(rank[pairs] @ apart)
    if np.isnan(rho):
        return {"rho": np.nan, "p": np.nan}
    orders = permutations_within(category, n_resamples, rng)
    null = np.array([rank[o[pairs[0]], o[pairs[1]]] @ apart for o in orders])
    return {"rho": rho, "p": float(share_reached(null, rho))}


def power(n: int) -> dict[str, float]:
    """Power of one correlation over n targets or items.

    Returns:
        ``significant``: the smallest |rho| with p < .05, by the t approximation; ``power_80``: the
        true |rho| that is found four times out of five, by Fisher's z with Fieller's variance.
    """
    t = float(stats.t.ppf(0.975, n - 2))
    z = float(stats.norm.ppf(0.975) + stats.norm.ppf(0.8))
    return {
        "significant": t / np.sqrt(n - 2 + t**2),
        "power_80": float(np.tanh(z * np.sqrt(1.06 / (n - 3)))),
    }
