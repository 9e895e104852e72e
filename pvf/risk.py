"""Preferences to risk, split into prejudice and volatility: pure arrays.

A preference p[x, c, y] is the probability a model gives to class y (of words like "he" and "she")
for the word x (an occupation) in the context template c. Its stereotype s is the deviation from
the uniform preference, J the size of its positive part. The risk of x is the mean of J over
contexts; its prejudice J of the mean stereotype, what remains when contexts are averaged out; its
volatility the rest.

Sources: "Prejudice and Caprice" (arXiv 2402.15481, here [PCF]), equations 1-7, and its later
version "Bias and Volatility" ([BVF]). The scales of the two differ; see ``Scale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from tda_bias.types import InputError

# "pcf": s = (K p - 1) / (K - 1), at most 1 and 1 for certainty; the published tables use it.
# "bvf": s = p / p* - 1 with p* uniform unless given; K - 1 times the other for uniform p*.
Scale = Literal["pcf", "bvf"]

# A preference may be off from summing to 1 by this: float32 probabilities, renormalised.
_SUM_TOLERANCE = 1e-5
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Risk:
    """The decomposition of a model's risk; R = R_p + R_v, and so for every x.

    Attributes:
        s: ``(x, context, y)`` stereotypes.
        J: ``(x, context)`` sizes of their positive parts.
        r: ``(x,)`` risk of each x: the mean of J over contexts.
        r_p: ``(x,)`` prejudice: J of the mean stereotype.
        r_v: ``(x,)`` volatility: r - r_p, at least 0 because J is convex.
        R: Mean of r over x.
        R_p: Mean of r_p over x.
        R_v: Mean of r_v over x.
        mean_p: ``(x, y)`` mean preference over contexts.
        mean_s: ``(x, y)`` mean stereotype over contexts.
        context_weights: ``(x, context)``, normalised for each x.
        x_weights: ``(x,)``, normalised.
    """

    s: Float[np.ndarray, "x context y"]
    J: Float[np.ndarray, "x context"]
    r: Float[np.ndarray, " x"]
    r_p: Float[np.ndarray, " x"]
    r_v: Float[np.ndarray, " x"]
    R: float
    R_p: float
    R_v: float
    mean_p: Float[np.ndarray, "x y"]
    mean_s: Float[np.ndarray, "x y"]
    context_weights: Float[np.ndarray, "x context"]
    x_weights: Float[np.ndarray, " x"]

    @property
    def n_effective_contexts(self) -> float:
        """1 / sum of squared context weights: few where some templates dominate the counts.

        The mean over x, where their weights differ.
        """
        return float(np.mean(1.0 / np.sum(self.context_weights**2, axis=1)))


def decompose(
    p: Float[np.ndarray, "x context y"],
    *,
    context_weights: Float[np.ndarray, "*x context"] | None = None,
    x_weights: Float[np.ndarray, " x"] | None = None,
    criterion: str = "linf",
    scale: Scale = "pcf",
    p_star: Float[np.ndarray, " y"] | None = None,
    one_sided: bool = False,
) -> Risk:
    """Split the risk of preferences into prejudice and volatility.

    Args:
        p: Preferences; each ``p[x, context]`` sums to 1.
        context_weights: Positive, for example template counts; uniform if None. With a row for
            each x, weights may be 0: that context is left out for that x.
        x_weights: Not negative, for example numbers of employees; uniform if None.
        criterion: Norm of the positive part: ``linf`` (all published results), ``l1``, ``l2`` or
            ``l`` and any number from 1 on.
        scale: ``pcf`` or ``bvf``.
        p_star: Preference of a model without stereotypes, ``bvf`` only; uniform if None.
        one_sided: The published code's variant for two classes: the risk counts only deviations to
            the side of the mean. It has the same prejudice and half the volatility.

    Raises:
        InputError: if a preference does not sum to 1, weights are unusable, or options do not fit.

    Examples:
        One word, three contexts, two classes. Leaning by as much one way and the other is all
        volatility; leaning the same way everywhere is all prejudice.

        >>> risk = decompose(np.array([[[0.5, 0.5], [0.35, 0.65], [0.65, 0.35]]]))
        >>> f"{risk.R:.2f} = {risk.R_p:.2f} + {risk.R_v:.2f}"
        '0.20 = 0.00 + 0.20'
        >>> risk = decompose(np.array([[[0.6, 0.4], [0.6, 0.4], [0.6, 0.4]]]))
        >>> f"{risk.R:.2f} = {risk.R_p:.2f} + {risk.R_v:.2f}"
        '0.20 = 0.20 + 0.00'

    Source: [PCF] equations 1-7, [BVF] section 3.
    """
    preferences = _checked_preferences(p)
    classes = preferences.shape[2]
    order = norm_order(criterion)
    w_c = cell_weights(context_weights, preferences.shape[:2])
    w_x = normalised(x_weights, preferences.shape[0], "x_weights", zeros=True)
    s = stereotypes(preferences, scale, p_star)
    mean_s = np.einsum("xc,xcy->xy", w_c, s)
    if one_sided:
        if classes != 2:
            raise InputError(f"`one_sided` is for 2 classes; got {classes}")
        favoured = np.argmax(mean_s, axis=1)
        J = np.maximum(np.take_along_axis(s, favoured[:, None, None], axis=2)[..., 0], 0.0)
    else:
        J = positive_norm(s, order)
    r, r_p = np.einsum("xc,xc->x", w_c, J), positive_norm(mean_s, order)
    r_v = volatility(r, r_p)
    R, R_p, R_v = (float(value @ w_x) for value in (r, r_p, r_v))
    mean_p = np.einsum("xc,xcy->xy", w_c, preferences)
    return Risk(s, J, r, r_p, r_v, R, R_p, R_v, mean_p, mean_s, w_c, w_x)


def volatility(
    r: Float[np.ndarray, "..."], r_p: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Rest of r beside r_p, with 0 for rounding errors: some 1e-16, of either sign."""
    return np.where(r - r_p > _ROUNDING, r - r_p, 0.0)


