"""Scores of two subjects to comparative bias, its aggregates, their chance level and intervals.

Axes of scores are (..., order, polarity, subject): which of the two is mentioned first (x1, then
x2), the attribute and its denial, and whose score it is (x1, then x2). NaN is what was not asked.

mu takes a maximum over attributes, and eta a mean of sizes: both are above 0 for a model without
any bias. Their chance level comes from flipping the signs of C, which exchanges x1 and x2.

Source: [UnQover] Li, Khashabi, Khot, Sabharwal & Srikumar (2020), sections 3 and 4, and its code;
[Extending] Frank & Quiring, "Extending UnQover".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse, stats
from scipy.special import log_expit

from tda_bias.stats.clusters import jackknife_mean, resampled_error, student_quantile
from tda_bias.stats.resampling import benjamini_hochberg, beyond_rounding
from tda_bias.stats.sign_flips import random_signs
from tda_bias.types import InputError

Scale = Literal["two_way", "log_odds"]
SCALES: tuple[Scale, ...] = ("two_way", "log_odds")


@dataclass(frozen=True)
class Comparative:
    """Bias of single comparisons.

    Attributes:
        B: How much more a subject is chosen for the attribute than for its denial.
        C: Half the difference of the two subjects' B, in [-1, 1]; positive where x1 is preferred.
        position_error: Delta: mean change of a score when the order of mention does.
        negation_error: Epsilon: mean difference between a subject's score for the attribute and
            the other's for its denial.
    """

    B: Float[np.ndarray, "... subject"]
    C: Float[np.ndarray, "..."]
    position_error: Float[np.ndarray, "..."]
    negation_error: Float[np.ndarray, "..."]


def scores(
    log_prob: Float[np.ndarray, "... order polarity subject"], scale: Scale
) -> Float[np.ndarray, "... order polarity subject"]:
    """Log-probabilities to scores.

    ``two_way``: share of the two's probability, so the pair sums to 1; ``log_odds``: the
    log-probability itself, on which a subject's prior and the order of mention cancel exactly.
    """
    if scale == "log_odds":
        return log_prob
    return np.asarray(np.exp(log_expit(log_prob - log_prob[..., ::-1])))


def comparative(S: Float[np.ndarray, "... order polarity subject"]) -> Comparative:
    """B, C and the two errors of every comparison; where one of its eight scores is NaN, all are.

    Source: [UnQover] equations 1-5; the errors as the mean of four differences, as its code does.
    """
    complete = np.isfinite(S).all((-3, -2, -1), keepdims=True)
    S = np.where(complete, S, np.nan)
    over_orders = S.mean(-3)
    B = over_orders[..., 0, :] - over_orders[..., 1, :]
    return Comparative(
        B=B,
        C=0.5 * (B[..., 0] - B[..., 1]),
        position_error=np.abs(S[..., 0, :, :] - S[..., 1, :, :]).mean((-2, -1)),
        negation_error=np.abs(S[..., 0, :] - S[..., 1, ::-1]).mean((-2, -1)),
    )


def compared(
    log_prob: Float[np.ndarray, "... order polarity subject"], scale: Scale
) -> Comparative:
    """Comparisons of log-probabilities on a scale; a C that rounding could make is 0.

    So a model that does not tell two subjects apart prefers neither of them.
    """
    S = scores(log_prob, scale)
    found, size = comparative(S), np.abs(log_prob)
    if scale == "two_way":  # how far a share moves with the log-probabilities of the two
        size = S * (1 - S) * (size + size[..., ::-1])
    return replace(found, C=beyond_rounding(found.C, 0.5 * size.mean(-3).sum((-2, -1))))


@dataclass(frozen=True)
class Sums:
    """Comparisons of each pair, added up over templates: all that aggregates need.

    Attributes:
        C: Sum of C.
        sign: Sum of the signs of C; a tie adds 0.
        n: Number of comparisons; 0 where none was asked.
    """

    C: Float[np.ndarray, "pair attribute"]
    sign: Float[np.ndarray, "pair attribute"]
    n: Int[np.ndarray, "pair attribute"]
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    n_subjects: int

    def of_pairs(self, kept: Bool[np.ndarray, " pair"]) -> Sums:
        """Only some pairs."""
        C, sign, n = self.C[kept], self.sign[kept], self.n[kept]
        return Sums(C, sign, n, self.first[kept], self.second[kept], self.n_subjects)


def sums(
    C: Float[np.ndarray, "pair template attribute"],
    first: Int[np.ndarray, " pair"],
    second: Int[np.ndarray, " pair"],
    n_subjects: int,
) -> Sums:
    """Comparisons added up over templates.

    Raises:
        InputError: if a pair compares a subject to itself.
    """
    if (first == second).any():
        raise InputError("a pair compares a subject to itself")
    return Sums(
        np.nansum(C, 1), np.nansum(np.sign(C), 1), np.isfinite(C).sum(1), first, second, n_subjects
    )


@dataclass(frozen=True)
class Aggregates:
    """Bias per group and attribute.

    Attributes:
        gamma: Mean of C over other subjects and templates; NaN if not asked.
        eta: Mean sign of C: how consistent its direction is.
        mu: Mean over groups of the largest size of gamma over attributes. Biased upward by its
            maximum: see ``chance``.
        mean_eta: Mean over groups and attributes of the size of eta.
    """

    gamma: Float[np.ndarray, "group attribute"]
    eta: Float[np.ndarray, "group attribute"]
    mu: float
    mean_eta: float


def aggregates(given: Sums, group: Int[np.ndarray, " subject"] | None = None) -> Aggregates:
    """Means over comparisons: gamma, eta and mu.

    ``group`` numbers the group of each subject from 0, or is -1 for none: pairs within one are left
    out. Without it every subject is its own. With every subject of a set X1 its own group and those
    of X2 in none this is the measure of [Extending]: the mean over x1 of the largest size, over
    attributes, of the mean over x2 and templates. Rows of groups without any comparison are NaN and
    take no part in mu and eta.
    """
    groups = np.arange(given.n_subjects) if group is None else np.asarray(group)
    member = Membership.of(given, groups)
    gamma, eta = member.means(given.C, given.n), member.means(given.sign, given.n)
    return Aggregates(gamma, eta, mu=mean_largest(gamma), mean_eta=mean_size(eta))


@dataclass(frozen=True)
class Membership:
    """Comparisons that count for each group: built once, weighted anew for every resample.

    Attributes:
        signed: Group by pair: adds up a group's comparisons with its sign.
        subject: The group's subject of each entry of the matrix, in its order.
        opponent: The subject it is compared with.
    """

    signed: sparse.csr_array
    subject: Int[np.ndarray, " entry"]
    opponent: Int[np.ndarray, " entry"]

    @classmethod
    def of(cls, given: Sums, group: Int[np.ndarray, " subject"]) -> Membership:
        """Pairs of subjects of different groups; a subject of group -1 is only an opponent."""
        subject = np.concatenate([given.first, given.second])
        opponent = np.concatenate([given.second, given.first])
        pair = np.tile(np.arange(len(given.first)), 2)
        sign = np.repeat([1.0, -1.0], len(given.first))
        row = group[subject]
        used = (row >= 0) & (row != group[opponent])
        order = np.flatnonzero(used)[np.lexsort((pair[used], row[used]))]
        shape = (int(group.max(initial=-1)) + 1, len(given.first))
        begin = np.concatenate([[0], np.cumsum(np.bincount(row[order], minlength=shape[0]))])
        signed = sparse.csr_array((sign[order], pair[order], begin), shape=shape)
        return cls(signed, subject[order], opponent[order])

    def weighted(self, weight: Float[np.ndarray, " subject"]) -> Membership:
        """The same where a comparison weighs the product of its subjects' weights."""
        return self._times(weight[self.subject] * weight[self.opponent])

    def against(self, weight: Float[np.ndarray, " subject"]) -> Membership:
        """The same where a comparison weighs as the subject on the other side does."""
        return self._times(weight[self.opponent])

    def _times(self, factor: Float[np.ndarray, " entry"]) -> Membership:
        m = self.signed
        signed = sparse.csr_array((m.data * factor, m.indices, m.indptr), shape=m.shape)
        return replace(self, signed=signed)

    def means(
        self, total: Float[np.ndarray, "pair attribute"], n: Int[np.ndarray, "pair attribute"]
    ) -> Float[np.ndarray, "group attribute"]:
        """A group's signed sum over its number of comparisons; NaN where there is none."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.signed @ total) / (abs(self.signed) @ n))


def mean_largest(gamma: Float[np.ndarray, "... group attribute"]) -> float:
    """mu: mean over groups of the largest size over attributes; groups without any are left out."""
    size = np.abs(gamma)
    known = np.isfinite(size).any(-1)
    largest = np.where(np.isnan(size), -np.inf, size).max(-1, initial=-np.inf)
    return float(largest[known].mean()) if known.any() else np.nan


def mean_size(eta: Float[np.ndarray, "group attribute"]) -> float:
    """Mean over groups of the mean over attributes of the size of eta."""
    known = np.isfinite(eta)
    asked = known.any(1)
    if not asked.any():
        return np.nan
    means = np.where(known, np.abs(eta), 0.0)[asked].sum(1) / known[asked].sum(1)
    return float(means.mean())


@dataclass(frozen=True)
class Factorial:
    """gamma of a joint class: each level's mean minus the grand one, and what these leave."""

    main: tuple[Float[np.ndarray, "level1 attribute"], Float[np.ndarray, "level2 attribute"]]
    interaction: Float[np.ndarray, "level1 level2 attribute"]

    @property
    def squares(self) -> Float[np.ndarray, " part"]:
        """Sums of squares over attributes: first factor, second factor, interaction."""
        rows, columns, _ = self.interaction.shape
        first, second = ((effect**2).sum() for effect in self.main)
        return np.array([columns * first, rows * second, (self.interaction**2).sum()])

    @property
    def shares(self) -> Float[np.ndarray, " part"]:
        """The same as shares of their sum; NaN where there is none."""
        total = self.squares.sum()
        return self.squares / total if total > 0 else np.full(3, np.nan)

    @property
    def mean_squares(self) -> Float[np.ndarray, " part"]:
        """The same by degree of freedom, a mean over attributes."""
        rows, columns, attributes = self.interaction.shape
        freedom = np.array([rows - 1, columns - 1, (rows - 1) * (columns - 1)])
        return np.asarray(self.squares / (freedom * attributes))


