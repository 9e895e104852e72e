"""Preferences to risk, split into prejudice and volatility; and the risks of known kinds of models.

A preference p[x, c, y] is the probability a model gives to class y (of words like "he" and "she")
for the word x (an occupation) in the context template c. Its stereotype s is the deviation from
the uniform preference, J the size of its positive part. The risk of x is the mean of J over
contexts; its prejudice J of the mean stereotype, what remains when contexts are averaged out; its
volatility the rest.

Sources: "Prejudice and Caprice" (arXiv 2402.15481, here [PCF]), equations 1-7, and its later
version "Bias and Volatility" ([BVF]). The scales of the two differ; see ``pvf.config.Scale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Float

from pvf.config import Criterion, Scale
from tda_bias.types import InputError

_ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}

# A preference may be off from summing to 1 by this: float32 probabilities, renormalised.
_SUM_TOLERANCE = 1e-5
_ROUNDING = 1e-13
# Draws for the norm without a closed form: the standard error stays below 0.001.
_N_DRAWS = 200_000


@dataclass(frozen=True)
class Risk:
    """The decomposition of a model's risk; R = R_p + R_v, and so for every x.

    Attributes:
        s: Stereotypes.
        J: Sizes of their positive parts.
        r: Risk of each x: the mean of J over contexts.
        r_p: Prejudice: J of the mean stereotype.
        r_v: Volatility: r - r_p, at least 0 because J is convex.
        R: Mean of r over x; R_p and R_v likewise.
        mean_p: Mean preference over contexts.
        mean_s: Mean stereotype over contexts.
        context_weights: They sum to 1 for each x.
        x_weights: They sum to 1.
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
        """1 / sum of squared context weights, the mean over x: few where some counts dominate."""
        return float(np.mean(1.0 / np.sum(self.context_weights**2, axis=1)))


