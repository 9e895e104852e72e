"""Intervals over clusters of items (targets, folds, occupations): one rule for all.

Items of a cluster resemble each other, so clusters are the sample, and they are few. The interval
is Student's with the cluster-robust standard error CR2 and Satterthwaite's degrees of freedom;
items without clusters are clusters of one, and the interval is then the usual one. What is no mean
over items goes through its influence values or through ``jackknife_mean``.

Source: Bell & McCaffrey (2002); Pustejovsky & Tipton (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.stats.resampling import smallest_effect

# With fewer clusters there is no interval. With five it covers what it promises, and the smallest
# p of all sign flips is 2 / 2^5 = .0625.
FEWEST_CLUSTERS = 5
# What is nearer to another number differs from it by rounding; a smaller standard error is none.
_NOTHING = 1e-12


@dataclass(frozen=True)
class ClusterMean:
    """A mean and how sure it is.

    Attributes:
        mean: Weighted mean over items; NaN without items.
        error: Its standard error; 0 where no item differs, NaN for one cluster.
        df: Degrees of freedom; K - 1 for K clusters of one size, fewer for unequal ones.
        clusters: Clusters with a value.
        items: Items with a value.
    """

    mean: float
    error: float
    df: float
    clusters: int
    items: int

    def limits(self, confidence: float = 0.95) -> tuple[float, float]:
        """Lower and upper limit; NaN for fewer than ``FEWEST_CLUSTERS`` clusters.

        NaN, too, where nothing varies: an interval without width would claim to know all of it.
        """
        if self.error == 0:
            return float("nan"), float("nan")
        half = self._quantile(confidence) * self.error
        return self.mean - half, self.mean + half

    def smallest(self) -> float:
        """The mean that a t-test of these clusters finds four times out of five.

        NaN for one cluster, and where nothing varies.
        """
        if not self.error > 0:
            return float("nan")
        independent = self.df + 1
        return float(self.error * np.sqrt(independent) * smallest_effect(independent))

    def share_limits(self, confidence: float = 0.95) -> tuple[float, float]:
        """The same for a mean of values in [0, 1], whose limits stay there.

        Wilson's interval with t for z and the number of independent items that would give the
        standard error; the items themselves where none differs.

        Source: Wilson (1927); Dean & Pagano (2015).
        """
        spread = self.mean * (1 - self.mean)
        n = self._independent()
        t2 = self._quantile(confidence) ** 2
        middle = (n * self.mean + t2 / 2) / (n + t2)
        half = np.sqrt(t2 * (n * spread + t2 / 4)) / (n + t2)
        return float(middle - half), float(middle + half)

    def pvalue(self, neutral: float = 0.0) -> float:
        """Two-sided p of Student's test that the mean is ``neutral``.

        It is below .05 where ``neutral`` is outside the 95 % ``limits``, and NaN where these are.
        """
        if self.clusters < FEWEST_CLUSTERS or not self.error > 0:
            return float("nan")
        return float(2 * stats.t.sf(abs(self.mean - neutral) / self.error, self.df))

    def share_pvalue(self, neutral: float = 0.5) -> float:
        """The same for a mean of values in [0, 1]: it agrees with ``share_limits``."""
        if self.clusters < FEWEST_CLUSTERS:
            return float("nan")
        error = np.sqrt(neutral * (1 - neutral) / self._independent())
        return float(2 * stats.t.sf(abs(self.mean - neutral) / error, self.df))

    def _independent(self) -> float:
        """Independent items that would give the error of a share; all where none differs."""
        spread = self.mean * (1 - self.mean)
        return float(spread / self.error**2) if self.error > 0 else float(self.items)

    def plus(self, other: ClusterMean) -> ClusterMean:
        """The mean with the variance of an independent second sample added: its trainings, words.

        The degrees of freedom are Satterthwaite's; the clusters stay those of the first.
        """
        variances = np.array([self.error**2, other.error**2])
        total = variances.sum()
        if total == 0:
            return self
        df = total**2 / (variances**2 / [self.df, other.df]).sum()
        return replace(self, error=float(np.sqrt(total)), df=float(df))

    def _quantile(self, confidence: float) -> float:
        if self.clusters < FEWEST_CLUSTERS:
            return float("nan")
        return student_quantile(self.df, confidence)


def student_quantile(df: float, confidence: float) -> float:
    """Standard errors from the middle to either limit of Student's interval.

    Examples:
        >>> round(student_quantile(9, 0.95), 2)
        2.26
    """
    return float(stats.t.ppf((1 + confidence) / 2, df))


def cluster_mean(
    values: Float[np.ndarray, " item"],
    cluster: Sequence[Any] | np.ndarray | None = None,
    *,
    weight: Float[np.ndarray, " item"] | None = None,
) -> ClusterMean:
    """The mean over items with its CR2 standard error over clusters.

    For a mean CR2 has a closed form. With a cluster's share a of the weight and sum r of its
    weighted residuals, the variance is the sum of r^2 / (1 - a) over the squared weight, and with
    b = a^2 / (1 - a) the degrees of freedom are 1 / (sum a^2 + (sum b)^2 - sum b^2).

    Args:
        values: Of the items; those with NaN are left out.
        cluster: The cluster of every item; each is its own if None.
        weight: Of the items, above 0; all alike if None.

    Examples:
        >>> found = cluster_mean(np.array([1.0, 3.0, 2.0, 6.0]), ["a", "a", "b", "c"])
        >>> found.mean, found.clusters, round(found.error, 2), round(found.df, 2)
        (3.0, 3, 1.15, 1.8)
    """
    known = np.isfinite(values)
    y = np.asarray(values, float)[known]
    w = np.ones(len(y)) if weight is None else np.asarray(weight, float)[known]
    label = np.arange(len(y)) if cluster is None else np.asarray(cluster)[known]
    number = np.unique(label, return_inverse=True)[1]
    n = int(number.max(initial=-1)) + 1
    mean = float(np.average(y, weights=w)) if len(y) else float("nan")
    if n < 2:
        return ClusterMean(mean, float("nan"), float("nan"), n, len(y))
    a = np.bincount(number, weights=w) / w.sum()
    r = np.bincount(number, weights=w * (y - mean)) / w.sum()
    b = a**2 / (1 - a)
    df = 1 / ((a**2).sum() + b.sum() ** 2 - (b**2).sum())
    error = 0.0 if np.ptp(y) == 0 else float(np.sqrt((r**2 / (1 - a)).sum()))
    return ClusterMean(mean, error, float(df), n, len(y))


def jackknife_mean(
    whole: float,
    without: Float[np.ndarray, " cluster"],
    weight: Float[np.ndarray, " cluster"] | None = None,
) -> ClusterMean:
    """A quantity that is no mean over items, by the same rule.

    Leaving a cluster with the share a of the weight out of a mean takes a / (1 - a) times its
    distance from the mean away. So 1 / a - 1 times the change of any quantity is, to first order,
    what the cluster's own value is for a mean.

    Args:
        whole: The quantity, such as a norm.
        without: The same without each cluster in turn.
        weight: Of the clusters; all alike if None.

    Returns:
        The quantity with its standard error, NaN where a value is not finite.

    Examples:
        >>> values = np.array([1.0, 2.0, 4.0, 5.0, 8.0])
        >>> without = np.array([np.delete(values, k).mean() for k in range(5)])
        >>> jackknife_mean(4.0, without).error == cluster_mean(values).error
        True
    """
    n = len(without)
    w = np.ones(n) if weight is None else weight
    with np.errstate(invalid="ignore"):
        values = (w.sum() / w - 1) * (whole - without)
    if np.allclose(without, whole, rtol=_NOTHING, atol=_NOTHING):
        values = np.zeros(n)  # what differs by rounding does not vary
    if not np.isfinite(values).all():
        return ClusterMean(whole, float("nan"), float("nan"), n, n)
    return replace(cluster_mean(values, weight=w), mean=whole)


def resampled_error(
    statistic: Callable[[Float[np.ndarray, " unit"]], Float[np.ndarray, "..."]],
    strata: Int[np.ndarray, " unit"],
    *,
    n_resamples: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "..."]:
    """Standard errors by the bootstrap, of what is made of pairs of units.

    Args:
        statistic: The numbers, from weights of the units; NaN where they are undefined.
        strata: As many units as a stratum has are drawn of it, with replacement.
        n_resamples: Draws.
        rng: Of the draws.

    Returns:
        One standard error per number, over the draws in which it is defined; NaN where it does not
        vary.

    Examples:
        >>> values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        >>> error = resampled_error(
        ...     lambda weight: np.average(values, weights=weight),
        ...     np.zeros(5, int), n_resamples=4000, rng=np.random.default_rng(0),
        ... )
        >>> round(float(error), 1), round(float(values.std() / 5**0.5), 1)
        (0.6, 0.6)
    """
    observed = statistic(np.ones(len(strata)))
    total = np.zeros_like(observed)
    squares, counts = np.zeros_like(observed), np.zeros_like(observed)
    for _ in range(n_resamples):
        weight = np.zeros(len(strata))
        for stratum in np.unique(strata):
            members = np.flatnonzero(strata == stratum)
            weight += np.bincount(rng.choice(members, len(members)), minlength=len(strata))
        off = statistic(weight) - observed
        known = np.isfinite(off)
        total += np.where(known, off, 0.0)
        squares += np.where(known, off**2, 0.0)
        counts += known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total**2 / counts) / (counts - 1)
        return np.asarray(np.sqrt(np.where(variance > _NOTHING**2, variance, np.nan)))
