"""p-values of the head statistic: pure arrays in, frozen results out.

All of them work on the 2 n squared distances q of ``GroupStatistic``. What is exchanged is defined
once, in ``sign_flips`` (the two labels of a context) and ``relabellings`` (any texts of the two
clusters); all heads share one set of draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp
from scipy.stats import false_discovery_control, norm
from torch import Tensor

from tda_bias.statistic import GroupStatistic
from tda_bias.types import InputError

# Enumerated instead of sampled: 2^12 sign flips, and relabellings up to about the same number.
EXACT_PAIRS = 12
EXACT_RELABELLINGS = 4096
# Draws are worked off in blocks of about this many numbers: memory does not grow with them, and
# a block stays in the processor's cache.
_BLOCK = 1_000_000


@dataclass(frozen=True)
class PaperTest:
    """The published p-value and metric.

    Attributes:
        pvalue: ``(...)``, one-sided in the direction of S. Not calibrated: see ``paper_pvalue``.
        T: ``(...)``, (1 - pvalue) * S: the paper's metric of a head.
    """

    pvalue: Float[np.ndarray, "..."]
    T: Float[np.ndarray, "..."]


@dataclass(frozen=True)
class ResampledTest:
    """A p-value from resampling.

    Attributes:
        pvalue: ``(...)``, two-sided; NaN where the statistic is.
        n_resamples: Draws made, or arrangements enumerated.
        exact: Whether all arrangements were enumerated.
    """

    pvalue: Float[np.ndarray, "..."]
    n_resamples: int
    exact: bool


@dataclass(frozen=True)
class HotSpots:
    """The map of a category and its tests.

    Attributes:
        z: ``(head,)``, the observed map: mean over groups of the z-score over heads.
        null_mean: ``(head,)``, the mean of the map under flips: what a head shows without any
            effect, because a few texts dominate it.
        pvalue: ``(head,)``, one-sided: a map value this large under within-triple flips.
        pvalue_max: ``(head,)``, the same for the largest standardised value of the whole map
            (family-wise).
        qvalue: ``(head,)``, Benjamini-Hochberg over heads.
        n_groups: ``(head,)``, number of groups with a defined value.
    """

    z: Float[np.ndarray, " head"]
    null_mean: Float[np.ndarray, " head"]
    pvalue: Float[np.ndarray, " head"]
    pvalue_max: Float[np.ndarray, " head"]
    qvalue: Float[np.ndarray, " head"]
    n_groups: Int[np.ndarray, " head"]


# -- the published p-value -------------------------------------------------------------------------


def paper_pvalue(stat: GroupStatistic) -> PaperTest:
    """The published p-value, for reproduction.

    The number t of swapped texts has weights proportional to C(n, t)^2 t!; given t the change of S
    is taken as normal with the mean and variance of a sum of t entries of the swap matrix. The
    factor t! puts nearly all weight on swapping almost every text, where the change is close to
    -2 S with little spread: under the null hypothesis about half of all heads get p < .05. Do not
    read it as a probability.

    Source: Varadarajan & Songdechakraiwut, section 2.4, Proposition 8 and the appendix (whose
    1 / n^2 normalisation is used; the main text's 1 / n is a misprint).
    """
    n = stat.n
    t = np.arange(1, n + 1).reshape((-1,) + (1,) * stat.S.ndim)
    log_weight = 2 * _log_choose(n, t) + gammaln(t + 1)
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean = -2.0 * stat.S / n * t
    spread = stat.q_stereotype.var(0) + stat.q_anti.var(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 2.0 / (n * stat.var_unrelated)
        sd = np.sqrt(scale**2 * t * (n - t) / (n - 1) * spread)
        z = np.where(sd > 0, mean / np.where(sd > 0, sd, 1.0), np.sign(mean) * np.inf)
        z = np.where((sd == 0) & (mean == 0), 0.0, z)
        above = np.sum(weight * norm.cdf(z), axis=0)
    pvalue = np.where(np.isnan(stat.S), np.nan, np.where(stat.S >= 0, above, 1.0 - above))
    return PaperTest(pvalue=pvalue, T=(1.0 - pvalue) * stat.S)


def _log_choose(n: int, k: np.ndarray) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


# -- what is exchanged -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Draws:
    """Arrangements of the labels, one per row, as signs: a test statistic is ``signs @ terms``.

    Attributes:
        signs: ``(resample, unit)`` of +1 and -1.
        given: ``(unit,)``, the arrangement the data came in.
        exact: Whether ``signs`` are all arrangements there are.
    """

    signs: Float[np.ndarray, "resample unit"]
    given: Float[np.ndarray, " unit"]
    exact: bool

    def __len__(self) -> int:
        return len(self.signs)

    def sd(self, terms: Float[np.ndarray, "unit test"]) -> Float[np.ndarray, " test"]:
        """Standard deviation of ``signs @ terms`` over all arrangements."""
        if np.all(self.given == 1):  # independent signs
            return np.asarray(np.sqrt((terms**2).sum(0)))
        units = len(self.given)  # half of the units are +1, drawn without replacement
        return np.asarray(np.sqrt(units / (units - 1) * ((terms - terms.mean(0)) ** 2).sum(0)))

    def sizes(self, terms: Float[np.ndarray, "unit test"]) -> Iterator[Float[Tensor, "block test"]]:
        """|signs @ terms| in blocks that stay small; a block is overwritten by the next.

        In torch, which uses all cores for the comparisons as well.
        """
        signs, columns = torch.from_numpy(self.signs), torch.from_numpy(np.ascontiguousarray(terms))
        step = max(1, _BLOCK // max(1, columns.shape[1]))
        product = columns.new_empty(min(step, len(signs)), columns.shape[1])
        for block in torch.split(signs, step):
            yield torch.matmul(block, columns, out=product[: len(block)]).abs_()


def sign_flips(n: int, n_resamples: int, rng: np.random.Generator) -> Draws:
    """Flips of the two labels within n contexts: all 2^n for n <= ``EXACT_PAIRS``, else random."""
    given = np.ones(n)
    if n <= EXACT_PAIRS:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return Draws(1.0 - 2.0 * bits, given, exact=True)
    signs = 1.0 - 2.0 * rng.integers(0, 2, size=(n_resamples, n), dtype=np.int8)
    return Draws(signs, given, exact=False)


def relabellings(n: int, n_resamples: int, rng: np.random.Generator) -> Draws:
    """Relabellings of n stereotype (-1) and n anti-stereotype (+1) texts, contexts ignored.

    All C(2n, n) where these are at most ``EXACT_RELABELLINGS``, else random ones.
    """
    given = np.repeat(np.array([-1.0, 1.0]), n)
    if comb(2 * n, n) <= EXACT_RELABELLINGS:
        chosen = np.array(list(combinations(range(2 * n), n)))
        signs = np.full((len(chosen), 2 * n), -1.0)
        np.put_along_axis(signs, chosen, 1.0, axis=1)
        return Draws(signs, given, exact=True)
    return Draws(rng.permuted(np.tile(given, (n_resamples, 1)), axis=1), given, exact=False)


# -- one head at a time ----------------------------------------------------------------------------


def paired_test(
    stat: GroupStatistic, *, n_resamples: int = 9999, rng: np.random.Generator
) -> ResampledTest:
    """Two-sided test of S by flipping the labels within contexts: the default.

    Null hypothesis: the stereotype and the anti-stereotype text of a context are exchangeable. The
    same flips serve all heads. Exact by enumeration for n <= 12.

    Args:
        stat: From ``group_statistic``.
        n_resamples: Random flips where they are not enumerated.
        rng: The generator all draws come from.
    """
    draws = sign_flips(stat.n, n_resamples, rng)
    return two_sided(draws, paired_terms(stat))


def paired_terms(stat: GroupStatistic) -> Float[np.ndarray, "n ..."]:
    """``(n, ...)``: each context's share of S, whose sum over contexts is S; NaN where S is."""
    return np.asarray((stat.q_anti - stat.q_stereotype) / _denominator(stat))


def label_terms(stat: GroupStatistic) -> Float[np.ndarray, "2n ..."]:
    """``(2n, ...)``: each text's share of S, stereotype texts first, for ``relabellings``."""
    return np.asarray(np.concatenate([stat.q_stereotype, stat.q_anti]) / _denominator(stat))


def _denominator(stat: GroupStatistic) -> np.ndarray:
    return np.where(stat.var_unrelated > 0, stat.n * stat.var_unrelated, np.nan)


def label_test(
    stat: GroupStatistic,
    *,
    n_resamples: int = 9999,
    rng: np.random.Generator,
    method: Literal["resample", "normal"] = "resample",
) -> ResampledTest:
    """Two-sided test of S under all relabellings of the texts, contexts ignored.

    Args:
        stat: From ``group_statistic``.
        n_resamples: Random relabellings where they are not enumerated.
        rng: The generator all draws come from.
        method: ``resample``, or the ``normal`` approximation: a mixture over the number t of
            swapped texts with hypergeometric weights C(n, t)^2 / C(2n, n).
    """
    if method == "normal":
        return ResampledTest(_label_normal(stat), 0, False)
    if method != "resample":
        raise InputError(f"`method` must be one of resample, normal; got {method!r}")
    draws = relabellings(stat.n, n_resamples, rng)
    return two_sided(draws, label_terms(stat))


def _label_normal(stat: GroupStatistic) -> np.ndarray:
    n = stat.n
    t = np.arange(n + 1).reshape((-1,) + (1,) * stat.S.ndim)
    weight = np.exp(2 * _log_choose(n, t) - _log_choose(2 * n, np.array(n)))
    mean = (1.0 - 2.0 * t / n) * stat.S
    spread = stat.q_stereotype.var(0) + stat.q_anti.var(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = 2.0 / (n * stat.var_unrelated) * np.sqrt(t * (n - t) / (n - 1) * spread)
        size = np.abs(stat.S)
        tail = norm.sf((size - mean) / sd) + norm.cdf((-size - mean) / sd)
    # No spread at t = 0 and t = n: these relabellings have |S*| = |S| and count in full.
    tail = np.where(sd > 0, tail, (np.abs(mean) >= size - _tolerance(size)) * 1.0)
    return np.where(np.isnan(stat.S), np.nan, np.minimum(np.sum(weight * tail, axis=0), 1.0))


def two_sided(draws: Draws, terms: Float[np.ndarray, "unit ..."]) -> ResampledTest:
    """Share of draws whose statistic is at least as far from 0 as the observed one.

    Args:
        draws: From ``sign_flips`` or ``relabellings``.
        terms: ``(unit, ...)``, each unit's share of every statistic, from ``paired_terms`` or
            ``label_terms``.
    """
    flat = terms.reshape(len(terms), -1)
    size = np.abs(draws.given @ flat)
    threshold = size - _tolerance(size)
    reached = torch.from_numpy(threshold)
    count = torch.stack([(null >= reached).sum(0) for null in draws.sizes(flat)]).sum(0).numpy()
    pvalue = np.where(np.isnan(size), np.nan, permutation_pvalue(count, len(draws), draws.exact))
    return ResampledTest(pvalue.reshape(terms.shape[1:]), len(draws), draws.exact)


def permutation_pvalue(
    count: Int[np.ndarray, "..."], n_resamples: int, exact: bool
) -> Float[np.ndarray, "..."]:
    """(1 + count) / (1 + n_resamples), or count / n_resamples where all were enumerated.

    Source: Phipson & Smyth (2010), Permutation p-values should never be zero.
    """
    if exact:
        return np.asarray(count / n_resamples)
    return np.asarray((1 + count) / (1 + n_resamples))


def _tolerance(size: np.ndarray) -> np.ndarray:
    """Differences below this are ties: rounding must not decide whether a draw counts."""
    return np.asarray(1e-12 + 1e-9 * size)


# -- many heads ------------------------------------------------------------------------------------


def max_z(draws: Draws, terms: Float[np.ndarray, "unit ..."]) -> ResampledTest:
    """Family-wise p of every test from the largest |z| over all tests under shared draws.

    Args:
        draws: From ``sign_flips`` or ``relabellings``.
        terms: As in ``two_sided``. Tests with NaN or without any spread get NaN and take no part.

    Returns:
        p-values never smaller than the single ones, up to Monte Carlo error.

    Source: Westfall & Young (1993), single-step maxT.
    """
    flat = terms.reshape(len(terms), -1)
    observed, sd = draws.given @ flat, draws.sd(flat)
    usable = np.isfinite(observed) & (sd > 0)
    pvalue = np.full(flat.shape[1], np.nan)
    if usable.any():
        scaled = flat[:, usable] / sd[usable]
        size = np.abs(observed[usable] / sd[usable])
        largest = torch.cat([null.amax(1) for null in draws.sizes(scaled)]).numpy()
        count = len(draws) - np.searchsorted(np.sort(largest), size - _tolerance(size))
        pvalue[usable] = permutation_pvalue(count, len(draws), draws.exact)
    return ResampledTest(pvalue.reshape(terms.shape[1:]), len(draws), draws.exact)


def benjamini_hochberg(pvalue: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """False-discovery-rate q of all defined p-values together; NaN stays NaN."""
    q = np.full(np.shape(pvalue), np.nan)
    defined = np.isfinite(pvalue)
    if defined.any():
        q[defined] = false_discovery_control(np.asarray(pvalue)[defined], method="bh")
    return q


def z_over_heads(values: Float[np.ndarray, "... head"]) -> Float[np.ndarray, "... head"]:
    """z-score over the last axis, population SD, NaN left out; NaN where heads do not vary."""
    count = np.isfinite(values).sum(-1, keepdims=True)
    filled = np.where(np.isfinite(values), values, 0.0)
    mean = filled.sum(-1, keepdims=True) / np.maximum(count, 1)
    deviation = values - mean
    squares = np.where(np.isfinite(deviation), deviation, 0.0) ** 2
    sd = np.sqrt(squares.sum(-1, keepdims=True) / np.maximum(count, 1))
    return np.asarray(np.divide(deviation, sd, out=np.full_like(deviation, np.nan), where=sd > 0))


def hot_spots(
    groups: Sequence[Float[np.ndarray, "n head"]],
    *,
    n_resamples: int = 9999,
    rngs: Sequence[np.random.Generator],
) -> HotSpots:
    """Which heads stand out over the groups of a category more than flipped labels make them.

    The map is the mean over groups of the z-score over heads of |combined|. It is recomputed under
    flips within contexts, independent between groups and shared by all heads; a head's p counts
    the draws with a value at least as large, its family-wise p those whose largest standardised
    value over all heads is.

    Args:
        groups: For each group the contexts' shares of every head's combined value, whose sum over
            contexts is that value.
        n_resamples: Draws; never enumerated, because the groups multiply.
        rngs: One generator per group, so that the order of groups does not matter.
    """
    observed = np.stack([z_over_heads(np.abs(terms.sum(0))) for terms in groups])
    n_groups = np.isfinite(observed).sum(0)
    z = _mean_over_groups(observed.sum(0, where=np.isfinite(observed)), n_groups)
    null = np.zeros((n_resamples, observed.shape[1]), dtype=np.float32)
    for terms, rng, row in zip(groups, rngs, observed, strict=True):
        signs = rng.integers(0, 2, size=(n_resamples, len(terms)), dtype=np.int8)
        _add_null_map(null, 1 - 2 * signs, terms, np.isfinite(row))
    null = _mean_over_groups(null, n_groups)
    # The null map is kept in single precision: anything closer than this is a tie.
    pvalue = permutation_pvalue((null >= z - 1e-5).sum(0), n_resamples, exact=False)
    pvalue = np.where(np.isfinite(z), pvalue, np.nan)
    return HotSpots(
        z=z,
        null_mean=null.mean(0, dtype=float),
        pvalue=pvalue,
        pvalue_max=_largest(z, null),
        qvalue=benjamini_hochberg(pvalue),
        n_groups=n_groups,
    )


def _add_null_map(null: np.ndarray, flips: np.ndarray, terms: np.ndarray, used: np.ndarray) -> None:
    """Add one group's z-scores over the heads in use under every flip, in place."""
    if not used.any():
        return
    # Scaled by its largest column sum, so that single precision holds units of any size.
    scaled = terms[:, used] / np.abs(terms[:, used]).sum(0).max()
    columns = torch.from_numpy(scaled.astype(np.float32))
    signs = torch.from_numpy(flips.astype(np.float32))
    heads = slice(None) if used.all() else used  # a slice is added to in place
    step = max(1, _BLOCK // columns.shape[1])
    for start in range(0, len(flips), step):
        part = slice(start, start + step)
        value = torch.matmul(signs[part], columns).abs_()
        value -= value.mean(1, keepdim=True)
        sd = torch.linalg.vector_norm(value, dim=1, keepdim=True) / columns.shape[1] ** 0.5
        value /= sd.clamp_min(torch.finfo(sd.dtype).tiny)  # where heads do not vary, z is 0
        null[part, heads] += value.numpy()


def _largest(z: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Family-wise p: each head standardised by its own null mean and SD, then the largest."""
    mean, sd = null.mean(0, dtype=float), null.std(0, dtype=float)
    usable = np.isfinite(z) & (sd > 0)
    result = np.full(z.shape, np.nan)
    if usable.any():
        largest = ((null[:, usable] - mean[usable]) / sd[usable]).max(1)
        size = (z[usable] - mean[usable]) / sd[usable]
        count = len(null) - np.searchsorted(np.sort(largest), size - 1e-4)
        result[usable] = permutation_pvalue(count, len(null), exact=False)
    return result


def _mean_over_groups(total: np.ndarray, n_groups: np.ndarray) -> np.ndarray:
    mean = np.full(total.shape, np.nan, dtype=total.dtype)
    np.divide(total, n_groups, out=mean, where=n_groups > 0)
    return mean
