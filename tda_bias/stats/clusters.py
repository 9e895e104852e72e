"""Inference over clusters of items (targets, folds, occupations): one interval and one test.

Items of a cluster resemble each other, so clusters are the sample, and they are few. The interval
is Student's with the cluster-robust standard error CR2 and Satterthwaite's degrees of freedom;
items without clusters are clusters of one, and the interval is then the usual one. What is no mean
over items goes through its influence values or through ``jackknife_mean``.

Source: Bell & McCaffrey (2002); Pustejovsky & Tipton (2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from tda_bias.stats.resampling import exchanges, smallest_effect, two_sided_share

# With fewer clusters there is no interval. With five it covers what it promises, and the smallest
# p of all sign flips is 2 / 2^5 = .0625.
FEWEST_CLUSTERS = 5
# What is nearer to another number, or to a perfect correlation, differs from it by rounding.
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
        n = spread / self.error**2 if self.error > 0 else self.items
        t2 = self._quantile(confidence) ** 2
        middle = (n * self.mean + t2 / 2) / (n + t2)
        half = np.sqrt(t2 * (n * spread + t2 / 4)) / (n + t2)
        return float(middle - half), float(middle + half)

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
        return float(stats.t.ppf((1 + confidence) / 2, self.df))


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

    Items with NaN are left out. Without ``cluster`` each item is its own; weights are above 0.
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

    ``whole`` is the quantity, such as a norm, and ``without`` the same without each cluster in
    turn. Its standard error is NaN where a value is not finite.
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


def spearman_limits(rho: float, n: int) -> tuple[float, float]:
    """95 % interval of a rank correlation over n clusters with one value each; NaN where all agree.

    On Fisher's scale; a jackknife covers too little there.

    Source: Bonett & Wright (2000).
    """
    if n < FEWEST_CLUSTERS or 1 - abs(rho) < _NOTHING:
        return float("nan"), float("nan")
    half = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh(np.arctanh(rho) + half * np.array([-1, 1]))
    return float(low), float(high)


def flip_pvalue(
    values: Float[np.ndarray, " item"],
    cluster: Sequence[Any] | np.ndarray,
    *,
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> float:
    """Two-sided p of a sum when whole clusters change their sign: of "no effect in new clusters".

    Exact for effects of clusters that are symmetric about 0; all flips of up to 12 clusters, so
    many random ones of more. No value may be NaN.
    """
    number = np.unique(np.asarray(cluster), return_inverse=True)[1]
    sums = np.bincount(number, weights=values)
    drawn = exchanges(np.full(len(sums), 2), n_resamples, rng)
    return two_sided_share((1 - 2 * drawn.member) @ sums, float(sums.sum()), exact=drawn.exact)
