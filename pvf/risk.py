"""Preferences to risk, split into prejudice and volatility, with intervals and reference models.

A preference p[x, c, y] is the probability a model gives to class y (of words like "he" and "she")
for the word x (an occupation) in the context template c. Its stereotype s is the deviation from
the preference p* of a model without bias (uniform, or a reference of one's own), J the size of its
positive part. The risk of x is the mean of J over contexts; its prejudice J of the mean stereotype,
what remains when contexts are averaged out; its volatility the rest.

Sources: "Prejudice and Caprice" (arXiv 2402.15481, here [PCF]), equations 1-7, and its later
version "Bias and Volatility" ([BVF]). Where the two differ, see docs/method/pvf.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pvf.config import Criterion, norm_order
from tda_bias.stats.clusters import ClusterMean, cluster_mean, jackknife_mean
from tda_bias.types import InputError

# A preference may be off from summing to 1 by this: float32 probabilities, renormalised.
_SUM_TOLERANCE = 1e-5
# A reference is of a file or a table, and may be off by this.
REFERENCE_TOLERANCE = 1e-6
# What is smaller is rounding.
_ROUNDING = 1e-13
# Draws of a model without prejudice.
_NULL_DRAWS = 10_000


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
        mean_s: Mean stereotype over contexts.
        context_weights: They sum to 1, as ``x_weights`` do.
        reference: The preference of a model without bias; None for the uniform one.
        criterion: The norm in J.
    """

    s: Float[np.ndarray, "x context y"]
    J: Float[np.ndarray, "x context"]
    r: Float[np.ndarray, " x"]
    r_p: Float[np.ndarray, " x"]
    r_v: Float[np.ndarray, " x"]
    R: float
    R_p: float
    R_v: float
    mean_s: Float[np.ndarray, "x y"]
    context_weights: Float[np.ndarray, " context"]
    x_weights: Float[np.ndarray, " x"]
    reference: Float[np.ndarray, "x context y"] | None = None
    criterion: Criterion = "linf"

    @property
    def scale(self) -> str:
        """What s is, as a formula; at most 1 without a reference, at most 1 / p* - 1 with one."""
        return scale_of(self.reference is not None)

    @property
    def n_effective_contexts(self) -> float:
        """1 / sum of squared context weights: few where some counts dominate."""
        return float(1.0 / np.sum(self.context_weights**2))


def decompose(
    p: Float[np.ndarray, "x context y"],
    *,
    context_weights: Float[np.ndarray, " context"] | None = None,
    x_weights: Float[np.ndarray, " x"] | None = None,
    reference: Float[np.ndarray, "*x_context y"] | None = None,
    criterion: Criterion = "linf",
) -> Risk:
    """Split the risk of preferences into prejudice and volatility.

    Args:
        p: Preferences; each ``p[x, context]`` sums to 1.
        context_weights: Not negative, for example template counts; uniform if None.
        x_weights: Not negative, for example numbers of employees; uniform if None.
        reference: Preference p* of a model without bias, of the shape (y), (x, y) or
            (x, context, y): s = p / p* - 1. None is the uniform preference on the scale that ends
            at 1, (K p - 1) / (K - 1); a uniform reference gives K - 1 times as much.
        criterion: Norm of the positive part: ``l1``, ``l2``, ... or ``linf``, which all published
            results have. A larger k is a stronger aversion to risk.

    Raises:
        InputError: if a preference or a share of the reference does not sum to 1, a share is 0,
            or weights or the criterion are unusable.

    Examples:
        One word, three contexts, two classes. Leaning by as much one way and the other is all
        volatility; leaning the same way everywhere is all prejudice.

        >>> risk = decompose(np.array([[[0.5, 0.5], [0.35, 0.65], [0.65, 0.35]]]))
        >>> f"{risk.R:.2f} = {risk.R_p:.2f} + {risk.R_v:.2f}"
        '0.20 = 0.00 + 0.20'
        >>> risk = decompose(np.array([[[0.6, 0.4], [0.6, 0.4], [0.6, 0.4]]]))
        >>> f"{risk.R:.2f} = {risk.R_p:.2f} + {risk.R_v:.2f}"
        '0.20 = 0.20 + 0.00'

        Against shares of 60 and 40 % the same preferences have no risk.

        >>> decompose(np.array([[[0.6, 0.4]]]), reference=np.array([0.6, 0.4])).R
        0.0

    Source: [PCF] equations 1-7, [BVF] equations 1-7 and, for l^k, equation 10.
    """
    p = _checked_preferences(p)
    w_c = _weights(context_weights, p.shape[1], "context_weights")
    w_x = _weights(x_weights, p.shape[0], "x_weights")
    p_star = None if reference is None else _checked_reference(reference, p.shape)
    s = stereotypes(p, p_star)
    mean_s = np.einsum("c,xcy->xy", w_c, s)
    J = positive_norm(s, criterion)
    r, r_p = J @ w_c, positive_norm(mean_s, criterion)
    r_v = _volatility(r, r_p)
    R, R_p, R_v = (float(value @ w_x) for value in (r, r_p, r_v))
    return Risk(s, J, r, r_p, r_v, R, R_p, R_v, mean_s, w_c, w_x, p_star, criterion)