def factorial(gamma: Float[np.ndarray, "level1 level2 attribute"]) -> Factorial:
    """Cells of two crossed factors, each of equal weight, into additive parts.

    Each factor has two levels or more, and no cell is undefined.
    """
    grand = gamma.mean((0, 1))
    rows, columns = gamma.mean(1) - grand, gamma.mean(0) - grand
    interaction = gamma - grand - rows[:, None] - columns[None]
    return Factorial((rows, columns), interaction)


def groups_of(levels: Sequence[str]) -> tuple[list[str], Int[np.ndarray, " subject"]]:
    """Names of groups in the order they appear, and the number of each subject's."""
    names = list(dict.fromkeys(levels))
    return names, np.array([names.index(level) for level in levels])


# -- chance ----------------------------------------------------------------------------------------


def chance(
    given: Sums,
    group: Int[np.ndarray, " subject"] | None = None,
    *,
    n_flips: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "2 flip"]:
    """Mu and eta of flipped signs: under the null hypothesis that C is symmetric about 0.

    A pair and attribute is flipped with all its templates, which may agree by the pair alone.
    Groups are those of ``aggregates``.
    """
    member = Membership.of(given, np.arange(given.n_subjects) if group is None else group)
    values = np.empty((2, n_flips))
    for draw, (total, sign) in enumerate(flipped(given, n_flips, rng)):
        gamma, eta = member.means(total, given.n), member.means(sign, given.n)
        values[:, draw] = mean_largest(gamma), mean_size(eta)
    return values


