"""The published p-value, for reproduction, and what it and the others do under the null hypothesis.

It is not calibrated: groups that are simulated without any effect show that, and that the others
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from tda_bias.heads.group_statistic import GroupStatistic, group_statistic
from tda_bias.heads.resampled import label_test, log_choose, paired_test


@dataclass(frozen=True)
class PaperTest:
    """The published p-value and metric.

    Attributes:
        pvalue: ``(...)``, one-sided in the direction of S. Not calibrated: see ``paper_pvalue``.
        T: ``(...)``, (1 - pvalue) * S: the paper's metric of a head.
    """

    pvalue: Float[np.ndarray, "..."]
    T: Float[np.ndarray, "..."]


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
        above = np.clip(np.sum(weight * norm.cdf(z), axis=0), 0.0, 1.0)  # of rounding
    pvalue = np.where(np.isnan(stat.S), np.nan, np.where(stat.S >= 0, above, 1.0 - above))
    return PaperTest(pvalue=pvalue, T=(1.0 - pvalue) * stat.S)


# -- calibration -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """p-values of heads whose two clusters do not differ.

    Attributes:
        pvalues: By test: ``paper``, ``paired``, ``label``; one value per simulated group and head.
        n_groups: Groups simulated.
        n_contexts: Contexts of each.
    """

    pvalues: Mapping[str, Float[np.ndarray, " head"]]
    n_groups: int
    n_contexts: int

    def below(self, level: float = 0.05) -> dict[str, float]:
        """Share of p-values below a level, by test; a calibrated test has the level itself."""
        return {name: float((values < level).mean()) for name, values in self.pvalues.items()}


def simulated_group(
    rng: np.random.Generator,
    *,
    n_contexts: int = 25,
    n_heads: int = 20,
    n_steps: int = 12,
    spread: float = 1.0,
    shared: float = 0.6,
) -> GroupStatistic:
    """A group whose texts of one context resemble each other, and whose heads are correlated.

    Args:
        rng: Generator.
        n_contexts: Contexts.
        n_heads: Heads.
        n_steps: Length of the step functions.
        spread: Factor on the anti-stereotype texts' distance from their centre; 1 is the null.
        shared: Share of the variance that the texts of a context have in common.
    """
    shape = (n_contexts, n_heads, n_steps)
    common = rng.normal(size=(n_contexts, 1, n_steps)) + rng.normal(size=shape)

    def texts() -> np.ndarray:
        noise = rng.normal(size=shape)
        # A few texts vary far more than others, as long ones do.
        heavy = rng.gamma(2.0, 0.5, size=(n_contexts, 1, 1))
        return np.asarray(np.sqrt(shared) * common + np.sqrt(1 - shared) * noise * heavy)

    anti = texts()
    anti = anti.mean(0) + spread * (anti - anti.mean(0))
    return group_statistic(texts(), anti, texts())


def calibration(
    *, n_groups: int = 200, n_contexts: int = 25, n_resamples: int = 499, seed: int = 0
) -> Calibration:
    """p-values of all tests on simulated groups without any effect."""
    by_test: dict[str, list[np.ndarray]] = {"paper": [], "paired": [], "label": []}
    for index in range(n_groups):
        rng = np.random.default_rng([seed, index])
        group = simulated_group(rng, n_contexts=n_contexts)
        by_test["paper"].append(paper_pvalue(group).pvalue)
        by_test["paired"].append(paired_test(group, n_resamples=n_resamples, rng=rng).pvalue)
        by_test["label"].append(label_test(group, n_resamples=n_resamples, rng=rng).pvalue)
    pvalues = {name: np.concatenate(values) for name, values in by_test.items()}
    return Calibration(pvalues, n_groups, n_contexts)