def scale_of(has_reference: bool) -> str:
    """The formula of a stereotype, by whether it is one against a reference of one's own."""
    return "p/p* - 1" if has_reference else "(K p - 1)/(K - 1)"


def stereotypes(
    p: Float[np.ndarray, "... y"], reference: Float[np.ndarray, "... y"] | None = None
) -> Float[np.ndarray, "... y"]:
    """Deviations from the reference, p / p* - 1; from the uniform one at most 1, for certainty."""
    if reference is not None:
        return np.asarray(p / reference - 1.0)
    classes = p.shape[-1]
    return np.asarray((classes * p - 1.0) / (classes - 1.0))


def positive_norm(
    s: Float[np.ndarray, "... y"], criterion: Criterion = "linf"
) -> Float[np.ndarray, "..."]:
    """J: a norm of the positive part along the last axis."""
    k, positive = norm_order(criterion), np.maximum(s, 0.0)
    if k <= 2 or np.isinf(k):
        return np.asarray(np.linalg.norm(positive, ord=k, axis=-1))
    # Relative to the largest: the k-th power of small numbers would be 0.
    largest = positive.max(-1, keepdims=True)
    share = np.divide(positive, largest, out=np.zeros_like(positive), where=largest > 0)
    return np.asarray(largest[..., 0] * np.sum(share**k, axis=-1) ** (1.0 / k))