def cell_weights(
    weights: Float[np.ndarray, "*x context"] | None, shape: tuple[int, ...]
) -> Float[np.ndarray, "x context"]:
    """Context weights for each x, which sum to 1 over contexts.

    Raises:
        InputError: as ``normalised``; naming the first x without a context.
    """
    if weights is None or np.ndim(weights) == 1:
        rescaled = normalised(weights, shape[1], "context_weights", zeros=False)
        return np.asarray(np.broadcast_to(rescaled, shape))
    array = np.asarray(weights, dtype=float)
    if array.shape != shape:
        raise InputError(f"`context_weights` must have the shape {shape}; got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("`context_weights` must not be negative or undefined")
    total = array.sum(1, keepdims=True)
    if (total == 0).any():
        raise InputError(f"`context_weights` leave no context for x number {int(np.argmin(total))}")
    return np.asarray(array / total)


def positive_norm(s: Float[np.ndarray, "... y"], order: float) -> Float[np.ndarray, "..."]:
    """The l-``order`` norm of the positive part along the last axis; inf is the maximum."""
    return np.asarray(np.linalg.norm(np.maximum(s, 0.0), ord=order, axis=-1))


def normalised(
    weights: Float[np.ndarray, " n"] | None, n: int, name: str, *, zeros: bool
) -> Float[np.ndarray, " n"]:
    """Weights that sum to 1; uniform for None.

    Raises:
        InputError: on another length, negative, undefined or all-zero weights, or on any zero
            where ``zeros`` is False.
    """
    if weights is None:
        return np.full(n, 1.0 / n)
    array = np.asarray(weights, dtype=float)
    if array.shape != (n,):
        raise InputError(f"`{name}` must have the shape ({n},); got {array.shape}")
    smallest = "not be negative" if zeros else "be positive"
    bad = ~np.isfinite(array) | ((array < 0) if zeros else (array <= 0))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InputError(f"`{name}` must {smallest}; number {first} is {array[first]}")
    if array.sum() == 0:
        raise InputError(f"`{name}` are all 0")
    return np.asarray(array / array.sum())


def _checked_preferences(p: Float[np.ndarray, "x context y"]) -> np.ndarray:
    array = np.asarray(p, dtype=float)
    if array.ndim != 3 or 0 in array.shape or array.shape[2] < 2:
        raise InputError(
            "`p` must have the shape (x, context, class) with at least 2 classes; "
            f"got {array.shape}"
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("`p` must hold probabilities; it has negative or undefined values")
    sums = array.sum(2)
    off = np.abs(sums - 1.0)
    if off.max() > _SUM_TOLERANCE:
        x, context = (int(i) for i in np.unravel_index(np.argmax(off), off.shape))
        raise InputError(
            f"`p[{x}, {context}]` must sum to 1; it sums to {sums[x, context]:.6g}; divide by the "
            "union mass first"
        )
    return array


def stereotypes(
    p: Float[np.ndarray, "... y"], scale: Scale, p_star: Float[np.ndarray, " y"] | None = None
) -> Float[np.ndarray, "... y"]:
    """Deviations from the preference without stereotypes; see ``Scale``.

    Raises:
        InputError: on an unknown scale or an unusable ``p_star``.
    """
    classes = p.shape[2]
    if scale not in get_args(Scale):
        raise InputError(f"`scale` must be one of {', '.join(get_args(Scale))}; got {scale!r}")
    if scale == "pcf":
        if p_star is not None:
            raise InputError("`p_star` is defined for the scale bvf only; give scale='bvf'")
        return np.asarray((classes * p - 1.0) / (classes - 1.0))
    if p_star is None:
        return np.asarray(classes * p - 1.0)
    expected = np.asarray(p_star, dtype=float)
    positive = expected.shape == (classes,) and np.isfinite(expected).all() and (expected > 0).all()
    if not positive or abs(expected.sum() - 1.0) > _SUM_TOLERANCE:
        raise InputError(f"`p_star` must be {classes} positive numbers that sum to 1; got {p_star}")
    return np.asarray(p / expected - 1.0)


def norm_order(criterion: str) -> float:
    """The order of the norm that a criterion names: ``linf`` inf, ``l2`` 2.

    Raises:
        InputError: if it names none.
    """
    try:
        order = float(criterion.removeprefix("l")) if criterion.startswith("l") else np.nan
    except ValueError:
        order = np.nan
    if not order >= 1:
        raise InputError(
            f"`criterion` must be linf, l1, l2, or l and a number from 1 on; got {criterion!r}"
        )
    return order
