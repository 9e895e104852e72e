"""How sure the aggregates are: the chance level of mu and eta, and bootstrap intervals.

mu takes a maximum over attributes, and eta a mean of sizes: both are above 0 for a model without
any bias. Their chance level comes from flipping the signs of C, which exchanges x1 and x2.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.types import InputError
from unqover.bias import Sums, aggregates, mean_largest, mean_size, membership, sums

Flip = Literal["comparison", "pair"]
Drawn = Literal["both", "opponents"]
_TIE = 1e-12
_DECIMALS = 12


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
        return _share(self.mu, mu), _share(self.eta, eta)


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
        InputError: if ``flip`` is unknown.
    """
    if flip not in ("comparison", "pair"):
        raise InputError(f"`flip` must be one of comparison, pair; got {flip!r}")
    found = np.empty((2, n_flips))
    for draw, changed in enumerate(flipped(C, flip, n_flips=n_flips, rng=rng)):
        own = aggregates(sums(changed, first, second, n_subjects), group)
        found[:, draw] = own.mu, own.mean_eta
    return Chance(*found)


def flipped(
    C: Float[np.ndarray, "pair template attribute"],
    flip: Flip,
    *,
    n_flips: int,
    rng: np.random.Generator,
) -> Iterator[Float[np.ndarray, "pair template attribute"]]:
    """Comparisons with signs drawn at random, as in ``chance``."""
    shape = C.shape if flip == "comparison" else (C.shape[0], 1, C.shape[2])
    for _ in range(n_flips):
        yield C * (rng.integers(0, 2, size=shape, dtype=np.int8) * 2 - 1)


def _share(null: np.ndarray, observed: float) -> float:
    if not np.isfinite(observed):
        return np.nan
    return float((1 + (null >= observed - _TIE).sum()) / (1 + len(null)))


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
    observed = aggregates(given, group).gamma
    alone = drawn == "opponents"
    size = np.bincount(group)
    total = np.zeros_like(observed)
    squares, counts = np.zeros_like(observed), np.zeros_like(observed)
    for _ in range(n_resamples):
        weight = _multiplicity(group, rng, together=alone)
        signed, plain = (
            _opponents(given, group, weight) if alone else membership(given, group, weight)
        )
        with np.errstate(invalid="ignore"):
            off = (signed @ given.C) / (plain @ given.n) - observed
        known = np.isfinite(off)
        total += np.where(known, off, 0.0)
        squares += np.where(known, off**2, 0.0)
        counts += known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (squares - total**2 / counts) / (counts - 1)
        error = np.sqrt(np.where(variance > _TIE**2, variance, np.nan))
        opponents = len(group) - int(size.max())
        freedom = max(1, (opponents if alone else int(size.min())) - 1)
        pvalue = 2 * stats.t.sf(np.abs(observed / error), freedom)
    half = stats.t.ppf(0.5 + confidence / 2, freedom) * error
    return GroupIntervals(error, observed - half, observed + half, pvalue, _qvalues(pvalue))


def _opponents(given: Sums, group: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Membership where a pair weighs as its other subject does; none within a group."""
    shape = (int(group.max()) + 1, len(given.first))
    signed = np.zeros(shape)
    pair = np.flatnonzero(group[given.first] != group[given.second])
    first, second = given.first[pair], given.second[pair]
    signed[group[first], pair] = weight[second]
    signed[group[second], pair] = -weight[first]
    return signed, np.abs(signed)


def _multiplicity(group: np.ndarray, rng: np.random.Generator, *, together: bool) -> np.ndarray:
    """How often each subject is drawn, within groups or from all."""
    label = np.zeros_like(group) if together else group
    weight = np.zeros(len(group))
    for own in np.unique(label):
        members = np.flatnonzero(label == own)
        drawn = rng.choice(members, len(members))
        weight += np.bincount(drawn, minlength=len(group))
    return weight


def _qvalues(pvalue: np.ndarray) -> np.ndarray:
    found = np.full_like(pvalue, np.nan)
    for row, own in zip(found, pvalue, strict=True):
        known = np.isfinite(own)
        if known.any():
            row[known] = stats.false_discovery_control(own[known])
    return found


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
    members = [np.flatnonzero(label == own) for own in np.unique(label)]
    n_attributes = given.C.shape[1]
    if n_attributes < 2 or min(map(len, members)) < 2:
        raise InputError("a bootstrap needs at least 2 subjects in each group and 2 attributes")
    alone = group is None
    own = np.arange(given.n_subjects) if group is None else group

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        stacked = [np.atleast_2d(part) for part in drawn]
        found = np.array(
            [_resampled(given, own, parts, alone) for parts in zip(*stacked, strict=True)]
        )
        return np.round(found[0] if drawn[0].ndim == 1 else found.T, _DECIMALS)

    data = (*members, np.arange(n_attributes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        options: dict[str, Any] = {"confidence_level": confidence, "rng": rng, "batch": 200}
        first = stats.bootstrap(
            data, statistic, n_resamples=n_resamples, method="percentile", **options
        )
        second = stats.bootstrap(
            data, statistic, n_resamples=0, method="BCa", bootstrap_result=first, **options
        )
    limits = []
    for index in range(2):
        bca = [float(np.asarray(side)[index]) for side in second.confidence_interval]
        plain = [float(np.asarray(side)[index]) for side in first.confidence_interval]
        defined = bool(np.isfinite(bca).all())
        low, high = bca if defined else plain
        limits.append(Interval(low, high, "BCa" if defined else "percentile"))
    return limits[0], limits[1]


def _resampled(
    given: Sums, group: np.ndarray, drawn: tuple[np.ndarray, ...], alone: bool
) -> tuple[float, float]:
    """Mu and eta of one draw of subjects and attributes; ``alone``: each is its own group."""
    *subjects, attributes = drawn
    weight = np.bincount(np.concatenate(subjects), minlength=given.n_subjects).astype(float)
    signed, plain = _opponents(given, group, weight) if alone else membership(given, group, weight)
    chosen = np.unique(attributes)
    n = plain @ given.n[:, attributes]
    with np.errstate(invalid="ignore"):
        eta = (signed @ given.sign[:, attributes]) / n
        gamma = (signed @ given.C[:, chosen]) / (plain @ given.n[:, chosen])
    if alone:  # a subject counts as often as it was drawn
        often = weight.astype(int)
        gamma, eta = np.repeat(gamma, often, axis=0), np.repeat(eta, often, axis=0)
    return mean_largest(gamma), mean_size(eta)
