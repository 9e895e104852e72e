"""The chance level of mu and eta, and intervals over subjects.

mu takes a maximum over attributes, and eta a mean of sizes: both are above 0 for a model without
any bias. Their chance level comes from flipping the signs of C, which exchanges x1 and x2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.stats.clusters import jackknife_mean
from tda_bias.stats.resampling import benjamini_hochberg, share_reached
from unqover.bias import Membership, Sums, mean_largest, mean_size, sums

Flip = Literal["comparison", "pair"]
Drawn = Literal["both", "opponents"]
# A variance below the square of this is rounding.
_NOTHING = 1e-12


@dataclass(frozen=True)
class Chance:
    """mu and eta of a model without bias: under flipped signs."""

    mu: Float[np.ndarray, " flip"]
    eta: Float[np.ndarray, " flip"]

    def pvalues(self, mu: float, eta: float) -> tuple[float, float]:
        """Shares of flips with at least the observed mu and eta, the observed one counted."""
        return float(share_reached(self.mu, mu)), float(share_reached(self.eta, eta))


def chance(
    C: Float[np.ndarray, "pair template attribute"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    n_subjects: int,
    *,
    group: Int[np.ndarray, " subject"] | None = None,
    flip: Flip = "comparison",
    n_flips: int = 200,
    rng: np.random.Generator,
) -> Chance:
    """Mu and eta under the null hypothesis that C is symmetric about 0.

    Args:
        C: Comparisons.
        first: First subject of each pair.
        second: Second subject of each pair.
        n_subjects: Number of subjects.
        group: As in ``unqover.bias.aggregates``.
        flip: What is flipped independently: every comparison, or a pair and attribute with all
            their templates. The latter allows for templates that agree by the pair alone.
        n_flips: Number of flips.
        rng: The generator they come from.
    """
    given = sums(C, first, second, n_subjects)
    member = Membership.of(given, np.arange(n_subjects) if group is None else np.asarray(group))
    values = np.empty((2, n_flips))
    for draw, (total, sign) in enumerate(flipped_sums(C, flip, n_flips=n_flips, rng=rng)):
        gamma, eta = member.means(total, given.n), member.means(sign, given.n)
        values[:, draw] = mean_largest(gamma), mean_size(eta)
    return Chance(*values)


def flipped_sums(
    C: Float[np.ndarray, "pair template attribute"],
    flip: Flip,
    *,
    n_flips: int,
    rng: np.random.Generator,
) -> Iterator[tuple[Float[np.ndarray, "pair attribute"], Float[np.ndarray, "pair attribute"]]]:
    """Sums over templates of C and of its signs, with signs drawn at random as in ``chance``."""
    if flip == "pair":  # the templates of a pair keep their signs, so they are added up once
        C, direction = np.nansum(C, 1, keepdims=True), np.nansum(np.sign(C), 1, keepdims=True)
    else:
        C, direction = np.nan_to_num(C), np.nan_to_num(np.sign(C))
    for _ in range(n_flips):
        drawn = rng.integers(0, 2, size=C.shape, dtype=np.int8) * 2 - 1
        yield (C * drawn).sum(1), (direction * drawn).sum(1)


@dataclass(frozen=True)
class GroupIntervals:
    """Intervals and tests of gamma of groups.

    Attributes:
        standard_error: NaN where gamma is or nothing varies.
        low: Lower limits of t intervals around gamma.
        high: Upper limits.
        pvalue: Two-sided, of gamma = 0.
        qvalue: The same over all attributes of a group, Benjamini-Hochberg.
    """

    standard_error: Float[np.ndarray, "group attribute"]
    low: Float[np.ndarray, "group attribute"]
    high: Float[np.ndarray, "group attribute"]
    pvalue: Float[np.ndarray, "group attribute"]
    qvalue: Float[np.ndarray, "group attribute"]


def group_intervals(
    given: Sums,
    group: Int[np.ndarray, " subject"],
    *,
    drawn: Drawn = "both",
    n_resamples: int = 1000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> GroupIntervals:
    """Standard errors of gamma over subjects, and what follows from them.

    Attributes and templates stay. With few subjects the limits use Student's t, with one degree of
    freedom less than there are subjects to draw on the smaller side.

    Args:
        given: Comparisons.
        group: Group of each subject, numbered from 0.
        drawn: What is a sample: subjects on ``both`` sides of a comparison (first names), drawn
            within their groups; or only the ``opponents`` that a group is compared with, where
            subjects are descriptions ("an Asian man") and none stands for others.
        n_resamples: Number of resamples.
        confidence: Coverage.
        rng: The generator they come from.
    """
    member, alone = Membership.of(given, group), drawn == "opponents"
    observed = member.means(given.C, given.n)
    size = np.bincount(group)
    total = np.zeros_like(observed)
    squares, counts = np.zeros_like(observed), np.zeros_like(observed)
    for _ in range(n_resamples):
        weight = _multiplicity(group, rng, together=alone)
        resampled = member.against(weight) if alone else member.weighted(weight)
        off = resampled.means(given.C, given.n) - observed
        known = np.isfinite(off)
        total += np.where(known, off, 0.0)
        squares += np.where(known, off**2, 0.0)
        counts += known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total**2 / counts) / (counts - 1)
        error = np.sqrt(np.where(variance > _NOTHING**2, variance, np.nan))
        opponents = len(group) - int(size.max())
        freedom = max(1, (opponents if alone else int(size.min())) - 1)
        pvalue = 2 * stats.t.sf(np.abs(observed / error), freedom)
    half = stats.t.ppf(0.5 + confidence / 2, freedom) * error
    qvalue = np.stack([benjamini_hochberg(row) for row in pvalue])
    return GroupIntervals(error, observed - half, observed + half, pvalue, qvalue)


def _multiplicity(group: np.ndarray, rng: np.random.Generator, *, together: bool) -> np.ndarray:
    """Numbers of draws of each subject, within groups or from all."""
    label = np.zeros_like(group) if together else group
    weight = np.zeros(len(group))
    for stratum in np.unique(label):
        members = np.flatnonzero(label == stratum)
        drawn = rng.choice(members, len(members))
        weight += np.bincount(drawn, minlength=len(group))
    return weight


def model_intervals(
    given: Sums,
    strata: Int[np.ndarray, " subject"],
    *,
    group: Int[np.ndarray, " subject"] | None = None,
    confidence: float = 0.95,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of mu and of eta over subjects, left out one by one; attributes are these.

    mu is a maximum and biased upwards, which an interval does not correct: hold it against
    ``chance``.

    Args:
        given: Comparisons.
        strata: Subjects are a sample within these; where each is alone, of all.
        group: As in ``unqover.bias.aggregates``.
        confidence: Coverage.

    Returns:
        NaN for fewer than five subjects, and where one is its stratum.
    """
    label = strata if np.bincount(strata).max() > 1 else np.zeros_like(strata)
    n, alone = given.n_subjects, group is None
    member = Membership.of(given, np.arange(n) if group is None else group)
    whole, *without = (
        _of_subjects(given, member, kept, alone) for kept in np.vstack([np.ones(n), 1 - np.eye(n)])
    )
    size = np.bincount(label)[label]
    columns = np.array(without).T
    if (size < 2).any():
        columns = np.full_like(columns, np.nan)
    limits = np.array(
        [
            jackknife_mean(value, others, 1 / size).limits(confidence)
            for value, others in zip(whole, columns, strict=True)
        ]
    )
    mu, eta = np.maximum(limits, 0.0).tolist()  # both are sizes
    return tuple(mu), tuple(eta)


def _of_subjects(
    given: Sums, member: Membership, kept: Float[np.ndarray, " subject"], alone: bool
) -> tuple[float, float]:
    """Mu and eta of some subjects, which weigh 1; ``alone``: each is its own group."""
    weighted = member.against(kept) if alone else member.weighted(kept)
    gamma, eta = weighted.means(given.C, given.n), weighted.means(given.sign, given.n)
    if alone:
        gamma, eta = gamma[kept > 0], eta[kept > 0]
    return mean_largest(gamma), mean_size(eta)
