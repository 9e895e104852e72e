"""The distribution of stereotypes over contexts, and of r, r_p and r_v over x.

Source: [BVF] section 3.3 for the weighted distribution over contexts, figures 10 and 16 for the
fits over x. The papers draw a normal curve through the histogram of r_p and call that of r_v
fat-tailed; here are the estimates and tests behind such words. Some 120 numbers between 0 and 1
cannot establish a power law, whatever the Hill index: the tail of a bounded quantity ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import optimize, stats

from tda_bias.types import InputError

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
HILL_K = range(5, 21)


# -- over contexts ---------------------------------------------------------------------------------


def weighted_ecdf(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Sorted values and the weight at or below each, the last one 1."""
    order = np.argsort(values, kind="stable")
    return values[order], np.cumsum(weights[order]) / weights.sum()


def weighted_quantiles(
    values: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    levels: tuple[float, ...] = QUANTILES,
) -> Float[np.ndarray, " level"]:
    """The smallest value at or below which at least the given weight lies."""
    quantiles = np.quantile(values, levels, weights=weights, method="inverted_cdf")
    return np.asarray(quantiles)


def density(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
) -> stats.gaussian_kde:
    """Weighted Gaussian kernel density; Silverman's bandwidth on the effective number of values.

    Raises:
        InputError: if all values are the same.
    """
    if np.ptp(values) == 0:
        raise InputError("a density needs at least two different values")
    return stats.gaussian_kde(values, bw_method="silverman", weights=weights)


def describe(
    s: Float[np.ndarray, "x context"], weights: Float[np.ndarray, "x context"]
) -> pd.DataFrame:
    """Weighted distribution over contexts, one row per x.

    Returns:
        Columns ``mean sd share_positive`` and one per quantile, ``q05`` to ``q95``.
    """
    rows = []
    for values, weight in zip(s, weights, strict=True):
        mean = float(values @ weight)
        sd = float(np.sqrt(((values - mean) ** 2) @ weight))
        levels = weighted_quantiles(values, weight)
        quantiles = {f"q{round(100 * q):02d}": v for q, v in zip(QUANTILES, levels, strict=True)}
        rows.append({"mean": mean, "sd": sd, "share_positive": float(weight[values > 0].sum())})
        rows[-1] |= quantiles
    return pd.DataFrame(rows)


# -- over x ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NormalFit:
    """A normal distribution fitted by maximum likelihood, and how well it fits.

    Attributes:
        mean: Of the values.
        sd: Their standard deviation (divided by n).
        skew: 0 for a normal distribution.
        excess_kurtosis: 0 for a normal distribution; large for heavy tails.
        ks: Largest distance of the distribution functions.
        ks_p: Its p by parametric bootstrap, parameters estimated anew in each draw (Lilliefors).
        shapiro_w: Shapiro-Wilk statistic.
        shapiro_p: Its p.
    """

    mean: float
    sd: float
    skew: float
    excess_kurtosis: float
    ks: float
    ks_p: float
    shapiro_w: float
    shapiro_p: float


def fit_normal(
    values: Float[np.ndarray, " x"], *, n_draws: int = 999, rng: np.random.Generator
) -> NormalFit:
    """Fit a normal distribution.

    Raises:
        InputError: for fewer than 3 values, or values that are all the same.
    """
    values = _varied(values)
    fit = stats.goodness_of_fit(stats.norm, values, statistic="ks", n_mc_samples=n_draws, rng=rng)
    mean, sd = float(values.mean()), float(values.std())
    shapiro = stats.shapiro(values)
    return NormalFit(
        mean=mean,
        sd=sd,
        skew=float(stats.skew(values)),
        excess_kurtosis=float(stats.kurtosis(values)),
        ks=float(stats.ks_1samp(values, stats.norm(mean, sd).cdf).statistic),
        ks_p=float(fit.pvalue),
        shapiro_w=float(shapiro.statistic),
        shapiro_p=float(shapiro.pvalue),
    )


@dataclass(frozen=True)
class Hill:
    """Hill's estimate from the k largest values.

    Attributes:
        k: Number of values above the threshold, the next one.
        gamma: Mean log excess; the tail falls like x^(-1 / gamma).
        low: Lower limit of the 95 % interval gamma / (1 + 1.96 / sqrt k).
        high: Upper limit.
    """

    k: int
    gamma: float
    low: float
    high: float

    @property
    def alpha(self) -> float:
        """1 / gamma, the exponent."""
        return 1.0 / self.gamma


def hill(values: Float[np.ndarray, " x"], k: int) -> Hill:
    """Hill's estimate; see ``Hill``.

    Raises:
        InputError: unless 0 < k < number of positive values.
    """
    largest = np.sort(values[values > 0])[::-1]
    if not 0 < k < len(largest):
        raise InputError(f"`k` must lie between 1 and {len(largest) - 1}; got {k}")
    gamma = float(np.mean(np.log(largest[:k] / largest[k])))
    z = stats.norm.ppf(0.975) / np.sqrt(k)
    high = gamma / (1 - z) if z < 1 else float("inf")
    return Hill(k, gamma, gamma / (1 + z), high)


