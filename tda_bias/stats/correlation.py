"""Correlations, mostly of ranks: what exchanged items show, many columns at once, and power.

Items are exchanged within strata: categories, targets and layers differ for reasons of their own.
Pure arrays in, numbers out. A value is undefined (NaN) where it cannot be computed, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import stats

from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tda_bias.stats.resampling import (
    benjamini_hochberg,
    family_wise_share,
    permutation_pvalue,
    share_reached,
    threshold,
    two_sided_share,
)

# How an order is drawn. Both give every order alike probably, and another one for a seed.
Drawn = Literal["by sorting", "by shuffling"]
# Permutations are worked off in blocks of so many.
_BLOCK = 500
# What a least-squares fit leaves of ranks is nothing below this share of their number.
_NOTHING = 1e-9
# A correlation nearer to 1 differs from it by rounding.
_PERFECT = 1e-12


# -- one correlation -------------------------------------------------------------------------------


def standardised_ranks(values: Float[np.ndarray, "..."], axis: int = 0) -> Float[np.ndarray, "..."]:
    """Ranks (ties share the mean rank) with mean 0 and length 1: products are Spearman's rho.

    A line that is constant or holds a NaN becomes NaN.

    Examples:
        >>> x, y = np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])
        >>> round(float(standardised_ranks(x) @ standardised_ranks(y)), 3)
        0.5
    """
    ranks = stats.rankdata(values, axis=axis)
    ranks = ranks - ranks.mean(axis, keepdims=True)
    length = np.sqrt((ranks**2).sum(axis, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(length > 0, ranks / length, np.nan))


def spearman(
    x: Float[np.ndarray, "... item"], y: Float[np.ndarray, "... item"]
) -> Float[np.ndarray, "..."]:
    """Spearman along the last axis over items defined in every row.

    NaN with fewer than 3 such items, and for rows that do not vary over them.

    Raises:
        ValueError: if the shapes do not fit together.
    """
    x, y = np.broadcast_arrays(x, y)
    defined = (np.isfinite(x) & np.isfinite(y)).reshape(-1, x.shape[-1]).all(0)
    if defined.sum() < 3:
        return np.full(x.shape[:-1], np.nan)
    first, second = (standardised_ranks(values[..., defined], axis=-1) for values in (x, y))
    return np.asarray((first * second).sum(-1))


def spearman_over_items(x: ArrayLike, y: ArrayLike) -> float:
    """``spearman`` of two lines of items (groups, heads, targets)."""
    return float(spearman(np.asarray(x, float), np.asarray(y, float)))


def spearman_limits(rho: float, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a rank correlation over n clusters with one value each; NaN where all agree.

    On Fisher's scale; a jackknife covers too little there.

    Source: Bonett & Wright (2000).

    Examples:
        >>> low, high = spearman_limits(0.5, 19)
        >>> round(low, 2), round(high, 2)
        (0.03, 0.79)
    """
    if n < FEWEST_CLUSTERS or 1 - abs(rho) < _PERFECT:
        return float("nan"), float("nan")
    half = stats.norm.ppf((1 + confidence) / 2) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(rho) + half * np.array([-1, 1]))
    return float(low), float(high)


def power(n: int) -> dict[str, float]:
    """Power of one correlation over n targets or items.

    Returns:
        ``significant``: the smallest |rho| with p < .05, by the t approximation; ``power_80``: the
        true |rho| that is found four times out of five, by Fisher's z with Fieller's variance.
        Undefined (NaN) below four, where neither can be known.

    Examples:
        >>> round(power(30)["power_80"], 2)
        0.5
    """
    if n < 4:
        return {"significant": np.nan, "power_80": np.nan}
    t = float(stats.t.ppf(0.975, n - 2))
    z = float(stats.norm.ppf(0.975) + stats.norm.ppf(0.8))
    return {
        "significant": t / np.sqrt(n - 2 + t**2),
        "power_80": float(np.tanh(z * np.sqrt(1.06 / (n - 3)))),
    }


# -- exchanged items -------------------------------------------------------------------------------


def permutations_within(
    strata: Sequence[str] | np.ndarray,
    n: int,
    rng: np.random.Generator,
    *,
    drawn: Drawn = "by sorting",
) -> Int[np.ndarray, "draw item"]:
    """Random orders of items that exchange items of the same stratum only.

    Args:
        strata: The stratum of every item.
        n: Orders.
        rng: Of the draws.
        drawn: How: it decides which orders a seed gives, and nothing else.

    Examples:
        >>> orders = permutations_within(["a", "b", "a"], 50, np.random.default_rng(0))
        >>> np.unique(orders, axis=0).tolist()
        [[0, 1, 2], [2, 1, 0]]
    """
    labels = np.asarray(strata)
    orders = np.tile(np.arange(len(labels)), (n, 1))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if drawn == "by sorting":
            orders[:, members] = members[np.argsort(rng.random((n, len(members))), axis=1)]
        else:
            orders[:, members] = rng.permuted(np.tile(members, (n, 1)), axis=1)
    return orders


