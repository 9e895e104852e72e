"""Rank correlations and their tests, against SciPy, statsmodels and brute force."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.stats import rankdata

from tda_bias.crossref.rank_tests import (
    column_tests,
    correlation,
    mantel,
    partial_correlation,
    power,
    ranks_without,
)
from tda_bias.stats.resampling import permutations_within


def rng(seed=0):
    return np.random.default_rng(seed)


def within_one(n, draws, seed=0):
    return permutations_within(["a"] * n, draws, rng(seed))


# -- one correlation -------------------------------------------------------------------------------


def test_p_is_that_of_all_pairings():
    x, y = rng(1).normal(size=(2, 6))
    found = correlation(x, y, within_one(6, 20_000), rng())
    assert found["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    exact = stats.permutation_test(
        (x,),
        lambda a: stats.spearmanr(a, y).statistic,
        permutation_type="pairings",
        n_resamples=np.inf,
        vectorized=False,
    )
    expected = np.mean(np.abs(exact.null_distribution) >= abs(found["spearman"]) - 1e-9)
    assert found["p"] == pytest.approx(expected, abs=0.01)
    assert found["low"] <= found["spearman"] <= found["high"]


def test_the_interval_is_scipys_bca():
    x, y = rng(2).normal(size=(2, 14))
    found = correlation(x, y, within_one(14, 99), rng(5))
    expected = stats.bootstrap(
        (x, y),
        lambda a, b: stats.spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        batch=2000,
        method="BCa",
        rng=rng(5),
    )
    np.testing.assert_allclose((found["low"], found["high"]), expected.confidence_interval)


def test_a_perfect_order_has_no_interval_and_what_does_not_vary_has_nothing():
    x = np.arange(8.0)
    found = correlation(x, x**3, within_one(8, 99), rng())
    assert found["spearman"] == pytest.approx(1)
    assert found["p"] == 1 / 100
    assert np.isnan([found["low"], found["high"]]).all()
    nothing = correlation(np.ones(8), x, within_one(8, 99), rng())
    assert np.isnan(list(nothing.values())).all()


def test_the_partial_correlation_is_that_of_regression_residuals():
    covariates = rng(1).normal(size=(30, 2))
    x, y = covariates.sum(1) + rng(2).normal(size=(2, 30))
    orders = within_one(30, 199)
    found = partial_correlation(x, y, covariates, orders)
    design = sm.add_constant(rankdata(covariates, axis=0))
    left = [sm.OLS(rankdata(values), design).fit().resid for values in (x, y)]
    assert found["partial"] == pytest.approx(stats.pearsonr(*left).statistic)
    null = [stats.pearsonr(left[0][order], left[1]).statistic for order in orders]
    expected = (1 + np.sum(np.abs(null) >= abs(found["partial"]) - 1e-9)) / 200
    assert found["p_partial"] == pytest.approx(expected)


def test_without_covariates_or_with_too_few_targets_there_is_no_partial_correlation():
    x, y = rng().normal(size=(2, 5))
    for covariates in (np.empty((5, 0)), rng().normal(size=(5, 3))):
        found = partial_correlation(x, y, covariates, within_one(5, 99))
        assert np.isnan(list(found.values())).all()
    explained = partial_correlation(x, x, x[:, None], within_one(5, 99))
    assert np.isnan(explained["partial"])


def test_covariates_that_repeat_each_other_count_once():
    x, z = rng(3).normal(size=(2, 12))
    once = ranks_without(x[:, None], z[:, None])
    np.testing.assert_allclose(once, ranks_without(x[:, None], np.column_stack([z, -z, z**3])))
    assert np.isnan(ranks_without(np.column_stack([z, x]), z[:, None])).all(0).tolist() == [
        True,
        False,
    ]


# -- many columns ----------------------------------------------------------------------------------


def residual(values, covariates):
    design = np.column_stack([np.ones(len(values)), rankdata(covariates, axis=0)])
    return values - design @ np.linalg.lstsq(design, values, rcond=None)[0]


def test_columns_are_tested_as_one_by_one():
    columns, quantity = rng(4).normal(size=(9, 5)).round(1), rng(5).normal(size=9).round(1)
    strata = list("aaaabbbbb")
    orders = permutations_within(strata, 700, rng(6))
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
    for name in ("rho", "pvalue", "pvalue_max", "qvalue"):
        np.testing.assert_allclose(getattr(more, name)[:3], getattr(alone, name))
        assert np.isnan(getattr(more, name)[3])
    nothing = column_tests(np.ones((8, 2)), quantity, orders)
    assert np.isnan(nothing.rho).all()
    assert np.isnan(nothing.needed)


@pytest.mark.slow
@pytest.mark.parametrize("with_covariates", [False, True])
def test_p_is_uniform_without_a_link_and_a_planted_link_is_seen(with_covariates):
    """Within strata, and where covariates drive both sides, only if they are taken out."""
    strata = ["a"] * 15 + ["b"] * 15
    single, smallest, planted = [], [], 0
    for seed in range(300):
        generator = rng(seed)
        columns, quantity = generator.normal(size=(30, 12)), generator.normal(size=30)
        covariates = None
        if with_covariates:
            covariates = generator.normal(size=(30, 2))
            columns += covariates[:, :1]
            quantity += covariates[:, 0]
        orders = permutations_within(strata, 199, generator)
        null = column_tests(columns, quantity, orders, covariates=covariates)
        single.append(null.pvalue[0])
        smallest.append(null.pvalue_max.min())
        columns[:, 5] += 1.5 * quantity
        found = column_tests(columns, quantity, orders, covariates=covariates)
        planted += found.pvalue_max[5] < 0.05
    assert stats.kstest(single, "uniform").pvalue > 0.005
    assert 0.02 < np.mean(np.array(smallest) <= 0.05) < 0.085
    assert planted > 240


@pytest.mark.slow
def test_what_covariates_share_is_taken_for_a_link_unless_they_are_taken_out():
    generator = rng(1)
    length = generator.normal(size=60)
    columns, quantity = generator.normal(size=(60, 8)) * 0.5, generator.normal(size=60) * 0.5
    columns, quantity = columns + length[:, None], quantity + length
    orders = within_one(60, 499)
    assert (column_tests(columns, quantity, orders).pvalue_max < 0.05).all()
    adjusted = column_tests(columns, quantity, orders, covariates=length[:, None])
    assert (adjusted.pvalue_max > 0.05).all()


# -- profiles and power ----------------------------------------------------------------------------


def test_mantel_finds_profiles_that_follow_the_quantity():
    quantity = np.linspace(0, 1, 12)
    values = np.column_stack([np.cos(quantity), np.sin(quantity)])
    options = {"n_resamples": 199, "rng": rng()}
    assert mantel(values, quantity, ["a"] * 12, **options)["p"] == 1 / 200
    unrelated = rng(5).normal(size=(12, 40))
    for distance in ("cosine", "spearman"):
        assert mantel(unrelated, quantity, ["a"] * 12, distance=distance, **options)["p"] > 0.05


def test_mantel_is_the_correlation_over_pairs():
    generator = rng(6)
    values, quantity = generator.normal(size=(6, 9)), generator.normal(size=6)
    found = mantel(values, quantity, ["a"] * 6, n_resamples=99, rng=rng())
    pairs = [(i, j) for i in range(6) for j in range(i)]
    apart = [
        1 - values[i] @ values[j] / np.linalg.norm(values[i]) / np.linalg.norm(values[j])
        for i, j in pairs
    ]
    difference = [abs(quantity[i] - quantity[j]) for i, j in pairs]
    assert found["rho"] == pytest.approx(stats.spearmanr(apart, difference).statistic)


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