@dataclass(frozen=True)
class TailComparison:
    """Vuong's test of two tail models fitted above one threshold.

    Attributes:
        first: Name of the first model.
        second: Name of the second.
        ratio: Log-likelihood of the first minus that of the second.
        z: The ratio over its standard error; negative where the second fits better.
        p: Two-sided.
    """

    first: str
    second: str
    ratio: float
    z: float
    p: float


def compare_tails(
    values: Float[np.ndarray, " x"], *, threshold: float | None = None
) -> list[TailComparison]:
    """Log-normal, exponential and Pareto tails against each other, by maximum likelihood.

    Args:
        values: Positive ones count.
        threshold: Values from here on are fitted; the median if None.

    Raises:
        InputError: for fewer than 5 different values above the threshold.

    Source: Vuong (1989); Clauset, Shalizi & Newman (2009), section 5.
    """
    values = values[values > 0]
    start = float(np.median(values)) if threshold is None and len(values) else (threshold or 0.0)
    above = values[values >= start]
    if len(np.unique(above)) < 5:
        raise InputError(
            f"{len(np.unique(above))} different values from the threshold {start:.3g} on; a tail "
            "needs at least 5"
        )
    log_likelihood = {
        "log-normal": _truncated_lognormal(above, start),
        "exponential": stats.expon(start, above.mean() - start).logpdf(above),
        "Pareto": stats.pareto(len(above) / np.log(above / start).sum(), scale=start).logpdf(above),
    }
    names = list(log_likelihood)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return [_vuong(a, b, log_likelihood[a] - log_likelihood[b]) for a, b in pairs]


def _truncated_lognormal(above: np.ndarray, start: float) -> np.ndarray:
    """Log-densities of the best log-normal distribution cut off below ``start``."""
    logs = np.log(above)

    def density_of(parameters: np.ndarray) -> np.ndarray:
        mean, sd = parameters[0], np.exp(parameters[1])
        normal = stats.norm(mean, sd)
        return np.asarray(normal.logpdf(logs) - logs - normal.logsf(np.log(start)))

    best = optimize.minimize(  # type: ignore[call-overload]  # its stubs know no lambda
        lambda parameters: -float(density_of(parameters).sum()),
        np.array([logs.mean(), np.log(logs.std())]),
        method="Nelder-Mead",
        # Far left and wide it becomes a Pareto tail; the bounds keep it a log-normal one.
        bounds=[(float(logs.min()) - 20.0, float(logs.max()) + 1.0), (-6.0, 3.0)],
    )
    return density_of(best.x)


def _vuong(first: str, second: str, difference: np.ndarray) -> TailComparison:
    ratio, spread = float(difference.sum()), float(difference.std())
    z = ratio / (spread * np.sqrt(len(difference))) if spread > 0 else 0.0
    return TailComparison(first, second, ratio, float(z), float(2 * stats.norm.sf(abs(z))))


def survival(values: Float[np.ndarray, " x"]) -> tuple[np.ndarray, np.ndarray]:
    """Positive values in ascending order and the share of all values at or above each."""
    ordered = np.sort(values[values > 0])
    return ordered, np.arange(len(ordered), 0, -1) / len(values)


def _varied(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if len(values) < 3 or np.ptp(values) == 0:
        raise InputError("a fit needs at least 3 values that are not all the same")
    return values


def fits_over_x(
    r_p: Float[np.ndarray, " x"],
    r_v: Float[np.ndarray, " x"],
    *,
    rng: Callable[[], np.random.Generator],
) -> pd.DataFrame:
    """Normal fits of both, Hill indices and tail comparisons of r_v.

    Args:
        r_p: Prejudice of every x.
        r_v: Volatility of every x.
        rng: Makes the generator of each normal fit's bootstrap.

    Returns:
        Rows ``quantity what value low high p``; what cannot be fitted has none.
    """
    rows: list[dict[str, Any]] = []
    for name, values in (("r_p", r_p), ("r_v", r_v)):
        if len(values) < 3 or np.ptp(values) == 0:
            rows.append({"quantity": name, "what": "undefined", "value": np.nan})
            continue
        normal = asdict(fit_normal(values, rng=rng()))
        rows += [{"quantity": name, "what": key, "value": value} for key, value in normal.items()]
    positive = r_v[r_v > 0]
    for k in HILL_K:
        if k < len(positive):
            index = hill(r_v, k)
            row = {"quantity": "r_v", "what": f"hill_alpha_k{k}", "value": index.alpha}
            rows.append({**row, "low": 1 / index.high, "high": 1 / index.low})
    try:
        comparisons = compare_tails(r_v)
    except InputError:  # too few different values: said by the absence of the rows
        comparisons = []
    for tails in comparisons:
        what = f"vuong z, {tails.first} minus {tails.second}"
        rows.append({"quantity": "r_v", "what": what, "value": tails.z, "p": tails.p})
    return pd.DataFrame(rows).reindex(columns=["quantity", "what", "value", "low", "high", "p"])
