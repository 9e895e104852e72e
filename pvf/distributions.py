"""Tests of what the papers read from histograms: a normal r_p and a heavy-tailed r_v over words.

Source: [BVF] figures 10 and 16. Anderson-Darling with the mean and standard deviation of the
sample (Stephens 1986, case 3); likelihood ratios of distributions that do not contain each other
by Vuong (1989), with the smallest value of a power law by Clauset, Shalizi & Newman (2009).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import optimize, stats

from tda_bias.stats.resampling import LEVEL

# A test says something if its p-value is below ``LEVEL``; the words that are needed are those with
# which a deviation of the size that was measured would be found with this power.
_POWER = 0.8
# Anderson-Darling's statistic at that level.
_CRITICAL = 0.752
# Fewer words have no shape, and no tail.
_FEWEST, _FEWEST_IN_TAIL = 8, 10
_COLUMNS = ("quantity", "claim", "test", "statistic", "p", "words", "found", "words_needed")

Words = Float[np.ndarray, " word"]


def distribution_tests(r_p: Words, r_v: Words) -> pd.DataFrame:
    """One row per claim: what a test finds, or how many words it would need.

    Words without any volatility have no place on a logarithmic scale: ``words`` counts the others,
    and for the power law those of the tail that fits it best.

    Returns:
        Columns ``quantity claim test statistic p words found words_needed``. ``words_needed`` is
        NaN where something is found, and where the words are too few or do not vary.
    """
    positive = r_v[r_v > 0]
    rows = [_normal(r_p), _log_normal(positive), _power_law(positive)]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _normal(values: Words) -> tuple[object, ...]:
    """Test whether r_p deviates from a normal distribution."""
    about = "r_p", "normal", "Anderson-Darling"
    n = len(values)
    if n < _FEWEST or np.ptp(values) == 0:
        return *about, np.nan, np.nan, n, "too few words that vary", np.nan
    z = np.sort((values - values.mean()) / values.std(ddof=1))
    odd = 2.0 * np.arange(1, n + 1) - 1.0
    raw = -n - float(np.mean(odd * (stats.norm.logcdf(z) + stats.norm.logsf(z[::-1]))))
    statistic = raw * (1.0 + 0.75 / n + 2.25 / n**2)
    p = anderson_p(statistic)
    if p < LEVEL:
        return *about, statistic, p, n, "not normal", np.nan
    # The statistic of one deviation grows with the number of words.
    return *about, statistic, p, n, "no deviation found", _ceil(n * _CRITICAL / statistic)


def anderson_p(statistic: float) -> float:
    """The p-value of Anderson-Darling's statistic, corrected for n (Stephens 1986, table 4.9)."""
    a = statistic
    if a >= 0.6:
        return min(1.0, math.exp(1.2937 - 5.709 * a + 0.0186 * min(a, 150.0) ** 2))
    if a >= 0.34:
        return math.exp(0.9177 - 4.279 * a - 1.38 * a**2)
    if a >= 0.2:
        return 1.0 - math.exp(-8.318 + 42.796 * a - 59.938 * a**2)
    return 1.0 - math.exp(-13.436 + 101.14 * a - 223.73 * a**2)


def _log_normal(values: Words) -> tuple[object, ...]:
    """Whether r_v is nearer to a log-normal distribution than to a normal one above 0."""
    about = "r_v", "log-normal rather than normal", "likelihood ratio"
    if len(values) < _FEWEST or np.ptp(values) == 0:
        return *about, np.nan, np.nan, len(values), "too few words that vary", np.nan
    log = np.log(values)
    claimed = stats.norm.logpdf(log, log.mean(), log.std()) - log
    return *about, *_vuong(claimed, _normal_above(values, 0.0), "log-normal")


def _power_law(values: Words) -> tuple[object, ...]:
    """Whether the tail of r_v is nearer to a power law than to the tail of a normal one."""
    about = "r_v", "power law rather than normal, in the tail", "likelihood ratio"
    tail = _best_tail(values)
    if tail is None:
        return *about, np.nan, np.nan, len(values), "too few words that vary", np.nan
    least = float(tail.min())
    logs = np.log(tail / least)
    alpha = 1.0 + len(tail) / logs.sum()
    claimed = math.log((alpha - 1.0) / least) - alpha * logs
    return *about, *_vuong(claimed, _normal_above(tail, least), "power law")


def _best_tail(values: Words) -> Words | None:
    """The values from that one on whose tail is nearest to a power law (Kolmogorov-Smirnov)."""
    ordered = np.sort(values)
    best, nearest = None, math.inf
    for start in range(len(ordered) - _FEWEST_IN_TAIL + 1):
        tail = ordered[start:]
        logs = np.log(tail / tail[0])
        if logs.sum() == 0 or (start and tail[0] == ordered[start - 1]):
            continue
        n = len(tail)
        fitted = 1.0 - np.exp(-(n / logs.sum()) * logs)
        steps = np.arange(n + 1) / n
        distance = max(np.abs(steps[1:] - fitted).max(), np.abs(steps[:-1] - fitted).max())
        if distance < nearest:
            best, nearest = tail, float(distance)
    return best


def _normal_above(values: Words, least: float) -> Words:
    """Log-densities of a normal distribution above a value, fitted to what lies there."""
    spread = float(values.std())

    def log_density(parameters: np.ndarray) -> Words:
        mean, scale = parameters[0], math.exp(parameters[1])
        above = stats.norm.logsf(least, mean, scale)
        return np.asarray(stats.norm.logpdf(values, mean, scale) - above)

    def cost(parameters: np.ndarray) -> float:
        total = -float(log_density(parameters).sum())
        return total if math.isfinite(total) else math.inf

    # Far below the values the tail of a normal is an exponential: no need to go further.
    bounds = [
        (least - 30.0 * spread, float(values.max())),
        (math.log(spread) - 3, math.log(spread) + 3),
    ]
    start = np.array([values.mean(), math.log(spread)])
    fitted = optimize.minimize(cost, start, method="Nelder-Mead", bounds=bounds)
    return log_density(fitted.x)


def _vuong(claimed: Words, rival: Words, name: str) -> tuple[float, float, int, str, float]:
    """Standardised log-likelihood ratio, p-value, words, what is found, and words needed."""
    difference = claimed - rival
    n, spread = len(difference), float(difference.std())
    if spread == 0:
        return np.nan, np.nan, n, "no difference found", np.nan
    z = float(difference.sum()) / (math.sqrt(n) * spread)
    p = 2.0 * float(stats.norm.sf(abs(z)))
    if p < LEVEL:
        return z, p, n, name if z > 0 else "normal", np.nan
    wanted = float(stats.norm.isf(LEVEL / 2) + stats.norm.ppf(_POWER))
    needed = _ceil(n * (wanted / z) ** 2) if z != 0 else np.nan
    return z, p, n, "no difference found", needed


def _ceil(number: float) -> float:
    return float(math.ceil(number))
