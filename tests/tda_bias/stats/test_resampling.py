"""Ties, p-values, corrections and power: each against its definition, SciPy or statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tda_bias.stats.resampling import (
    SINGLE_PRECISION,
    benjamini_hochberg,
    family_wise_share,
    holm,
    permutation_pvalue,
    rounding,
    share_reached,
    smallest_effect,
    threshold,
    two_sided_share,
    value_needed,
)


def rng(seed=0):
    return np.random.default_rng(seed)


# -- p-values --------------------------------------------------------------------------------------


def test_p_counts_the_observed_value_where_draws_are_random():
    assert permutation_pvalue(np.array(0), 99, exact=False) == 1 / 100
    assert permutation_pvalue(np.array(3), 99, exact=False) == 4 / 100
    assert permutation_pvalue(np.array(3), 8, exact=True) == 3 / 8


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.integers(-3, 3), st.booleans())
def test_shares_are_counted_one_by_one(null, observed, exact):
    larger = sum(value >= observed for value in null)
    expected = larger / len(null) if exact else (1 + larger) / (1 + len(null))
    assert share_reached(np.array(null), observed, exact=exact) == expected
    size = sum(abs(value) >= abs(observed) for value in null)
    expected = size / len(null) if exact else (1 + size) / (1 + len(null))
    assert two_sided_share(np.array(null), observed, exact=exact) == expected


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_rounding_never_decides_a_tie(scale):
    """0.1 + 0.2 is not 0.3 in floating point; as a value under permutation it is."""
    null, observed = scale * np.array([0.1 + 0.1 + 0.1, 0.29]), scale * 0.3
    assert share_reached(null, observed) == 2 / 3
    assert two_sided_share(-null, observed) == 2 / 3
    assert family_wise_share(null, np.array([observed])) == 2 / 3
    assert share_reached(np.array([0.1 + 0.2]) * scale, 0.3 * scale) == 1
    assert share_reached(np.array([0.3]) * scale, (0.1 + 0.2) * scale) == 1


@pytest.mark.parametrize("observed", [0.0, 1e-7, -2.5, 3e8])
def test_without_a_tolerance_values_are_ties_up_to_rounding_of_double_precision(observed):
    close = 1e-12 + 1e-9 * abs(observed)
    assert rounding(observed) == close
    assert threshold(observed) == threshold(observed, tolerance=close) == observed - close


@given(
    st.lists(st.integers(-30, 30), min_size=1, max_size=20), st.integers(-30, 30), st.integers(0, 4)
)
def test_a_tolerance_is_how_far_below_a_value_still_reaches_it(null, observed, tolerance):
    values, close = np.array(null), tolerance + 0.5
    larger = sum(value >= observed - close for value in null)
    expected = (1 + larger) / (1 + len(null))
    assert share_reached(values, observed, tolerance=close) == expected
    assert family_wise_share(values, np.array([observed]), tolerance=close) == expected
    sizes = sum(abs(value) >= abs(observed) - close for value in null)
    found = two_sided_share(values, observed, tolerance=close)
    assert found == (1 + sizes) / (1 + len(null))


def test_every_test_can_have_a_tolerance_of_its_own():
    null = np.array([[0.9, 0.9], [2.0, 2.0]])
    found = share_reached(null, np.ones(2), tolerance=np.array([0.2, 0.05]))
    assert found.tolist() == [3 / 3, 2 / 3]


def test_what_single_precision_makes_of_a_value_is_a_tie_only_with_its_tolerance():
    value = 1 / 3
    null = np.array([np.float32(value) - np.float32(1e-6)])
    assert share_reached(null, value) == 1 / 2
    assert share_reached(null, value, tolerance=SINGLE_PRECISION) == 1


def test_what_is_undefined_has_no_p():
    null = rng().normal(size=(9, 3))
    observed = np.array([0.1, np.nan, -0.2])
    assert np.isnan(share_reached(null, observed)).tolist() == [False, True, False]
    assert np.isnan(family_wise_share(null.max(1), observed)).tolist() == [False, True, False]
    assert np.isnan(two_sided_share(null[:, 0], np.nan))


@given(st.integers(0, 200))
def test_family_wise_p_is_the_share_of_larger_maxima_and_never_below_the_single_one(seed):
    null = rng(seed).integers(0, 6, (30, 4)).astype(float)
    observed = rng(seed + 1).integers(0, 7, 4).astype(float)
    found = family_wise_share(null.max(1), observed)
    expected = [(1 + sum(row.max() >= value for row in null)) / 31 for value in observed]
    np.testing.assert_allclose(found, expected)
    assert (found >= share_reached(null, observed)).all()


@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=20))
def test_q_is_the_smallest_level_at_which_a_test_is_rejected(pvalues):
    p = np.array(pvalues, dtype=float)
    found = benjamini_hochberg(p)
    known = p[np.isfinite(p)]
    for value, q in zip(p, found, strict=True):
        if np.isnan(value):
            assert np.isnan(q)
            continue
        # q of a test: the least over larger p of p * m / rank.
        candidates = [v * len(known) / np.sum(known <= v) for v in known if v >= value]
        assert q == pytest.approx(min([1.0, *candidates]))


# -- corrections, power ----------------------------------------------------------------------------


def test_holm_is_that_of_statsmodels_and_leaves_out_what_is_undefined():
    from statsmodels.stats.multitest import multipletests

    pvalue = rng(1).random(30) ** 3
    np.testing.assert_allclose(holm(pvalue), multipletests(pvalue, method="holm")[1], rtol=1e-12)
    with_nan = np.insert(pvalue, [0, 7, 30], np.nan)
    np.testing.assert_array_equal(holm(with_nan)[np.isfinite(with_nan)], holm(pvalue))
    assert np.isnan(holm(np.array([np.nan]))).all()


@pytest.mark.parametrize("n", [20, 99, 200, 999])
def test_what_is_above_the_value_needed_has_a_small_p_and_what_reaches_it_has_not(n):
    null = rng(n).random(n)
    needed = value_needed(null)
    assert share_reached(null, needed) >= 0.05
    assert share_reached(null, needed + 1e-6) < 0.05
    assert np.isnan(value_needed(null[:19]))


@pytest.mark.parametrize("n", [2, 3, 4, 7, 20, 100, 242, 1500])
def test_the_smallest_effect_is_that_of_statsmodels(n):
    from statsmodels.stats.power import TTestPower

    effect = smallest_effect(n)
    assert TTestPower().power(effect, n, 0.05) == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("n", [9, 30])
def test_a_one_sided_p_is_that_of_scipys_permutation_test(n):
    x, y = rng(n).normal(size=(2, n))
    y = y + 0.8
    observed = float(np.mean(y - x))

    def statistic(x, y, axis):
        return np.mean(y - x, axis=axis)

    reference = stats.permutation_test(
        (x, y), statistic, permutation_type="samples", vectorized=True, n_resamples=4999,
        alternative="greater", random_state=rng(1),
    )  # fmt: skip
    found = share_reached(
        reference.null_distribution, observed, exact=len(reference.null_distribution) == 2**n
    )
    assert found == pytest.approx(reference.pvalue)