@dataclass(frozen=True)
class PermutedCorrelation:
    """A correlation beside what exchanged items show.

    Attributes:
        r: The correlation; NaN where one line does not vary.
        null: The same in every draw; empty where ``r`` is NaN.
        expected: Its mean over all exchanges: what the means of the strata alone give.
    """

    r: float
    null: Float[np.ndarray, " draw"]
    expected: float

    def chance(self) -> tuple[float, float]:
        """Limits of the middle 95 % of draws."""
        if not len(self.null):
            return float("nan"), float("nan")
        low, high = np.quantile(self.null, [0.025, 0.975])
        return float(low), float(high)

    def p_larger(self) -> float:
        """P of a correlation as large, by its place among the draws."""
        return float(share_reached(self.null, self.r))

    def p_two_sided(self) -> float:
        """P of a correlation as far from the expected one, on either side."""
        return two_sided_share(self.null - self.expected, self.r - self.expected)

    def power(self) -> dict[str, float]:
        """Power, as ``power`` has it for independent items, with these draws in their place.

        Returns:
            ``significant``: how far from the expected one a correlation must be for a two-sided p
            < .05; ``power_80``: how far a true one must be to be found four times out of five, if
            its estimates vary as much as the draws. NaN where nothing was drawn.
        """
        if not len(self.null):
            return {"significant": float("nan"), "power_80": float("nan")}
        apart = np.abs(self.null - self.expected)
        significant = float(np.quantile(apart, 0.95, method="higher"))
        spread = float(np.sqrt((apart**2).mean()))
        return {
            "significant": significant,
            "power_80": significant + float(stats.norm.ppf(0.8)) * spread,
        }


def permuted_correlation(
    x: Float[np.ndarray, " item"],
    y: Float[np.ndarray, " item"],
    strata: np.ndarray | None = None,
    *,
    n_resamples: int,
    rng: np.random.Generator,
    of: Literal["ranks", "values"] = "ranks",
    drawn: Drawn = "by sorting",
) -> PermutedCorrelation:
    """A correlation with the items of one line exchanged.

    Args:
        x: The line that stays; no NaN.
        y: The line that is permuted; no NaN.
        strata: Items of the same stratum change places; all items if None.
        n_resamples: Draws.
        rng: Of the draws; nothing is drawn where one line does not vary.
        of: Ranks (Spearman's correlation) or values (Pearson's).
        drawn: As in ``permutations_within``.

    Examples:
        >>> found = permuted_correlation(
        ...     np.arange(8.0), np.arange(8.0) ** 2, n_resamples=999, rng=np.random.default_rng(0)
        ... )
        >>> round(found.r, 6), found.p_two_sided()
        (1.0, 0.001)
    """
    first, second = (_standardised(line, of) for line in (x, y))
    r = float(first @ second)
    if np.isnan(r):
        return PermutedCorrelation(r, np.empty(0), r)
    labels = np.zeros(len(x)) if strata is None else np.asarray(strata)
    orders = permutations_within(labels, n_resamples, rng, drawn=drawn)
    within = [labels == label for label in np.unique(labels)]
    expected = sum((float(second[one].sum() * first[one].mean()) for one in within), start=0.0)
    return PermutedCorrelation(r, second[orders] @ first, expected)


def _standardised(
    values: Float[np.ndarray, " item"], of: Literal["ranks", "values"]
) -> Float[np.ndarray, " item"]:
    """Mean 0 and length 1; NaN where nothing varies, whatever rounding makes of the mean."""
    if of == "ranks":
        return standardised_ranks(values)
    if len(values) == 0 or np.ptp(values) == 0:
        return np.full(len(values), np.nan)
    apart = values - values.mean()
    return np.asarray(apart / np.sqrt((apart**2).sum()))


# -- many columns at once --------------------------------------------------------------------------


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
    """Tests of columns against one quantity; NaN where a column does not vary.

    Attributes:
        rho: Spearman's correlation, partial with covariates.
        pvalue: Two-sided, over the permutations.
        pvalue_max: Family-wise over the columns.
        qvalue: Benjamini-Hochberg over the columns.
        needed: The |rho| from which ``pvalue_max`` is below .05; NaN if none is defined.
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
    """Test which columns go with a quantity over items.

    All columns share one set of permutations, so that the largest correlation of each permutation
    gives family-wise p-values.

    Args:
        columns: One per test, such as a head.
        quantity: What they are compared with.
        orders: Permutations of the items, from ``permutations_within``.
        covariates: Their ranks are taken out of both sides: what they explain of the quantity stays
            in place, what they leave is permuted.

    Source: Freedman & Lane (1983), of covariates.
    """
    if covariates is None:
        ranks, quantity_ranks = standardised_ranks(columns), standardised_ranks(quantity)
        explained = np.zeros((len(quantity_ranks), 0))
    else:
        ranks = ranks_without(columns, covariates)
        quantity_ranks = ranks_without(quantity[:, None], covariates)[:, 0]
        explained = _basis(covariates)
    defined = ~np.isnan(ranks).any(0) & ~np.isnan(quantity_ranks).any()
    numbers, needed = np.full((4, columns.shape[1]), np.nan), float("nan")
    if defined.any():
        rho = quantity_ranks @ ranks[:, defined]
        count, largest = _null_of_columns(quantity_ranks, orders, explained, ranks[:, defined], rho)
        pvalue = permutation_pvalue(count, len(orders), exact=False)
        pvalue_max = family_wise_share(largest, np.abs(rho))
        numbers[:, defined] = rho, pvalue, pvalue_max, benjamini_hochberg(pvalue)
        needed = float(np.quantile(largest, 0.95, method="higher"))
    return ColumnTests(numbers[0], numbers[1], numbers[2], numbers[3], needed)


def _null_of_columns(
    quantity: np.ndarray,
    orders: np.ndarray,
    explained: np.ndarray,
    columns: np.ndarray,
    rho: np.ndarray,
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " draw"]]:
    """How many draws reach the size of each column's rho, and the largest size of every draw."""
    reached = threshold(np.abs(rho))
    count, largest = np.zeros(len(rho)), np.empty(len(orders))
    for start in range(0, len(orders), _BLOCK):
        part = slice(start, start + _BLOCK)
        null = np.abs(_permuted(quantity, orders[part], explained) @ columns)
        count += (null >= reached).sum(0)
        largest[part] = null.max(1)
    return count, largest


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
