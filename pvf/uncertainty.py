"""Intervals of risks over templates, over x, and over both; their distribution over both.

A template (or a word x) is a cluster: it is left out with everything that was read with it. Risks
are sizes above 0 and no means over templates, so the intervals are those of their logarithms, by
the jackknife. With few effective contexts prejudice is biased upwards and volatility downwards,
which no interval corrects.

Source: [BVF] section 3.3 for the weighted distribution over contexts, figures 10 and 16 for the
normal fits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from pvf.config import Criterion
from pvf.risk import Risk, positive_norm, volatility
from tda_bias.stats.clusters import cluster_mean, jackknife_mean

Over = Literal["templates", "x", "both"]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# A weight left below this is rounding.
_NOTHING = 1e-12


def risk_intervals(
    risk: Risk,
    *,
    over: Over,
    criterion: Criterion = "linf",
    one_sided: bool = False,
    confidence: float = 0.95,
) -> Float[np.ndarray, "limit 3"]:
    """Lower and upper limits of R, R_p and R_v.

    Args:
        risk: From ``pvf.risk.decompose``.
        over: What is a sample: templates, x, or both independently.
        criterion: The one of ``risk``.
        one_sided: The definition of ``risk``.
        confidence: Coverage, between 0 and 1.

    Returns:
        NaN for fewer than five of what is a sample, and where a risk is 0.
    """
    r = _without_each(risk, criterion, one_sided)
    # An x that keeps no context is left out.
    kept = np.isfinite(r) * risk.x_weights
    with np.errstate(invalid="ignore", divide="ignore"):
        without = np.log(np.sum(np.nan_to_num(r) * kept, axis=-1) / kept.sum(-1))
        wholes = np.log([risk.R, risk.R_p, risk.R_v])
        # The logarithm to first order in the risk of each x.
        by_word = [
            whole - 1 + each / np.exp(whole)
            for whole, each in zip(wholes, (risk.r, risk.r_p, risk.r_v), strict=True)
        ]
    weight = risk.x_weights @ risk.context_weights
    limits = []
    for whole, others, values in zip(wholes, without, by_word, strict=True):
        templates = jackknife_mean(whole, others[weight > 0], weight[weight > 0])
        words = cluster_mean(values, weight=risk.x_weights)
        few, many = sorted((templates, words), key=lambda mean: mean.clusters)
        sure = {"templates": templates, "x": words, "both": few.plus(many)}[over]
        limits.append(np.exp(sure.limits(confidence)))
    return np.array(limits).T


def x_intervals(
    risk: Risk, *, criterion: Criterion = "linf", one_sided: bool = False, confidence: float = 0.95
) -> Float[np.ndarray, "limit 3 x"]:
    """Limits of r, r_p and r_v of each x, over templates; arguments as in ``risk_intervals``."""
    with np.errstate(divide="ignore"):
        without = np.log(_without_each(risk, criterion, one_sided))
        wholes = np.log([risk.r, risk.r_p, risk.r_v])
    limits = np.empty((2, *wholes.shape))
    for quantity, x in np.ndindex(*wholes.shape):
        weight = risk.context_weights[x]
        used = weight > 0
        sure = jackknife_mean(float(wholes[quantity, x]), without[quantity, used, x], weight[used])
        limits[:, quantity, x] = np.exp(sure.limits(confidence))
    return limits


def _without_each(
    risk: Risk, criterion: Criterion, one_sided: bool
) -> Float[np.ndarray, "3 context x"]:
    """r, r_p and r_v of every x without each context; NaN for an x that has no other."""
    w, s = risk.context_weights, risk.s
    j = np.maximum(s, 0.0) if one_sided else risk.J[..., None]
    rest = np.where(w.sum(1, keepdims=True) - w > _NOTHING, w.sum(1, keepdims=True) - w, np.nan)
    mean_s, mean_j = (
        ((w[..., None] * values).sum(1, keepdims=True) - w[..., None] * values) / rest[..., None]
        for values in (s, j)
    )
    favoured = np.argmax(mean_s, axis=2)[..., None] if one_sided else np.zeros((1, 1, 1), dtype=int)
    shape = (*mean_s.shape[:2], 1)
    r = np.take_along_axis(mean_j, np.broadcast_to(favoured, shape), axis=2)[..., 0].T
    r_p = positive_norm(mean_s, criterion).T
    return np.stack([r, r_p, volatility(r, r_p)])


# -- distributions ---------------------------------------------------------------------------------


def weighted_quantiles(
    values: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    levels: tuple[float, ...] = QUANTILES,
) -> Float[np.ndarray, " level"]:
    """The smallest value at or below which at least the given weight lies."""
    return np.asarray(np.quantile(values, levels, weights=weights, method="inverted_cdf"))


def describe(
    s: Float[np.ndarray, "x context"], weights: Float[np.ndarray, "x context"]
) -> pd.DataFrame:
    """Weighted distribution over contexts, one row per x.

    Returns:
        Columns ``sd share_positive`` and one per quantile, ``q05`` to ``q95``.
    """
    rows = []
    for values, weight in zip(s, weights, strict=True):
        sd = float(np.sqrt(((values - values @ weight) ** 2) @ weight))
        row = {"sd": sd, "share_positive": float(weight[values > 0].sum())}
        for level, quantile in zip(QUANTILES, weighted_quantiles(values, weight), strict=True):
            row[f"q{round(100 * level):02d}"] = quantile
        rows.append(row)
    return pd.DataFrame(rows)


def normal_fit(
    values: Float[np.ndarray, " x"], *, n_draws: int = 999, rng: np.random.Generator
) -> dict[str, float]:
    """A normal distribution fitted by maximum likelihood, and how well it fits.

    Args:
        values: The values.
        n_draws: Draws for ``ks_p``.
        rng: The generator they come from.

    Returns:
        ``mean``, ``sd`` (divided by n), ``skew`` and ``excess_kurtosis`` (0 if normal); ``ks``, the
        largest distance of the distribution functions, and ``ks_p`` by parametric bootstrap with
        parameters estimated anew in each draw (Lilliefors); ``shapiro_w`` and ``shapiro_p``.
        Nothing for fewer than 3 values, or where all are the same.
    """
    if len(values) < 3 or np.ptp(values) == 0:
        return {}
    fit = stats.goodness_of_fit(stats.norm, values, statistic="ks", n_mc_samples=n_draws, rng=rng)
    mean, sd = float(values.mean()), float(values.std())
    shapiro = stats.shapiro(values)
    return {
        "mean": mean,
        "sd": sd,
        "skew": float(stats.skew(values)),
        "excess_kurtosis": float(stats.kurtosis(values)),
        "ks": float(stats.ks_1samp(values, stats.norm(mean, sd).cdf).statistic),
        "ks_p": float(fit.pvalue),
        "shapiro_w": float(shapiro.statistic),
        "shapiro_p": float(shapiro.pvalue),
    }
