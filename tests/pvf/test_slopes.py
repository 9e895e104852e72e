"""Derivatives of risks, against differences and by hand."""

import numpy as np
import pytest

from pvf.preferences import class_preferences, word_probabilities
from pvf.risk import decompose, positive_norm
from pvf.slopes import norm_slopes, risk_slopes, word_slopes

STEP = 1e-6
CLASS_OF = np.array([0, 0, 1, 2, 2])


def differences(function, at):
    """The derivative by every entry, one entry after the other."""
    found = np.empty(at.shape)
    for place in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[place] += STEP
        down[place] -= STEP
        found[place] = (function(up) - function(down)) / (2 * STEP)
    return found


@pytest.mark.parametrize("criterion", ["l1", "l2", "l3", "linf"])
def test_slopes_of_a_norm_are_differences_and_0_where_nothing_is_positive(criterion):
    s = np.random.default_rng(0).normal(size=(3, 4))
    for row in s:
        expected = differences(lambda moved: positive_norm(moved, criterion), row)
        np.testing.assert_allclose(norm_slopes(row, criterion), expected, atol=1e-6)
    assert (norm_slopes(-np.abs(s), criterion) == 0).all()


def test_the_largest_class_alone_counts_by_default():
    p = np.array([[[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]])
    slopes = risk_slopes(decompose(p, context_weights=np.array([3.0, 1.0])))
    # s = (3 p - 1) / 2 by context; the mean of s is .25 for the first class and -.025 for others.
    np.testing.assert_allclose(slopes["R"], [[[1.125, 0, 0], [0, 0.375, 0]]])
    np.testing.assert_allclose(slopes["R_p"], [[[1.125, 0, 0], [0.375, 0, 0]]])
    np.testing.assert_allclose(slopes["R_v"], slopes["R"] - slopes["R_p"])


@pytest.mark.parametrize("criterion", ["l1", "l3", "linf"])
@pytest.mark.parametrize("with_reference", [False, True])
def test_slopes_by_words_are_differences_of_the_whole_decomposition(criterion, with_reference):
    rng = np.random.default_rng(1)
    shape = (3, 4, len(CLASS_OF))
    log_prob, continued = np.log(rng.uniform(0.01, 0.2, shape)), rng.uniform(0.0, 0.5, shape)
    continued[0, 0, 0] = 1.2  # rounding: the word has no probability left
    given = {
        "context_weights": np.array([5.0, 3.0, 2.0, 1.0]),
        "x_weights": np.array([1.0, 0.0, 2.0]),
        "reference": rng.dirichlet(np.ones(3), size=3) if with_reference else None,
        "criterion": criterion,
    }

    def risk_of(log_prob, continued):
        p = class_preferences(word_probabilities(log_prob, continued), CLASS_OF).p
        return decompose(p, **given)

    for name, by_preference in risk_slopes(risk_of(log_prob, continued)).items():
        found = word_slopes(by_preference, log_prob, continued, CLASS_OF)
        expected = (
            differences(lambda moved, n=name: getattr(risk_of(moved, continued), n), log_prob),
            differences(lambda moved, n=name: getattr(risk_of(log_prob, moved), n), continued),
        )
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, atol=1e-7)


def test_prompts_without_mass_have_no_slope():
    log_prob, continued = np.full((1, 1, 2), -np.inf), np.zeros((1, 1, 2))
    found = word_slopes(np.ones((1, 1, 2)), log_prob, continued, np.array([0, 1]))
    assert (np.array(found) == 0).all()
