"""Ties, p-values, permutations, ranks and intervals: each against its definition or SciPy."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tda_bias.stats.resampling import (
    ENUMERATED,
    benjamini_hochberg,
    exchanges,
    family_wise_share,
    holm,
    permutation_pvalue,
    permutations_within,
    share_reached,
    smallest_effect,
    spearman,
    spearman_over_items,
    standardised_ranks,
    two_sided_share,
    value_needed,
)
from tda_bias.stats.seeds import generator


def rng(seed=0):
    return np.random.default_rng(seed)


# -- random draws ----------------------------------------------------------------------------------


def test_a_named_generator_depends_on_seed_and_every_name_but_not_on_what_was_drawn_before():
    first = generator(3, "heads", "gender").random(4)
    generator(3, "heads", "race").random(9)
    np.testing.assert_array_equal(first, generator(3, "heads", "gender").random(4))
    others = [(4, "heads", "gender"), (3, "headsgender"), (3, "gender", "heads"), (3, "heads")]
    for seed, *names in others:
        assert not np.array_equal(first, generator(seed, *names).random(4))


def test_items_are_permuted_within_their_stratum_only_and_all_orders_occur():
    strata = ["a", "b", "a", "b", "a"]
    orders = permutations_within(strata, 300, rng())
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3, 4)}
    assert all(strata[i] == strata[j] for order in orders for i, j in enumerate(order))
    assert len({tuple(order) for order in orders}) == 12


@pytest.mark.parametrize("size", [[2, 2, 2], [3, 1, 2], [1], [4, 4]])
def test_few_exchanges_are_enumerated(size):
    found = exchanges(np.array(size), 5, rng())
    assert found.exact
    expected = set(product(*(range(n) for n in size)))
    assert sorted(map(tuple, found.member.tolist())) == sorted(expected)
    assert len(found) == len(expected)


def test_exchanges_are_enumerated_up_to_the_limit_and_drawn_alike_beyond():
    assert len(exchanges(np.full(12, 2), 5, rng())) == ENUMERATED
    assert len(exchanges(np.full(6, 4), 5, rng())) == ENUMERATED
    found = exchanges(np.array([2] * 12 + [3]), 6000, rng())
    assert not found.exact
    assert len(found) == 6000
    np.testing.assert_allclose((found.member == 0).mean(0), [1 / 2] * 12 + [1 / 3], atol=0.03)
    np.testing.assert_array_equal(found.member.max(0), [1] * 12 + [2])


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


# -- rank correlations -----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=3, max_size=12), st.integers(0, 99))
def test_products_of_standardised_ranks_are_spearmans_rho(values, seed):
    x, y = np.array(values, dtype=float), rng(seed).normal(size=len(values))
    product_of_ranks = standardised_ranks(x) @ standardised_ranks(y)
    if np.ptp(x) == 0:
        assert np.isnan(product_of_ranks)
        assert np.isnan(spearman_over_items(x, y))
    else:
        expected = stats.spearmanr(x, y).statistic
        assert product_of_ranks == pytest.approx(expected)
        assert spearman_over_items(x, y) == pytest.approx(expected)


def test_a_column_with_a_hole_has_no_ranks():
    values = np.array([[1.0, np.nan, 3.0], [2.0, 4.0, 1.0], [0.0, 5.0, 2.0]])
    assert np.isnan(standardised_ranks(values)).all(0).tolist() == [False, True, False]


def test_spearman_is_over_the_items_defined_in_every_row():
    generator = rng(4)
    x, y = generator.normal(size=(2, 3, 8))
    x[0, 2], y[1, 5] = np.nan, np.inf
    kept = [0, 1, 3, 4, 6, 7]
    expected = [stats.spearmanr(a[kept], b[kept]).statistic for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(spearman(x, y), expected)
    against_each = spearman(x[0], y)
    np.testing.assert_allclose(against_each[2], stats.spearmanr(x[0][kept], y[2][kept]).statistic)
    assert np.isnan(spearman(x[:, :4], y[:, :4] * np.array([1, 1, np.nan, np.nan]))).all()


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