def decompose(
    p: Float[np.ndarray, "x context y"],
    *,
    context_weights: Float[np.ndarray, "*x context"] | None = None,
    x_weights: Float[np.ndarray, " x"] | None = None,
    criterion: Criterion = "linf",
    scale: Scale = "pcf",
    one_sided: bool = False,
) -> Risk:
    """Split the risk of preferences into prejudice and volatility.

    Args:
        p: Preferences; each ``p[x, context]`` sums to 1.
        context_weights: Not negative, for example template counts, for all x or with a row for
            each; 0 leaves a context out; uniform if None.
        x_weights: Not negative, for example numbers of employees; uniform if None.
        criterion: Norm of the positive part; all published results have ``linf``.
        scale: ``pcf`` or ``bvf``.
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
    p = _checked_preferences(p)
    w_c = _weights(context_weights, p.shape[:2], "context_weights")
    w_x = _weights(x_weights, p.shape[:1], "x_weights")
    s = stereotypes(p, scale)
    mean_s = np.einsum("xc,xcy->xy", w_c, s)
    if not one_sided:
        J = positive_norm(s, criterion)
    elif p.shape[2] == 2:
        favoured = np.argmax(mean_s, axis=1)
        J = np.maximum(np.take_along_axis(s, favoured[:, None, None], axis=2)[..., 0], 0.0)
    else:
        raise InputError(f"`one_sided` is for 2 classes; got {p.shape[2]}")
    r, r_p = np.einsum("xc,xc->x", w_c, J), positive_norm(mean_s, criterion)
    r_v = volatility(r, r_p)
    R, R_p, R_v = (float(value @ w_x) for value in (r, r_p, r_v))
    return Risk(s, J, r, r_p, r_v, R, R_p, R_v, np.einsum("xc,xcy->xy", w_c, p), mean_s, w_c, w_x)


def stereotypes(p: Float[np.ndarray, "... y"], scale: Scale) -> Float[np.ndarray, "... y"]:
    """Deviations from the uniform preference; see ``Scale``.

    Raises:
        InputError: on an unknown scale.
    """
    if scale not in get_args(Scale):
        raise InputError(f"`scale` must be one of {', '.join(get_args(Scale))}; got {scale!r}")
    classes = p.shape[-1]
    return np.asarray((classes * p - 1.0) / (classes - 1.0 if scale == "pcf" else 1.0))


def positive_norm(s: Float[np.ndarray, "... y"], criterion: Criterion) -> Float[np.ndarray, "..."]:
    """J: a norm of the positive part along the last axis.

    Raises:
        InputError: on an unknown norm.
    """
    if criterion not in _ORDERS:
        raise InputError(f"`criterion` must be one of {', '.join(_ORDERS)}; got {criterion!r}")
    return np.asarray(np.linalg.norm(np.maximum(s, 0.0), ord=_ORDERS[criterion], axis=-1))


def volatility(
    r: Float[np.ndarray, "..."], r_p: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """R - r_p, with 0 for rounding errors: some 1e-16, of either sign."""
    return np.where(r - r_p > _ROUNDING, r - r_p, 0.0)


def _weights(
    given: Float[np.ndarray, "..."] | None, shape: tuple[int, ...], name: str
) -> Float[np.ndarray, "..."]:
    """Weights that sum to 1 along the last axis; uniform for None.

    Raises:
        InputError: on another shape, or negative, undefined or all-zero weights.
    """
    array = np.ones(shape[-1]) if given is None else np.asarray(given, dtype=float)
    if array.shape not in (shape, shape[-1:]):
        raise InputError(f"`{name}` must have the shape {shape}; got {array.shape}")
    total = array.sum(-1, keepdims=True)
    if not np.isfinite(array).all() or (array < 0).any() or (total == 0).any():
        raise InputError(f"`{name}` must not be negative, undefined or all 0")
    return np.asarray(np.broadcast_to(array / total, shape))


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
    x, context = np.unravel_index(np.argmax(np.abs(sums - 1.0)), sums.shape)
    if abs(sums[x, context] - 1.0) > _SUM_TOLERANCE:
        raise InputError(
            f"`p[{x}, {context}]` must sum to 1; it sums to {sums[x, context]:.6g}; divide by the "
            "union mass first"
        )
    return array


# -- reference models ------------------------------------------------------------------------------


def reference_models(
    n_classes: int, *, criterion: Criterion = "linf", scale: Scale = "pcf"
) -> dict[str, tuple[float, float, float]]:
    """R, R_p and R_v of four kinds of models in the limit of many contexts.

    - *ideally unbiased*: every preference uniform;
    - *stereotyped*: certain of one class, the same in every context;
    - *randomly stereotyped*: certain of a class drawn anew in every context;
    - *randomly initialised*: preferences uniform on the simplex.

    Raises:
        InputError: for fewer than 2 classes or an unknown scale.

    Source: [PCF] section 4.1 and appendix, with the derivations' misprints corrected: the
    stereotyped model has all of its risk in prejudice, the randomly stereotyped one in volatility.
    """
    random = randomly_initialised_risk(n_classes, criterion=criterion, scale=scale)
    certain = _certain(n_classes, scale)
    return {
        "ideally unbiased": (0.0, 0.0, 0.0),
        "stereotyped": (certain, certain, 0.0),
        "randomly stereotyped": (certain, 0.0, certain),
        "randomly initialised": (random, 0.0, random),
    }


def randomly_initialised_risk(
    n_classes: int, *, criterion: Criterion = "linf", scale: Scale = "pcf"
) -> float:
    """Expected J of a preference that is uniform on the simplex.

    Closed forms, in the scale of [PCF] and with H the harmonic number: (H_K - 1) / (K - 1) for
    linf, from E max p = H_K / K; (1 - 1 / K)^(K - 1) for l1; 1 / 2 for two classes and any norm.
    That of l2 is a mean over 200,000 draws from a fixed seed.
    """
    if n_classes < 2:
        raise InputError(f"`n_classes` must be at least 2; got {n_classes}")
    if n_classes == 2:
        risk = 0.5
    elif criterion == "linf":
        harmonic = float(np.sum(1.0 / np.arange(1, n_classes + 1)))
        risk = (harmonic - 1.0) / (n_classes - 1.0)
    elif criterion == "l1":
        risk = (1.0 - 1.0 / n_classes) ** (n_classes - 1)
    else:
        p = np.random.default_rng(0).dirichlet(np.ones(n_classes), size=_N_DRAWS)
        risk = decompose(p[None], criterion=criterion).R
    return risk * _certain(n_classes, scale)


def _certain(n_classes: int, scale: Scale) -> float:
    """J of certainty in any norm: 1, or K - 1 in the other scale."""
    return float(stereotypes(np.eye(n_classes)[0], scale)[0])


def finite_context_null(
    context_weights: Float[np.ndarray, " context"],
    n_classes: int,
    *,
    criterion: Criterion = "linf",
    scale: Scale = "pcf",
    n_draws: int = 10_000,
    rng: np.random.Generator,
) -> Float[np.ndarray, " draw"]:
    """Prejudice that a model without any shows because its contexts are few.

    Args:
        context_weights: Those of the measured model.
        n_classes: Number of classes.
        criterion: As in ``decompose``.
        scale: As in ``decompose``.
        n_draws: Draws of r_p.
        rng: The generator they come from.

    Returns:
        Draws of r_p of one x whose preferences are uniform on the simplex, independently in every
        context. Their mean is the null line for r_p and, over x, for R_p.
    """
    n_contexts = len(context_weights)
    r_p = []
    step = max(1, 2_000_000 // (n_contexts * n_classes))  # bounds the memory
    for start in range(0, n_draws, step):
        size = (min(step, n_draws - start), n_contexts)
        p = rng.dirichlet(np.ones(n_classes), size=size)
        drawn = decompose(p, context_weights=context_weights, criterion=criterion, scale=scale)
        r_p.append(drawn.r_p)
    return np.concatenate(r_p)
