"""Permutations, bootstrap intervals, rank correlations, p- and q-values: once, for all packages.

Pure arrays in, numbers out. A value is undefined (NaN) where it cannot be computed, never 0.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, stats

# Arrangements are enumerated instead of sampled up to so many: 2^12, the flips of 12 pairs.
ENUMERATED = 4096

# With fewer clusters there is no interval over them: with five, even the most extreme of all sign
# flips has p = 2 / 2^5 = .0625.
FEWEST_CLUSTERS = 6

IntervalMethod = Literal["BCa", "percentile"]


# -- random draws ----------------------------------------------------------------------------------


def generator(seed: int, *names: str) -> np.random.Generator:
    """A separate generator for everything that has a name: the order of calls does not matter."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])


def permutations_within(
    strata: Sequence[str] | np.ndarray, n: int, rng: np.random.Generator
) -> Int[np.ndarray, "draw item"]:
    """Random orders of items that exchange items of the same stratum only.

    Args:
        strata: The stratum of each item: its category, its target.
        n: Number of orders.
        rng: The generator they come from.
    """
    labels = np.asarray(strata)
    drawn = np.tile(np.arange(len(labels)), (n, 1))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        drawn[:, members] = members[np.argsort(rng.random((n, len(members))), axis=1)]
    return drawn


def resamples_within(
    strata: Int[np.ndarray, " item"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "draw item"]:
    """Bootstrap draws: each item is replaced by one drawn from its stratum.

    Args:
        strata: The number of each item's stratum, from 0 on without a gap.
        n: Number of draws.
        rng: The generator they come from.
    """
    order = np.argsort(strata, kind="stable")
    size = np.bincount(strata)
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    stratum = strata[order]
    drawn = rng.random((n, len(strata)))
    return np.asarray(order[start[stratum] + (drawn * size[stratum]).astype(int)])


def times_drawn(
    drawn: Int[np.ndarray, "draw n"], n_items: int
) -> Float[np.ndarray, "draw n_items"]:
    """How often each item is in each draw."""
    place = drawn + n_items * np.arange(len(drawn))[:, None]
    counts = np.bincount(place.reshape(-1), minlength=n_items * len(drawn))
    return counts.reshape(-1, n_items).astype(float)


@dataclass(frozen=True)
class Exchanges:
    """Which member of every set stands for its first one, draw by draw.

    Attributes:
        member: ``(draw, set)``; 0 is the member that really came first.
        exact: Whether these are all arrangements there are.
    """

    member: Int[np.ndarray, "draw set"]
    exact: bool

    def __len__(self) -> int:
        return len(self.member)


def exchanges(
    size: Int[np.ndarray, " set"], n_resamples: int, rng: np.random.Generator
) -> Exchanges:
    """Exchanges of an original with its twins: one member of each set, all alike probable.

    For sets of two this is the sign flip of their difference.

    Args:
        size: Members of each set, at least 1.
        n_resamples: Random draws, where there are more than ``ENUMERATED`` arrangements.
        rng: The generator they come from.
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
    """Permutation p of values at least as large as the observed ones; ties count.

    For a two-sided p give the sizes of both.

    Args:
        null: Values under permutation.
        observed: The values themselves; where one is NaN, so is its p.
        exact: Whether ``null`` are all arrangements there are, the observed one among them.
    """
    count = np.asarray((null >= observed - tolerance(observed)).sum(0))
    pvalue = permutation_pvalue(count, len(null), exact)
    return np.where(np.isnan(observed), np.nan, pvalue)


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
    """Permutation p of each value among the largest values of all tests together; ties count.

    Args:
        largest: The largest value of all tests in each draw.
        observed: The values themselves; where one is NaN, so is its p.
        exact: As in ``share_reached``.

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


def smallest_effect(n: int, *, level: float = 0.05, power: float = 0.8) -> float:
    """The mean, in standard deviations, that a two-sided t-test of n items finds with some power.

    Args:
        n: Items, at least 2.
        level: Of the test.
        power: Probability that the mean is found.
    """
    critical = stats.t.ppf(1 - level / 2, n - 1)

    def lacking(mean: float) -> float:
        shift = mean * np.sqrt(n)
        # The wrong side's share is NaN where it is too small for SciPy.
        wrong_side = np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))
        return float(stats.nct.sf(critical, n - 1, shift) + wrong_side) - power

    upper = 1 / np.sqrt(n)
    while lacking(upper) < 0:
        upper *= 1.5
    return float(optimize.brentq(lacking, upper / 1.5, upper, xtol=1e-12))


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share; ties may count one half.

    Source: Wilson (1927).
    """
    z2 = stats.norm.ppf((1 + confidence) / 2) ** 2
    middle = (successes + z2 / 2) / (n + z2)
    half = np.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)) / (n + z2)
    return float(middle - half), float(middle + half)


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


def spearman_over_items(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """``spearman`` of two lines of items (groups, heads, targets)."""
    return float(spearman(np.asarray(x, float), np.asarray(y, float)))


# -- bootstrap -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterBootstrap:
    """Resamples of whole clusters of items, drawn with replacement.

    Attributes:
        cluster: Number of each item's cluster, from 0 on without a gap.
        times: How often each cluster is in each resample.
    """

    cluster: Int[np.ndarray, " item"]
    times: Int[np.ndarray, "draw cluster"]

    @classmethod
    def of(
        cls, labels: Sequence[Any] | np.ndarray, n_resamples: int, rng: np.random.Generator
    ) -> ClusterBootstrap:
        """Draw resamples.

        Args:
            labels: The cluster of each item.
            n_resamples: Number of resamples.
            rng: The generator they come from.
        """
        cluster = np.unique(np.asarray(labels), return_inverse=True)[1]
        n = int(cluster.max()) + 1 if len(cluster) else 0
        times = rng.multinomial(n, np.full(n, 1 / max(n, 1)), size=n_resamples)
        return cls(cluster, times)

    def limits(
        self, values: Float[np.ndarray, " item"], confidence: float = 0.95
    ) -> tuple[float, float]:
        """Percentile interval of the mean over items.

        Args:
            values: Of each item; NaN ones are left out.
            confidence: Coverage.

        Returns:
            Lower and upper limit; NaN where fewer than ``FEWEST_CLUSTERS`` clusters have a value.
        """
        known = np.isfinite(values)
        n = self.times.shape[1]
        size = np.bincount(self.cluster[known], minlength=n)
        if np.count_nonzero(size) < FEWEST_CLUSTERS:
            return float("nan"), float("nan")
        total = np.bincount(self.cluster[known], weights=values[known], minlength=n)
        items = self.times @ size
        means = (self.times @ total)[items > 0] / items[items > 0]
        tail = (1 - confidence) / 2
        low, high = np.quantile(means, [tail, 1 - tail])
        return float(low), float(high)


@dataclass(frozen=True)
class Intervals:
    """Bootstrap intervals of several quantities.

    Attributes:
        standard_error: Standard deviation over resamples.
        percentile: ``(2, ...)`` lower and upper limits.
        bca: The same, bias-corrected and accelerated; NaN where every resample gives one value.
    """

    standard_error: Float[np.ndarray, "..."]
    percentile: Float[np.ndarray, "limit ..."]
    bca: Float[np.ndarray, "limit ..."]

    def limits(self, method: IntervalMethod = "BCa") -> Float[np.ndarray, "limit ..."]:
        """Of one method; the percentile's where BCa is undefined."""
        bca = self.has_bca & (method == "BCa")
        return np.where(bca, self.bca, self.percentile)

    @property
    def has_bca(self) -> np.ndarray:
        """For each quantity, whether its BCa limits are defined."""
        return np.asarray(np.isfinite(self.bca).all(0))


