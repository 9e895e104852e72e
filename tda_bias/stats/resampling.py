"""Permutations, rank correlations, p- and q-values: once, for all packages.

Pure arrays in, numbers out. A value is undefined (NaN) where it cannot be computed, never 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import optimize, stats

# Arrangements are enumerated instead of sampled up to so many: 2^12, the flips of 12 pairs.
ENUMERATED = 4096


# -- random draws ----------------------------------------------------------------------------------


def generator(seed: int, *names: str) -> np.random.Generator:
    """A separate generator for everything that has a name: the order of calls does not matter."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])


def permutations_within(
    strata: Sequence[str] | np.ndarray, n: int, rng: np.random.Generator
) -> Int[np.ndarray, "draw item"]:
    """Random orders of items that exchange items of the same stratum only."""
    labels = np.asarray(strata)
    drawn = np.tile(np.arange(len(labels)), (n, 1))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        drawn[:, members] = members[np.argsort(rng.random((n, len(members))), axis=1)]
    return drawn


@dataclass(frozen=True)
class Exchanges:
    """Which member of every set stands for its first one in each draw; 0 is that one itself.

    ``exact`` if these are all arrangements there are.
    """

    member: Int[np.ndarray, "draw set"]
    exact: bool

    def __len__(self) -> int:
        return len(self.member)


def exchanges(
    size: Int[np.ndarray, " set"], n_resamples: int, rng: np.random.Generator
) -> Exchanges:
    """Exchanges of an original with its twins: one member of each set, all alike probable.

    For sets of two this is the sign flip of their difference. Up to ``ENUMERATED`` arrangements are
    enumerated, of more so many are drawn.
    """
    if np.sum(np.log2(size)) <= np.log2(ENUMERATED):
        every = np.indices(tuple(size)).reshape(len(size), -1).T
        return Exchanges(every, exact=True)
    return Exchanges(rng.integers(0, size, size=(n_resamples, len(size))), exact=False)


# -- p-values --------------------------------------------------------------------------------------


def tolerance(size: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
    """The one tie rule: values closer than this are equal, whatever rounding makes of them.

    1e-12 plus a billionth of the size of the observed value: far above rounding errors of double
    precision, far below any difference that data could show.
    """
    return np.asarray(1e-12 + 1e-9 * np.abs(size))


def permutation_pvalue(
    count: Int[np.ndarray, "..."], n_resamples: int, exact: bool
) -> Float[np.ndarray, "..."]:
    """(1 + count) / (1 + n_resamples), or count / n_resamples where all were enumerated.

    Source: Phipson & Smyth (2010), Permutation p-values should never be zero.
    """
    if exact:
        return np.asarray(count / n_resamples)
    return np.asarray((1 + count) / (1 + n_resamples))


def share_reached(
    null: Float[np.ndarray, "draw *test"],
    observed: Float[np.ndarray, "*test"] | float,
    *,
    exact: bool = False,
) -> Float[np.ndarray, "*test"]:
    """Permutation p of values at least as large as the observed ones; ties count, NaN stays NaN.

    For a two-sided p give the sizes of both. ``exact`` if ``null`` are all arrangements there are,
    the observed one among them.
    """
    count = np.asarray((null >= observed - tolerance(observed)).sum(0))
    pvalue = permutation_pvalue(count, len(null), exact)
    return np.where(np.isnan(observed), np.nan, pvalue)


def value_needed(null: Float[np.ndarray, " draw"]) -> float:
    """The value above which ``share_reached`` is below .05; NaN where draws are too few."""
    allowed = math.ceil(0.05 * (1 + len(null))) - 2  # draws that may reach it
    return float(np.sort(null)[-1 - allowed]) if allowed >= 0 else float("nan")


def two_sided_share(
    null: Float[np.ndarray, " draw"], observed: float, *, exact: bool = False
) -> float:
    """Permutation p of one value by its distance from 0; see ``share_reached``."""
    return float(share_reached(np.abs(null), abs(observed), exact=exact))


def family_wise_share(
    largest: Float[np.ndarray, " draw"],
    observed: Float[np.ndarray, " test"],
    *,
    exact: bool = False,
) -> Float[np.ndarray, " test"]:
    """Permutation p of each value among the largest of all tests per draw; see ``share_reached``.

    Source: Westfall & Young (1993), single-step maxT.
    """
    threshold = observed - tolerance(observed)
    count = len(largest) - np.searchsorted(np.sort(largest), threshold, side="left")
    pvalue = permutation_pvalue(count, len(largest), exact)
    return np.where(np.isnan(observed), np.nan, pvalue)


def benjamini_hochberg(pvalue: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """False-discovery-rate q of all defined p-values together; NaN stays NaN."""
    q = np.full(np.shape(pvalue), np.nan)
    defined = np.isfinite(pvalue)
    if defined.any():
        q[defined] = stats.false_discovery_control(np.asarray(pvalue)[defined], method="bh")
    return q


def holm(pvalue: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Holm's adjusted p of all defined p-values together; NaN stays NaN.

    Source: Holm (1979).
    """
    adjusted = np.full(np.shape(pvalue), np.nan)
    known = np.flatnonzero(np.isfinite(pvalue))
    order = known[np.argsort(pvalue[known], kind="stable")]
    scaled = pvalue[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


# -- one sample ------------------------------------------------------------------------------------


def smallest_effect(n: float) -> float:
    """The mean in SDs that a two-sided t-test of n items at .05 finds four times out of five."""
    critical = stats.t.ppf(0.975, n - 1)

    def lacking(mean: float) -> float:
        shift = mean * np.sqrt(n)
        # The wrong side's share is NaN where it is too small for SciPy.
        wrong_side = np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))
        return float(stats.nct.sf(critical, n - 1, shift) + wrong_side) - 0.8

    upper = 1 / np.sqrt(n)
    while lacking(upper) < 0:
        upper *= 1.5
    return float(optimize.brentq(lacking, upper / 1.5, upper, xtol=1e-12))


# -- rank correlations -----------------------------------------------------------------------------


def standardised_ranks(values: Float[np.ndarray, "..."], axis: int = 0) -> Float[np.ndarray, "..."]:
    """Ranks (ties share the mean rank) with mean 0 and length 1: products are Spearman's rho.

    A line that is constant or holds a NaN becomes NaN.
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


def chance_correlation(
    x: Float[np.ndarray, " item"],
    y: Float[np.ndarray, " item"],
    strata: np.ndarray,
    n_resamples: int,
    rng: np.random.Generator,
    *,
    of: Literal["ranks", "values"],
) -> tuple[float, float, float, float]:
    """A correlation, of ranks (Spearman's) or values (Pearson's), beside what chance gives.

    Returns:
        The correlation, the limits of the middle 95 % under exchange, and the one-sided p; NaN for
        fewer than 3 items and where one line does not vary.
    """
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan, np.nan, np.nan, np.nan
    first, second = (
        standardised_ranks(v)
        if of == "ranks"
        else (v - v.mean()) / np.sqrt(((v - v.mean()) ** 2).sum())
        for v in (x, y)
    )
    r = float(first @ second)
    null = second[permutations_within(strata, n_resamples, rng)] @ first
    low, high = np.quantile(null, [0.025, 0.975])
    return r, float(low), float(high), float(share_reached(null, r))
