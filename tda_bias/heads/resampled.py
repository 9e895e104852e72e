"""p-values of the head statistic from resampling: pure arrays in, pure arrays out.

All of them work on the 2 n squared distances q of ``GroupStatistic``. What is exchanged is defined
once, in ``label_flips`` (the two labels of a context) and ``relabellings`` (any texts of the two
clusters); all heads share one set of draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from torch import Tensor

from tda_bias.heads.group_statistic import GroupStatistic, Versions
from tda_bias.stats.resampling import family_wise_share, permutation_pvalue, threshold
from tda_bias.stats.sign_flips import ENUMERATED, exchanges, sign_flips

# Draws are worked off in blocks of about this many numbers: memory does not grow with them, and
# a block stays in the processor's cache.
BLOCK = 100_000


# -- what is exchanged -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Draws:
    """Arrangements of the labels, one per row, as signs: a test statistic is ``signs @ terms``.

    ``given`` is the arrangement the data came in; ``exact`` if ``signs`` are all there are.
    """

    signs: Float[np.ndarray, "resample unit"]
    given: Float[np.ndarray, " unit"]
    exact: bool

    def sd(self, terms: Float[np.ndarray, "unit test"]) -> Float[np.ndarray, " test"]:
        """Standard deviation of ``signs @ terms`` over all arrangements."""
        if np.all(self.given == 1):  # independent signs
            return np.asarray(np.sqrt((terms**2).sum(0)))
        units = len(self.given)  # half of the units are +1, drawn without replacement
        return np.asarray(np.sqrt(units / (units - 1) * ((terms - terms.mean(0)) ** 2).sum(0)))

    def sizes(self, terms: Float[np.ndarray, "unit test"]) -> Iterator[Float[Tensor, "block test"]]:
        """|signs @ terms| in blocks that stay small; a block is overwritten by the next."""
        signs, columns = torch.from_numpy(self.signs), torch.from_numpy(np.ascontiguousarray(terms))
        step = max(1, BLOCK // max(1, columns.shape[1]))
        product = columns.new_empty(min(step, len(signs)), columns.shape[1])
        for block in torch.split(signs, step):
            yield torch.matmul(block, columns, out=product[: len(block)]).abs_()


@dataclass(frozen=True)
class VersionDraws(Draws):
    """Exchanges of triples with their twins: ``signs`` are weights of versions.

    ``member`` is which version stands for the triple; 0 is the triple itself.
    """

    versions: Versions
    member: Int[np.ndarray, "resample twinned"]

    def sd(self, terms: Float[np.ndarray, "unit test"]) -> Float[np.ndarray, " test"]:
        """Standard deviation over all arrangements; each context's contrasts have the mean 0."""
        squares = self.versions.contrasts(terms) ** 2
        alike = np.bincount(self.versions.context)[self.versions.context]
        return np.asarray(np.sqrt((squares / alike[:, None]).sum(0)))


def version_draws(
    versions: Versions, n_resamples: int, rng: np.random.Generator, *, enumerated: bool = True
) -> VersionDraws:
    """Exchanges of every triple with one of its twins, all versions alike probable.

    All arrangements where they are few and ``enumerated``, else ``n_resamples`` random ones. For a
    single twin per context this flips the sign of its difference.
    """
    size = np.array([len(members) for members in versions.members], dtype=np.int64)
    drawn = exchanges(size, n_resamples, rng, enumerated=enumerated)
    return VersionDraws(
        signs=versions.weights(drawn.member),
        given=versions.given,
        exact=drawn.exact,
        versions=versions,
        member=drawn.member,
    )


def label_flips(n: int, n_resamples: int, rng: np.random.Generator) -> Draws:
    """Flips of the two labels within n contexts: all 2^n for n <= 12, else random ones."""
    flips = sign_flips(n, n_resamples, rng)
    return Draws(flips.signs, np.ones(n), exact=flips.exact)


def relabellings(n: int, n_resamples: int, rng: np.random.Generator) -> Draws:
    """Relabellings of n stereotype (-1) and n anti-stereotype (+1) texts, contexts ignored.

    All C(2n, n) where these are at most ``ENUMERATED``, else random ones.
    """
    given = np.repeat(np.array([-1.0, 1.0]), n)
    if comb(2 * n, n) <= ENUMERATED:
        chosen = np.array(list(combinations(range(2 * n), n)))
        signs = np.full((len(chosen), 2 * n), -1.0)
        np.put_along_axis(signs, chosen, 1.0, axis=1)
        return Draws(signs, given, exact=True)
    return Draws(rng.permuted(np.tile(given, (n_resamples, 1)), axis=1), given, exact=False)


# -- one head at a time ----------------------------------------------------------------------------


