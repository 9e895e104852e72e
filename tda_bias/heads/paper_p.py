"""The published p-value, for reproduction; it is not calibrated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from tda_bias.heads.group_statistic import GroupStatistic


@dataclass(frozen=True)
class PaperTest:
    """The published p-value and metric.

    Attributes:
        pvalue: ``(...)``, one-sided in the direction of S. Not calibrated: see ``paper_pvalue``.
        T: ``(...)``, (1 - pvalue) * S: the paper's metric of a head.
    """

    pvalue: Float[np.ndarray, "..."]
    T: Float[np.ndarray, "..."]


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
    log_weight = 2 * log_choose(n, t) + gammaln(t + 1)
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


def log_choose(n: int, k: np.ndarray) -> np.ndarray:
    """Logarithm of the binomial coefficients."""
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