def _volatility(
    r: Float[np.ndarray, "..."], r_p: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """R - r_p, with 0 for rounding errors: some 1e-16, of either sign."""
    return np.where(r - r_p > _ROUNDING, r - r_p, 0.0)


def _weights(given: Float[np.ndarray, " n"] | None, n: int, name: str) -> Float[np.ndarray, " n"]:
    """Weights that sum to 1; uniform for None."""
    array = np.ones(n) if given is None else np.asarray(given, dtype=float)
    if array.shape != (n,):
        raise InputError(f"`{name}` must have the shape ({n},); got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InputError(f"`{name}` must not be negative, undefined or all 0")
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
    x, context = np.unravel_index(np.argmax(np.abs(sums - 1.0)), sums.shape)
    if abs(sums[x, context] - 1.0) > _SUM_TOLERANCE:
        raise InputError(
            f"`p[{x}, {context}]` must sum to 1; it sums to {sums[x, context]:.6g}; divide by the "
            "union mass first"
        )
    return array


def _checked_reference(
    given: Float[np.ndarray, "*x_context y"], shape: tuple[int, ...]
) -> Float[np.ndarray, "x context y"]:
    """A reference for every x and context."""
    array, (x, _, classes) = np.asarray(given, dtype=float), shape
    shapes = [(classes,), (x, classes), shape]
    if array.shape not in shapes:
        raise InputError(
            f"`reference` must have the shape {', '.join(map(str, shapes[:2]))} or {shape}; "
            f"got {array.shape}"
        )
    if not np.isfinite(array).all() or (array <= 0).any():
        raise InputError(
            "`reference` must hold shares above 0; against a share of 0 (or an undefined one) "
            "every preference is infinite"
        )
    sums = array.sum(-1)
    worst = np.unravel_index(np.argmax(np.abs(sums - 1.0)), sums.shape)
    if abs(sums[worst] - 1.0) > REFERENCE_TOLERANCE:
        where = f"[{', '.join(str(int(place)) for place in worst)}]" if worst else ""
        raise InputError(f"`reference{where}` must sum to 1; it sums to {sums[worst]:.8g}")
    by_context = array[:, None] if array.ndim == 2 else array
    return np.broadcast_to(by_context, shape)


# -- reference models ------------------------------------------------------------------------------


def reference_models(n_classes: int) -> dict[str, tuple[float, float, float]]:
    """R, R_p and R_v of four kinds of models in the limit of many contexts.

    - *ideally unbiased*: every preference uniform;
    - *stereotyped*: certain of one class, the same in every context;
    - *randomly stereotyped*: certain of a class drawn anew in every context;
    - *randomly initialised*: preferences uniform on the simplex, with E max p = H_K / K.

    Source: [PCF] section 4.1 and appendix, with the derivations' misprints corrected: the
    stereotyped model has all of its risk in prejudice, the randomly stereotyped one in volatility.
    """
    harmonic = float(np.sum(1.0 / np.arange(1, n_classes + 1)))
    random = (harmonic - 1.0) / (n_classes - 1.0)
    return {
        "ideally unbiased": (0.0, 0.0, 0.0),
        "stereotyped": (1.0, 1.0, 0.0),
        "randomly stereotyped": (1.0, 0.0, 1.0),
        "randomly initialised": (random, 0.0, random),
    }


def finite_context_null(
    context_weights: Float[np.ndarray, " context"],
    n_classes: int,
    *,
    rng: np.random.Generator,
) -> Float[np.ndarray, " draw"]:
    """Prejudice that a model without any shows because its contexts are few.

    These are draws of r_p of one x whose preferences are uniform on the simplex, independently in
    every context. Their mean is the null line for r_p and, over x, for R_p.
    """
    n_contexts = len(context_weights)
    r_p = []
    step = max(1, 2_000_000 // (n_contexts * n_classes))  # bounds the memory
    for start in range(0, _NULL_DRAWS, step):
        size = (min(step, _NULL_DRAWS - start), n_contexts)
        p = rng.dirichlet(np.ones(n_classes), size=size)
        r_p.append(decompose(p, context_weights=context_weights).r_p)
    return np.concatenate(r_p)


def reference_rows(
    risk: Risk, *, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """R, R_p and R_v of the reference models on the scale of a risk, for its templates and words.

    Against a reference of one's own the models are these: *stereotyped* ones are certain of a class
    that is drawn with the probabilities p*, *randomly initialised* ones have preferences of a
    Dirichlet distribution with the mean p* and the concentration K, which is the uniform one on the
    simplex where p* is uniform. So none but the stereotyped one has prejudice, and certainty is
    K - 1 in the mean. The last row is the randomly initialised model with these templates.
    """
    w_c, n_classes = risk.context_weights, risk.s.shape[2]
    models = reference_models(n_classes)
    random = models["randomly initialised"][0]
    if risk.reference is None and risk.criterion == "linf":
        expected = float(finite_context_null(w_c, n_classes, rng=rng).mean())
    else:
        random, expected = _random_models(risk, rng)
    if risk.reference is not None:
        shares = np.einsum("c,xcy->xy", w_c, risk.reference)
        inverse = np.einsum("c,xcy->xy", w_c, 1.0 / risk.reference)
        certain = float((shares * inverse).sum(1) @ risk.x_weights) - 1.0
        models["stereotyped"] = certain, certain, 0.0
        models["randomly stereotyped"] = n_classes - 1.0, 0.0, n_classes - 1.0
    models["randomly initialised"] = random, 0.0, random
    return models | {"the same, these templates": (random, expected, random - expected)}


def _random_models(risk: Risk, rng: np.random.Generator) -> tuple[float, float]:
    """Mean R and R_p of models whose preferences are drawn about the reference."""
    shares = 1.0 / risk.s.shape[2] if risk.reference is None else risk.reference
    concentration = np.broadcast_to(risk.s.shape[2] * np.asarray(shares), risk.s.shape)
    drawn = []
    for _ in range(-(-_NULL_DRAWS // len(risk.r))):
        size = rng.standard_gamma(concentration)
        of_draw = decompose(
            size / size.sum(2, keepdims=True),
            context_weights=risk.context_weights,
            x_weights=risk.x_weights,
            reference=risk.reference,
            criterion=risk.criterion,
        )
        drawn.append((of_draw.R, of_draw.R_p))
    R, R_p = np.mean(drawn, axis=0)
    return float(R), float(R_p)


# -- intervals -------------------------------------------------------------------------------------
#
# A template (or a word x) is a cluster: it is left out with everything that was read with it. Risks
# are sizes above 0 and no means over templates, so the intervals are those of their logarithms, by
# the jackknife. With few effective contexts prejudice is biased upwards and volatility downwards,
# which no interval corrects.


def risk_intervals(
    risk: Risk, *, confidence: float = 0.95
) -> dict[str, Float[np.ndarray, "limit 3"]]:
    """Lower and upper limits of R, R_p and R_v: over ``templates``, over ``x``, and over ``both``.

    Returns:
        By what is taken as a sample. NaN for fewer than five of it, and where a risk is 0; what has
        no weight is not of it.
    """
    return {
        over: np.array([np.exp(mean.limits(confidence)) for mean in of_three]).T
        for over, of_three in _log_risks(risk).items()
    }


def prejudice_pvalue(risk: Risk, null: float) -> float:
    """Two-sided p, over templates and words, of a prejudice R_p as large as ``null``.

    It agrees with the interval over ``both``.
    """
    return _log_risks(risk)["both"][1].pvalue(float(np.log(null)))


def _log_risks(risk: Risk) -> dict[str, list[ClusterMean]]:
    """The logarithms of R, R_p and R_v, by what is taken as a sample."""
    weight, each = _without_each(risk)
    counts = risk.x_weights > 0
    risks: dict[str, list[ClusterMean]] = {"templates": [], "x": [], "both": []}
    of_model, of_x = (risk.R, risk.R_p, risk.R_v), (risk.r, risk.r_p, risk.r_v)
    for whole, own, without in zip(of_model, of_x, each, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            log = np.log(whole)
            templates = jackknife_mean(log, np.log(without @ risk.x_weights), weight)
            # The logarithm to first order in the risk of each x.
            x = cluster_mean(log - 1 + own[counts] / whole, weight=risk.x_weights[counts])
        few, many = sorted((templates, x), key=lambda mean: mean.clusters)
        for over, mean in {"templates": templates, "x": x, "both": few.plus(many)}.items():
            risks[over].append(mean)
    return risks


def x_intervals(risk: Risk, *, confidence: float = 0.95) -> Float[np.ndarray, "limit 3 x"]:
    """Limits of r, r_p and r_v of each x, over templates; NaN as in ``risk_intervals``."""
    weight, each = _without_each(risk)
    with np.errstate(divide="ignore"):
        without, wholes = np.log(each), np.log([risk.r, risk.r_p, risk.r_v])
    limits = np.empty((2, *wholes.shape))
    for quantity, x in np.ndindex(*wholes.shape):
        mean = jackknife_mean(float(wholes[quantity, x]), without[quantity, :, x], weight)
        limits[:, quantity, x] = np.exp(mean.limits(confidence))
    return limits


def _without_each(
    risk: Risk,
) -> tuple[Float[np.ndarray, " context"], Float[np.ndarray, "3 context x"]]:
    """Weights of the contexts, and r, r_p and r_v of every x without each; NaN without any."""
    used = risk.context_weights > 0
    w = risk.context_weights[used]
    rest = 1.0 - w if len(w) > 1 else np.full(1, np.nan)
    weighted_s, weighted_j = w[:, None] * risk.s[:, used], w * risk.J[:, used]
    r = (weighted_j.sum(1, keepdims=True) - weighted_j) / rest
    mean_s = (weighted_s.sum(1, keepdims=True) - weighted_s) / rest[:, None]
    r_p = positive_norm(mean_s, risk.criterion)
    return w, np.stack([r.T, r_p.T, _volatility(r, r_p).T])
