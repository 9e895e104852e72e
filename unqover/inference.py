"""How sure the aggregates are: the chance level of mu and eta, and bootstrap intervals.

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

from tda_bias.stats.resampling import benjamini_hochberg, bootstrap_intervals, share_reached
from tda_bias.types import InputError
from unqover.bias import Membership, Sums, mean_largest, mean_size, sums

Flip = Literal["comparison", "pair"]
Drawn = Literal["both", "opponents"]
# A variance below the square of this is rounding.
_NOTHING = 1e-12
# BCa counts resamples equal to the estimate; rounding must not tell them apart.
_DECIMALS = 12
# Resamples drawn together.
_BATCH = 200


@dataclass(frozen=True)
class Chance:
    """mu and eta of a model without bias.

    Attributes:
        mu: ``(flip,)`` values under flipped signs.
        eta: The same.
    """

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

    Raises:
        InputError: if ``flip`` is unknown, or a pair compares a subject to itself.
    """
    if flip not in ("comparison", "pair"):
        raise InputError(f"`flip` must be one of comparison, pair; got {flip!r}")
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
    """How sure gamma of groups is.

    Attributes:
        standard_error: ``(group, attribute)``; NaN where gamma is or nothing varies.
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
    """How often each subject is drawn, within groups or from all."""
    label = np.zeros_like(group) if together else group
    weight = np.zeros(len(group))
    for stratum in np.unique(label):
        members = np.flatnonzero(label == stratum)
        drawn = rng.choice(members, len(members))
        weight += np.bincount(drawn, minlength=len(group))
    return weight


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval of one quantity.

    Attributes:
        low: Lower limit.
        high: Upper limit.
        method: ``BCa``, or ``percentile`` where that is undefined.
    """

    low: float
    high: float
    method: str


def model_intervals(
    given: Sums,
    strata: Int[np.ndarray, " subject"],
    *,
    group: Int[np.ndarray, " subject"] | None = None,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> tuple[Interval, Interval]:
    """Intervals of mu and eta by a two-way cluster bootstrap: subjects (within strata), attributes.

    A resample keeps everything that was measured with a subject or attribute it draws. mu of a
    resample is biased like mu itself, once more; BCa corrects for it as far as it can. Hold both
    against ``chance``.

    Args:
        given: Comparisons.
        strata: Subjects are drawn within these; where each is alone, from all.
        group: As in ``unqover.bias.aggregates``.
        n_resamples: Number of resamples.
        confidence: Coverage.
        rng: The generator they come from.

    Raises:
        InputError: if there are fewer than two subjects or attributes to draw.
    """
    label = strata if np.bincount(strata).max() > 1 else np.zeros_like(strata)
    members = [np.flatnonzero(label == stratum) for stratum in np.unique(label)]
    n_attributes = given.C.shape[1]
    if n_attributes < 2 or min(map(len, members)) < 2:
        raise InputError("a bootstrap needs at least 2 subjects in each group and 2 attributes")
    alone = group is None
    member = Membership.of(given, np.arange(given.n_subjects) if group is None else group)

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        stacked = [np.atleast_2d(part) for part in drawn]
        values = np.array(
            [_resampled(given, member, parts, alone) for parts in zip(*stacked, strict=True)]
        )
        return np.round(values[0] if drawn[0].ndim == 1 else values.T, _DECIMALS)

    intervals = bootstrap_intervals(
        (*members, np.arange(n_attributes)),
        statistic,
        n_resamples=n_resamples,
        confidence=confidence,
        batch=_BATCH,
        rng=rng,
    )
    mu, eta = (
        Interval(float(low), float(high), "BCa" if bca else "percentile")
        for low, high, bca in zip(*intervals.limits(), intervals.has_bca, strict=True)
    )
    return mu, eta


def _resampled(
    given: Sums, member: Membership, drawn: tuple[np.ndarray, ...], alone: bool
) -> tuple[float, float]:
    """Mu and eta of one draw of subjects and attributes; ``alone``: each is its own group."""
    *subjects, attributes = drawn
    weight = np.bincount(np.concatenate(subjects), minlength=given.n_subjects).astype(float)
    weighted = member.against(weight) if alone else member.weighted(weight)
    chosen = np.unique(attributes)
    eta = weighted.means(given.sign[:, attributes], given.n[:, attributes])
    gamma = weighted.means(given.C[:, chosen], given.n[:, chosen])
    if alone:  # a subject counts as often as it was drawn
        often = weight.astype(int)
        gamma, eta = np.repeat(gamma, often, axis=0), np.repeat(eta, often, axis=0)
    return mean_largest(gamma), mean_size(eta)