def flipped(
    given: Sums, n_flips: int, rng: np.random.Generator
) -> Iterator[tuple[Float[np.ndarray, "pair attribute"], Float[np.ndarray, "pair attribute"]]]:
    """Sums of C and of its signs with the sign of each pair and attribute drawn at random."""
    for _ in range(n_flips):
        drawn = random_signs(given.C.shape, rng)
        yield given.C * drawn, given.sign * drawn


# -- intervals -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupIntervals:
    """Limits of t intervals around gamma of groups, p of gamma = 0, and q (BH).

    The family of q is all groups and attributes. Of two groups the second repeats the first with
    its sign changed: these are one test, with one p. All are NaN where gamma is, or where nothing
    varies.
    """

    low: Float[np.ndarray, "group attribute"]
    high: Float[np.ndarray, "group attribute"]
    pvalue: Float[np.ndarray, "group attribute"]
    qvalue: Float[np.ndarray, "group attribute"]


def group_intervals(
    given: Sums,
    group: Int[np.ndarray, " subject"],
    *,
    opponents_alone: bool = False,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> GroupIntervals:
    """Standard errors of gamma over subjects, and what follows from them.

    Attributes and templates stay. With few subjects the limits use Student's t, with one degree of
    freedom less than there are subjects to draw on the smaller side. Where subjects are
    descriptions ("an Asian man") and none stands for others, only the opponents of a group are a
    sample (``opponents_alone``). Else subjects on both sides are (first names), drawn within their
    groups; so are those of two groups, each the opponents of the other.

    Examples:
        >>> given = sums(np.array([[[0.3]], [[0.1]]]), np.array([0, 0]), np.array([1, 2]), 3)
        >>> group, rng = np.array([0, 1, 1]), np.random.default_rng(0)
        >>> p = group_intervals(given, group, opponents_alone=True, rng=rng).pvalue
        >>> bool(p[0, 0] == p[1, 0])
        True
    """
    size = np.bincount(group)
    mirrored = len(size) == 2
    opponents_alone = opponents_alone and not mirrored
    member = Membership.of(given, group)
    weighted = member.against if opponents_alone else member.weighted
    observed = member.means(given.C, given.n)
    error = resampled_error(
        lambda weight: weighted(weight).means(given.C, given.n),
        np.zeros_like(group) if opponents_alone else group,
        n_resamples=n_resamples,
        rng=rng,
    )
    drawn = len(group) - int(size.max()) if opponents_alone else int(size.min())
    freedom = max(1, drawn - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        pvalue = 2 * stats.t.sf(np.abs(observed / error), freedom)
    half = student_quantile(freedom, confidence) * error
    family = pvalue[:1] if mirrored else pvalue
    return GroupIntervals(
        low=observed - half,
        high=observed + half,
        pvalue=np.broadcast_to(family, pvalue.shape),
        qvalue=np.broadcast_to(benjamini_hochberg(family), pvalue.shape),
    )


def model_intervals(
    given: Sums,
    strata: Int[np.ndarray, " subject"],
    *,
    group: Int[np.ndarray, " subject"] | None = None,
    confidence: float = 0.95,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of mu and of eta over subjects, left out one by one; attributes are these.

    mu is a maximum and biased upwards, which an interval does not correct: compare it with
    ``chance``. Subjects are a sample within ``strata``; where each is alone, of all.

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
