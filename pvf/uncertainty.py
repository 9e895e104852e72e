"""How sure the risks are: cluster bootstrap over templates and over x.

A template (or a word x) is drawn with everything that was read with it, so resamples respect that
preferences under one template resemble each other. With few effective contexts prejudice is biased
upwards, in resamples too; the BCa interval corrects for the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from pvf.risk import Risk, norm_order, positive_norm, volatility
from tda_bias.stats.resampling import Intervals, bootstrap_intervals, times_drawn
from tda_bias.types import InputError

Over = Literal["templates", "x", "both"]
# Resamples computed together: bounds the memory to some 100 MB for 1,000 x and 5 classes.
_BATCH = 250
_DECIMALS = 12


def risk_intervals(
    risk: Risk,
    *,
    over: Over,
    criterion: str = "linf",
    one_sided: bool = False,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Intervals:
    """Intervals of R, R_p and R_v.

    Args:
        risk: From ``pvf.risk.decompose``.
        over: What is drawn with replacement: templates, x, or both independently.
        criterion: The one of ``risk``.
        one_sided: The definition of ``risk``.
        n_resamples: Number of resamples.
        confidence: Coverage, between 0 and 1.
        rng: The generator they come from.

    Returns:
        Arrays over R, R_p and R_v; NaN if a resample left no x with a context.

    Raises:
        InputError: if there is only one of what is to be drawn.
    """
    resampled = _resampled(risk, norm_order(criterion), one_sided)
    n_x, n_contexts = risk.J.shape
    all_x, all_contexts = np.arange(n_x), np.arange(n_contexts)

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        x = drawn[0] if over != "templates" else all_x
        contexts = drawn[-1] if over != "x" else all_contexts
        x, contexts = np.atleast_2d(x), np.atleast_2d(contexts)
        r = resampled(times_drawn(contexts, n_contexts))
        weights = times_drawn(x, n_x) * risk.x_weights
        # An x without any drawn context, or a draw of weightless x only, is left out.
        defined = np.isfinite(r[0]) * weights
        total = np.sum(np.nan_to_num(r) * defined, axis=-1) / defined.sum(-1)
        total = np.asarray(np.round(total, _DECIMALS))
        return total[..., 0] if drawn[0].ndim == 1 else total

    data = {"templates": (all_contexts,), "x": (all_x,), "both": (all_x, all_contexts)}[over]
    _refuse_single(data, over)
    return bootstrap_intervals(
        data, statistic, n_resamples=n_resamples, confidence=confidence, batch=_BATCH, rng=rng
    )


def x_intervals(
    risk: Risk,
    *,
    criterion: str = "linf",
    one_sided: bool = False,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Intervals:
    """Intervals of r, r_p and r_v of each x, over templates.

    Arguments and errors are those of ``risk_intervals``.

    Returns:
        Arrays ``(3, x)``; NaN for an x that some resample leaves without a context.
    """
    resampled = _resampled(risk, norm_order(criterion), one_sided)
    n_contexts = risk.J.shape[1]

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        r = resampled(times_drawn(np.atleast_2d(drawn), n_contexts))
        return r[:, 0] if drawn.ndim == 1 else np.moveaxis(r, 1, -1)

    data = (np.arange(n_contexts),)
    _refuse_single(data, "templates")
    return bootstrap_intervals(
        data, statistic, n_resamples=n_resamples, confidence=confidence, batch=_BATCH, rng=rng
    )


def _refuse_single(data: tuple[np.ndarray, ...], over: str) -> None:
    if min(map(len, data)) < 2:
        raise InputError(f"a bootstrap over {over} needs at least 2 of them")


def _resampled(risk: Risk, order: float, one_sided: bool) -> Callable[[np.ndarray], np.ndarray]:
    """A function from multiplicities of contexts to r, r_p and r_v: ``(3, draw, x)``."""
    w, s = risk.context_weights, risk.s
    n_x, n_contexts, n_classes = s.shape
    weighted_s = (w[..., None] * s).transpose(1, 0, 2).reshape(n_contexts, -1)
    j = np.maximum(s, 0.0) if one_sided else risk.J[..., None]
    weighted_j = (w[..., None] * j).transpose(1, 0, 2).reshape(n_contexts, -1)

    def risks(multiplicity: np.ndarray) -> np.ndarray:
        total = multiplicity @ w.T
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_s = (multiplicity @ weighted_s).reshape(-1, n_x, n_classes) / total[..., None]
            mean_j = (multiplicity @ weighted_j).reshape(-1, n_x, j.shape[2]) / total[..., None]
        favoured = np.argmax(mean_s, axis=2)[..., None] if one_sided else np.zeros(1, dtype=int)
        r = np.take_along_axis(mean_j, np.broadcast_to(favoured, (*total.shape, 1)), axis=2)[..., 0]
        r_p = positive_norm(mean_s, order)
        # BCa counts resamples equal to the estimate; rounding must not tell them apart.
        return np.round(np.stack([r, r_p, volatility(r, r_p)]), _DECIMALS)

    return risks