def paired_test(
    stat: GroupStatistic, *, n_resamples: int = 9999, rng: np.random.Generator
) -> Float[np.ndarray, "..."]:
    """Two-sided p of S by flipping the labels within contexts: the default; NaN where S is.

    Null hypothesis: the stereotype and the anti-stereotype text of a context are exchangeable. The
    same flips serve all heads. Exact by enumeration for n <= 12.
    """
    return two_sided(label_flips(stat.n, n_resamples, rng), paired_terms(stat))


def paired_terms(stat: GroupStatistic) -> Float[np.ndarray, "n ..."]:
    """``(n, ...)``: each context's share of S, whose sum over contexts is S; NaN where S is."""
    return np.asarray((stat.q_anti - stat.q_stereotype) / _denominator(stat))


def relative_terms(stat: GroupStatistic) -> Float[np.ndarray, "n ..."]:
    """Each context's share of ``relative``, whose sum over contexts is that value."""
    total = stat.q_stereotype.mean(0) + stat.q_anti.mean(0)
    scale = np.where(np.isfinite(stat.relative), stat.n * total, np.nan)
    return np.asarray((stat.q_anti - stat.q_stereotype) / scale)


def label_terms(stat: GroupStatistic) -> Float[np.ndarray, "2n ..."]:
    """``(2n, ...)``: each text's share of S, stereotype texts first, for ``relabellings``."""
    return np.asarray(np.concatenate([stat.q_stereotype, stat.q_anti]) / _denominator(stat))


def _denominator(stat: GroupStatistic) -> np.ndarray:
    return np.where(stat.var_unrelated > 0, stat.n * stat.var_unrelated, np.nan)


def two_sided(draws: Draws, terms: Float[np.ndarray, "unit ..."]) -> Float[np.ndarray, "..."]:
    """Share of draws whose statistic is at least as far from 0 as the observed one; NaN stays NaN.

    ``terms`` are each unit's share of every statistic: ``paired_terms`` for ``label_flips``,
    ``label_terms`` for ``relabellings``.
    """
    flat = terms.reshape(len(terms), -1)
    size = np.abs(draws.given @ flat)
    reached = torch.from_numpy(threshold(size))
    count = torch.stack([(null >= reached).sum(0) for null in draws.sizes(flat)]).sum(0).numpy()
    pvalue = permutation_pvalue(count, len(draws.signs), draws.exact)
    return np.where(np.isnan(size), np.nan, pvalue).reshape(terms.shape[1:])


# -- many heads ------------------------------------------------------------------------------------


def max_z(draws: Draws, terms: Float[np.ndarray, "unit ..."]) -> Float[np.ndarray, "..."]:
    """Family-wise p of every test from the largest |z| over all tests under shared draws.

    Tests with NaN or without any spread get NaN and take no part.

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
        pvalue[usable] = family_wise_share(largest, size, exact=draws.exact)
    return pvalue.reshape(terms.shape[1:])


# -- the published p-value -------------------------------------------------------------------------


def paper_pvalue(stat: GroupStatistic) -> Float[np.ndarray, "..."]:
    """The published p-value, one-sided in the direction of S, for reproduction; NaN where S is.

    The number t of swapped texts has weights proportional to C(n, t)^2 t!; given t the change of S
    is taken as normal with the mean and variance of a sum of t entries of the swap matrix. The
    factor t! puts nearly all weight on swapping almost every text, where the change is close to
    -2 S with little spread: under the null hypothesis about half of all heads get p < .05 if texts
    are independent. Do not read it as a probability.

    Source: Varadarajan & Songdechakraiwut, section 2.4, Proposition 8 and the appendix (whose
    1 / n^2 normalisation is used; the main text's 1 / n is a misprint).
    """
    n = stat.n
    t = np.arange(1, n + 1).reshape((-1,) + (1,) * stat.S.ndim)
    log_choose = gammaln(n + 1) - gammaln(t + 1) - gammaln(n - t + 1)
    log_weight = 2 * log_choose + gammaln(t + 1)
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean = -2.0 * stat.S / n * t
    spread = stat.q_stereotype.var(0) + stat.q_anti.var(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 2.0 / (n * stat.var_unrelated)
        sd = np.sqrt(scale**2 * t * (n - t) / (n - 1) * spread)
        z = np.where(sd > 0, mean / np.where(sd > 0, sd, 1.0), np.sign(mean) * np.inf)
        z = np.where((sd == 0) & (mean == 0), 0.0, z)
        above = np.clip(np.sum(weight * norm.cdf(z), axis=0), 0.0, 1.0)  # of rounding
    return np.where(np.isnan(stat.S), np.nan, np.where(stat.S >= 0, above, 1.0 - above))
