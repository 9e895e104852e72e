"""How risks change with preferences, and preferences with the probabilities of words.

Risks are sizes: of a positive part, of a largest class. To first order they change as the linear
function of the preferences does that the present signs and largest classes fix; these are its
coefficients. Where a sign or the largest class is about to change, the derivative of one side is
taken.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from pvf.config import Criterion, norm_order
from pvf.preferences import class_preferences, word_probabilities
from pvf.risk import Risk, positive_norm


def risk_slopes(risk: Risk) -> dict[str, Float[np.ndarray, "x context y"]]:
    """Derivatives of R, R_p and R_v, by name, by every preference.

    Examples:
        >>> from pvf.risk import decompose
        >>> slopes = risk_slopes(decompose(np.array([[[0.6, 0.4], [0.7, 0.3]]])))
        >>> slopes["R"].tolist(), slopes["R_v"].tolist()
        ([[[1.0, 0.0], [1.0, 0.0]]], [[[0.0, 0.0], [0.0, 0.0]]])

    Source: [BVF] equations 1-7, differentiated.
    """
    classes = risk.s.shape[2]
    by_preference = (
        classes / (classes - 1.0) if risk.reference is None else np.asarray(1.0 / risk.reference)
    )
    weight = risk.x_weights[:, None, None] * risk.context_weights[:, None]
    R = weight * norm_slopes(risk.s, risk.criterion) * by_preference
    R_p = weight * norm_slopes(risk.mean_s, risk.criterion)[:, None] * by_preference
    return {"R": R, "R_p": R_p, "R_v": R - R_p}


def norm_slopes(
    s: Float[np.ndarray, "... y"], criterion: Criterion = "linf"
) -> Float[np.ndarray, "... y"]:
    """Derivatives of ``positive_norm`` by every s; 0 where nothing is positive."""
    k, positive = norm_order(criterion), np.maximum(s, 0.0)
    if np.isinf(k):
        largest = np.arange(s.shape[-1]) == positive.argmax(-1)[..., None]
        return np.asarray((largest & (positive > 0)).astype(float))
    size = positive_norm(s, criterion)[..., None]
    share = np.divide(positive, size, out=np.zeros_like(positive), where=size > 0)
    return np.asarray(np.where(positive > 0, share ** (k - 1.0), 0.0))


def word_slopes(
    by_preference: Float[np.ndarray, "x context y"],
    log_prob: Float[np.ndarray, "x context word"],
    continued: Float[np.ndarray, "x context word"],
    class_of: Int[np.ndarray, " word"],
) -> tuple[Float[np.ndarray, "x context word"], Float[np.ndarray, "x context word"]]:
    """Derivatives by ``log_prob`` and by ``continued`` of ``Preferences``.

    ``by_preference`` are those by the preferences over the classes. Prompts in which no word has
    any probability have none.
    """
    probs = word_probabilities(log_prob, continued)
    p, mass = class_preferences(probs, class_of)
    apart = by_preference - (by_preference * p).sum(-1, keepdims=True)
    of_class = np.divide(
        apart, mass[..., None], out=np.zeros_like(apart), where=mass[..., None] > 0
    )
    of_word = of_class[..., class_of]
    by_continued = np.where(continued < 1.0, -of_word * np.exp(log_prob), 0.0)
    return of_word * probs, by_continued
