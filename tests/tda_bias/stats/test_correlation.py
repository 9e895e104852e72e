"""Correlations and their tests by permutation, against SciPy and brute force."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import rankdata

from tda_bias.stats.correlation import (
    column_tests,
    permutations_within,
    permuted_correlation,
    power,
    ranks_without,
    spearman,
    spearman_limits,
    spearman_over_items,
    standardised_ranks,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def within_one(n, draws, seed=0):
    return permutations_within(["a"] * n, draws, rng(seed))


# -- one correlation -------------------------------------------------------------------------------


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


def test_limits_of_a_rank_correlation_are_bonett_and_wrights():
    low, high = spearman_limits(0.5, 19)
    z = [np.arctanh(0.5) + sign * stats.norm.ppf(0.975) * np.sqrt(1.125 / 16) for sign in (-1, 1)]
    assert (low, high) == pytest.approx(tuple(np.tanh(z)))
    assert np.isnan([*spearman_limits(1.0, 19), *spearman_limits(0.5, 4)]).all()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_intervals_over_ten_targets_cover_the_correlation(shared):
    generator, covered, runs = rng(2), 0, 1000
    truth = 6 / np.pi * np.arcsin(shared / 2)  # of ranks of a bivariate normal
    for _ in range(runs):
        x, noise = generator.normal(size=(2, 10))
        y = shared * x + np.sqrt(1 - shared**2) * noise
        low, high = spearman_limits(stats.spearmanr(x, y).statistic, 10)
        covered += low <= truth <= high
    assert 0.93 <= covered / runs <= 0.975


# -- exchanged items -------------------------------------------------------------------------------


@pytest.mark.parametrize("drawn", ["by sorting", "by shuffling"])
def test_items_are_permuted_within_their_stratum_only_and_all_orders_occur(drawn):
    strata = ["a", "b", "a", "b", "a"]
    orders = permutations_within(strata, 300, rng(), drawn=drawn)
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3, 4)}
    assert all(strata[i] == strata[j] for order in orders for i, j in enumerate(order))
    assert len({tuple(order) for order in orders}) == 12


def test_orders_by_shuffling_are_numpys_permuted_and_those_by_sorting_its_argsort():
    strata, shuffled, ordered = np.array([0, 1, 0, 1, 0]), rng(2), rng(2)
    for drawn, twin in (("by shuffling", shuffled), ("by sorting", ordered)):
        found = permutations_within(strata, 20, rng(2), drawn=drawn)
        for own in (np.array([0, 2, 4]), np.array([1, 3])):
            if drawn == "by shuffling":
                expected = twin.permuted(np.tile(own, (20, 1)), axis=1)
            else:
                expected = own[np.argsort(twin.random((20, len(own))), axis=1)]
            np.testing.assert_array_equal(found[:, own], expected)


PERMUTED = {"ranks": stats.spearmanr, "values": stats.pearsonr}


@pytest.mark.parametrize("of", ["ranks", "values"])
@pytest.mark.parametrize("strata", [None, np.array(list("aabbbcccc"))])
def test_a_permuted_correlation_is_computed_draw_by_draw(of, strata):
    x, y = rng(3).normal(size=(2, 9)).round(1)
    y = y + (0 if strata is None else 2.0 * (strata == "b"))
    found = permuted_correlation(x, y, strata, n_resamples=400, rng=rng(4), of=of)
    orders = permutations_within(["a"] * 9 if strata is None else strata, 400, rng(4))
    null = np.array([PERMUTED[of](x, y[order]).statistic for order in orders])
    r = PERMUTED[of](x, y).statistic
    assert found.r == pytest.approx(r)
    np.testing.assert_allclose(found.null, null, atol=1e-12)
    assert found.chance() == pytest.approx(tuple(np.quantile(null, [0.025, 0.975])))
    assert found.p_larger() == (1 + (null >= r - 1e-9).sum()) / 401
    apart = np.abs(null - found.expected) >= abs(r - found.expected) - 1e-9
    assert found.p_two_sided() == (1 + apart.sum()) / 401


@pytest.mark.parametrize("strata", [None, np.array(list("aabbbcccc"))])
def test_what_is_as_far_from_the_expected_one_as_power_says_has_a_p_below_5_percent(strata):
    x, y = rng(3).normal(size=(2, 9))
    found = permuted_correlation(x, y, strata, n_resamples=999, rng=rng(4))
    needed = found.power()["significant"]
    apart = np.abs(found.null - found.expected)
    for distance, below in ((needed + 0.01, True), (np.quantile(apart, 0.9), False)):
        moved = replace(found, r=found.expected + distance)
        assert (moved.p_two_sided() < 0.05) == below
    spread = np.sqrt(np.mean(apart**2))
    assert found.power()["power_80"] == pytest.approx(needed + 0.8416 * spread, abs=1e-4)


def test_power_of_many_independent_items_is_that_of_the_approximation():
    x, y = rng(5).normal(size=(2, 200))
    found = permuted_correlation(x, y, n_resamples=4000, rng=rng(6)).power()
    expected = power(200)
    assert found["significant"] == pytest.approx(expected["significant"], rel=0.06)
    assert found["power_80"] == pytest.approx(expected["power_80"], rel=0.06)
    still = permuted_correlation(np.zeros(8), np.arange(8.0), n_resamples=9, rng=rng())
    assert np.isnan(list(still.power().values())).all()


def test_the_expected_correlation_is_the_mean_over_all_exchanges_within_strata():
    x, y, strata = rng(5).normal(size=6), rng(6).normal(size=6), np.array([0, 0, 0, 1, 1, 1])
    found = permuted_correlation(x, y + 3 * strata, strata, n_resamples=9, rng=rng())
    every = [
        stats.spearmanr(x, (y + 3 * strata)[[*first, *second]]).statistic
        for first in permutations(range(3))
        for second in permutations(range(3, 6))
    ]
    assert found.expected == pytest.approx(np.mean(every))
    assert permuted_correlation(x, y, n_resamples=9, rng=rng()).expected == pytest.approx(0)


def test_p_of_a_rank_correlation_comes_close_to_scipys_permutation_test():
    x, y = rng(7).normal(size=(2, 25))
    y = y + 0.3 * x
    reference = stats.permutation_test(
        (y,), lambda moved: stats.spearmanr(x, moved).statistic,
        permutation_type="pairings", n_resamples=1999, random_state=rng(8),
    )  # fmt: skip
    found = permuted_correlation(x, y, n_resamples=9999, rng=rng(9))
    assert found.p_two_sided() == pytest.approx(reference.pvalue, abs=0.03)


@pytest.mark.parametrize("of", ["ranks", "values"])
@pytest.mark.parametrize("constant", [0.1, 2.0])
def test_a_line_that_does_not_vary_has_no_correlation_and_draws_nothing(of, constant):
    x, y, generator = np.full(7, constant), rng(10).normal(size=7), rng(11)
    for lines in ((x, y), (y, x)):
        found = permuted_correlation(*lines, n_resamples=99, rng=generator, of=of)
        assert np.isnan([found.r, *found.chance(), found.p_larger(), found.p_two_sided()]).all()
    assert generator.random() == rng(11).random()


# -- many columns ----------------------------------------------------------------------------------


def test_covariates_that_repeat_each_other_count_once():
    x, z = rng(3).normal(size=(2, 12))
    once = ranks_without(x[:, None], z[:, None])
    np.testing.assert_allclose(once, ranks_without(x[:, None], np.column_stack([z, -z, z**3])))
    assert np.isnan(ranks_without(np.column_stack([z, x]), z[:, None])).all(0).tolist() == [
        True,
        False,
    ]


def residual(values, covariates):
    design = np.column_stack([np.ones(len(values)), rankdata(covariates, axis=0)])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def test_columns_are_tested_as_one_by_one():
    columns, quantity = rng(4).normal(size=(9, 5)).round(1), rng(5).normal(size=9).round(1)
    orders = permutations_within(list("aaaabbbbb"), 700, rng(6))
    found = column_tests(columns, quantity, orders)
    null = np.array(
        [
            [abs(stats.spearmanr(columns[:, j], quantity[order]).statistic) for j in range(5)]
            for order in orders
        ]
    )
    for j in range(5):
        rho = stats.spearmanr(columns[:, j], quantity).statistic
        assert found.rho[j] == pytest.approx(rho)
        assert found.pvalue[j] == pytest.approx((1 + (null[:, j] >= abs(rho) - 1e-9).sum()) / 701)
        larger = (null.max(1) >= abs(rho) - 1e-9).sum()
        assert found.pvalue_max[j] == pytest.approx((1 + larger) / 701)
    np.testing.assert_allclose(found.qvalue, stats.false_discovery_control(found.pvalue))
    assert found.needed == pytest.approx(np.sort(null.max(1))[-35])


def test_freedman_and_lane_by_refitting_every_permutation():
    covariates = rng(1).integers(5, 20, (11, 2)).astype(float)
    columns = covariates[:, :1] + rng(2).normal(size=(11, 3))
    quantity = covariates[:, 1] - covariates[:, 0] + rng(3).normal(size=11)
    orders = within_one(11, 250)
    found = column_tests(columns, quantity, orders, covariates=covariates)
    ranks = rankdata(quantity)
    left = residual(ranks, covariates)
    for j in range(3):
        own = residual(rankdata(columns[:, j]), covariates)
        rho = stats.pearsonr(own, left).statistic
        assert found.rho[j] == pytest.approx(rho)
        null = [
            # What was explained stays; the permuted rest is added, and everything is fitted anew.
            stats.pearsonr(own, residual(ranks - left + left[order], covariates)).statistic
            for order in orders
        ]
        expected = (1 + np.sum(np.abs(null) >= abs(rho) - 1e-9)) / 251
        assert found.pvalue[j] == pytest.approx(expected)


def test_columns_that_do_not_vary_are_undefined_and_take_no_part():
    columns, quantity = rng(7).normal(size=(8, 3)), rng(8).normal(size=8)
    orders = within_one(8, 99)
    alone = column_tests(columns, quantity, orders)
    more = column_tests(np.column_stack([columns, np.ones(8)]), quantity, orders)
    assert more.needed == alone.needed
    nothing = column_tests(np.ones((8, 2)), quantity, orders)
    assert np.isnan(nothing.needed)
    for name in ("rho", "pvalue", "pvalue_max", "qvalue"):
        values = getattr(more, name)
        np.testing.assert_array_equal(values[:3], getattr(alone, name))
        assert np.isnan(values[3])
        assert np.isnan(getattr(nothing, name)).all()


# -- power ----------------------------------------------------------------------------


def test_power_names_the_correlation_that_can_be_seen():
    assert power(30)["significant"] == pytest.approx(0.361, abs=0.001)
    assert power(11)["significant"] == pytest.approx(0.602, abs=0.001)
    assert power(30)["power_80"] == pytest.approx(0.5, abs=0.02)
    assert power(242)["power_80"] == pytest.approx(0.18, abs=0.01)


@pytest.mark.slow
def test_the_named_correlation_is_found_four_times_out_of_five():
    n = 60
    rho = power(n)["power_80"]
    pearson = 2 * np.sin(np.pi * rho / 6)  # of normal variables with this rank correlation
    found = 0
    for seed in range(2000):
        x, noise = rng(seed).normal(size=(2, n))
        y = pearson * x + np.sqrt(1 - pearson**2) * noise
        found += stats.spearmanr(x, y).pvalue < 0.05
    assert found / 2000 == pytest.approx(0.8, abs=0.03)
