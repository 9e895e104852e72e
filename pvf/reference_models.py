"""Scores of known kinds of models: the rows that stand beside every measured one.

Source: [PCF] section 4.1 and appendix, with the derivations' misprints corrected: the stereotyped
model has all of its risk in prejudice, the randomly stereotyped one all of it in volatility.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from pvf.risk import Scale, decompose, norm_order, normalised
from tda_bias.types import InputError

# Draws for norms without a closed form: the standard error stays below 0.001.
N_DRAWS = 200_000


@dataclass(frozen=True)
class ReferenceModel:
    """A kind of model and its risks in the limit of many contexts."""

    name: str
    R: float
    R_p: float
    R_v: float


def reference_models(
    n_classes: int, *, criterion: str = "linf", scale: Scale = "pcf"
) -> list[ReferenceModel]:
    """The four reference rows for a number of classes.

    - *ideally unbiased*: every preference uniform;
    - *stereotyped*: certain of one class, the same in every context;
    - *randomly stereotyped*: certain of a class drawn anew in every context;
    - *randomly initialised*: preferences uniform on the simplex.

    Raises:
        InputError: for fewer than 2 classes or an unknown criterion or scale.
    """
    norm_order(criterion)  # certainty has one positive part: the same in every norm
    certain = _certain(n_classes, scale)
    random = randomly_initialised_risk(n_classes, criterion=criterion, scale=scale)
    return [
        ReferenceModel("ideally unbiased", 0.0, 0.0, 0.0),
        ReferenceModel("stereotyped", certain, certain, 0.0),
        ReferenceModel("randomly stereotyped", certain, 0.0, certain),
        ReferenceModel("randomly initialised", random, 0.0, random),
    ]


def randomly_initialised_risk(
    n_classes: int, *, criterion: str = "linf", scale: Scale = "pcf"
) -> float:
    """Expected J of a preference that is uniform on the simplex.

    Closed forms, in the scale of [PCF] and with H the harmonic number: (H_K - 1) / (K - 1) for
    linf, from E max p = H_K / K; (1 - 1 / K)^(K - 1) for l1; 1 / 2 for two classes and any norm.
    Other norms are means over ``N_DRAWS`` draws from a fixed seed.
    """
    if n_classes < 2:
        raise InputError(f"`n_classes` must be at least 2; got {n_classes}")
    order = norm_order(criterion)
    if n_classes == 2:
        risk = 0.5
    elif order == np.inf:
        harmonic = float(np.sum(1.0 / np.arange(1, n_classes + 1)))
        risk = (harmonic - 1.0) / (n_classes - 1.0)
    elif order == 1:
        risk = (1.0 - 1.0 / n_classes) ** (n_classes - 1)
    else:
        p = np.random.default_rng(0).dirichlet(np.ones(n_classes), size=N_DRAWS)
        risk = decompose(p[None], criterion=criterion).R
    return risk * _certain(n_classes, scale)


def _certain(n_classes: int, scale: Scale) -> float:
    """J of certainty: 1, or K - 1 in the other scale."""
    return decompose(np.eye(n_classes)[None, :1], scale=scale).R


def finite_context_null(
    context_weights: Float[np.ndarray, " context"],
    n_classes: int,
    *,
    criterion: str = "linf",
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
    weights = normalised(context_weights, len(context_weights), "context_weights", zeros=False)
    r_p = np.empty(n_draws)
    step = max(1, 2_000_000 // (len(weights) * n_classes))
    for start in range(0, n_draws, step):
        size = (min(step, n_draws - start), len(weights))
        p = rng.dirichlet(np.ones(n_classes), size=size)
        drawn = decompose(p, context_weights=weights, criterion=criterion, scale=scale)
        r_p[start : start + size[0]] = drawn.r_p
    return r_p