def bootstrap_intervals(
    data: Sequence[np.ndarray],
    statistic: Callable[..., Any],
    *,
    paired: bool = False,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    batch: int | None = None,
    rng: np.random.Generator,
) -> Intervals:
    """Percentile and BCa intervals from one set of resamples, by ``scipy.stats.bootstrap``.

    Args:
        data: The samples; each is drawn from with replacement.
        statistic: As SciPy wants it, vectorised over ``axis``.
        paired: Whether the samples are drawn from together.
        n_resamples: Number of resamples.
        confidence: Coverage, between 0 and 1.
        batch: Resamples computed together; bounds the memory. Samples are drawn batch by batch, so
            the draws depend on it.
        rng: The generator they come from.
    """
    options: dict[str, Any] = {"paired": paired, "confidence_level": confidence, "rng": rng}
    options["batch"] = batch
    with warnings.catch_warnings():
        # What has one value in all resamples has no BCa interval; it is NaN, which says so.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        percentile = stats.bootstrap(
            data, statistic, n_resamples=n_resamples, method="percentile", **options
        )
        bca = stats.bootstrap(
            data, statistic, n_resamples=0, method="BCa", bootstrap_result=percentile, **options
        )
    return Intervals(
        standard_error=np.asarray(percentile.standard_error),
        percentile=np.stack(percentile.confidence_interval),
        bca=np.stack(bca.confidence_interval),
    )
