"""Rank correlations and their tests, against SciPy, statsmodels and brute force."""

import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.stats import rankdata

from tda_bias.crossref.crossref import with_frequency
from tda_bias.crossref.rank_tests import (
    column_tests,
    correlation,
    correlations,
    partial_correlation,
    power,
    ranks_without,
    usable_covariates,
)
from tda_bias.stats.resampling import permutations_within


def rng(seed=0):
    return np.random.default_rng(seed)


def within_one(n, draws, seed=0):
    return permutations_within(["a"] * n, draws, rng(seed))


# -- one correlation -------------------------------------------------------------------------------


def test_p_is_that_of_all_pairings():
    x, y = rng(1).normal(size=(2, 6))
    found = correlation(x, y, within_one(6, 20_000))
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


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_intervals_over_ten_targets_cover_the_correlation(shared):
    generator, covered, runs = rng(2), 0, 1000
    truth = 6 / np.pi * np.arcsin(shared / 2)  # of ranks of a bivariate normal
    for _ in range(runs):
        x, noise = generator.normal(size=(2, 10))
        y = shared * x + np.sqrt(1 - shared**2) * noise
        found = correlation(x, y, within_one(10, 1))
        covered += found["low"] <= truth <= found["high"]
    assert 0.93 <= covered / runs <= 0.975


def test_a_perfect_order_has_no_interval_and_what_does_not_vary_has_nothing():
    x = np.arange(8.0)
    found = correlation(x, x**3, within_one(8, 99))
    assert found["spearman"] == pytest.approx(1)
    assert found["p"] == 1 / 100
    assert np.isnan([found["low"], found["high"]]).all()
    nothing = correlation(np.ones(8), x, within_one(8, 99))
    assert np.isnan(list(nothing.values())).all()


def test_the_partial_correlation_is_that_of_regression_residuals():
    covariates = rng(1).normal(size=(30, 2))
    x, y = covariates.sum(1) + rng(2).normal(size=(2, 30))
    orders = within_one(30, 199)
    found = partial_correlation(x, y, covariates, orders)
    design = sm.add_constant(rankdata(covariates, axis=0))
    left = [sm.OLS(rankdata(values), design).fit().resid for values in (x, y)]
    assert found["partial"] == pytest.approx(stats.pearsonr(*left).statistic)
    again = [sm.OLS(left[0][order], design).fit().resid for order in orders]
    null = [stats.pearsonr(permuted, left[1]).statistic for permuted in again]
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
    orders = permutations_within(list("aaaabbbbb"), 700, rng(6))
    found, needed = column_tests(columns, quantity, orders)
    null = np.array(
        [
            [abs(stats.spearmanr(columns[:, j], quantity[order]).statistic) for j in range(5)]
            for order in orders
        ]
    )
    for j in range(5):
        rho = stats.spearmanr(columns[:, j], quantity).statistic
        assert found["rho"][j] == pytest.approx(rho)
        assert found["p"][j] == pytest.approx((1 + (null[:, j] >= abs(rho) - 1e-9).sum()) / 701)
        larger = (null.max(1) >= abs(rho) - 1e-9).sum()
        assert found["p_max"][j] == pytest.approx((1 + larger) / 701)
    np.testing.assert_allclose(found["q"], stats.false_discovery_control(found["p"]))
    assert needed == pytest.approx(np.sort(null.max(1))[-35])


def test_freedman_and_lane_by_refitting_every_permutation():
    covariates = rng(1).integers(5, 20, (11, 2)).astype(float)
    columns = covariates[:, :1] + rng(2).normal(size=(11, 3))
    quantity = covariates[:, 1] - covariates[:, 0] + rng(3).normal(size=11)
    orders = within_one(11, 250)
    found, _ = column_tests(columns, quantity, orders, covariates=covariates)
    ranks = rankdata(quantity)
    left = residual(ranks, covariates)
    for j in range(3):
        own = residual(rankdata(columns[:, j]), covariates)
        rho = stats.pearsonr(own, left).statistic
        assert found["rho"][j] == pytest.approx(rho)
        null = [
            # What was explained stays; the permuted rest is added, and everything is fitted anew.
            stats.pearsonr(own, residual(ranks - left + left[order], covariates)).statistic
            for order in orders
        ]
        expected = (1 + np.sum(np.abs(null) >= abs(rho) - 1e-9)) / 251
        assert found["p"][j] == pytest.approx(expected)


def test_columns_that_do_not_vary_are_undefined_and_take_no_part():
    columns, quantity = rng(7).normal(size=(8, 3)), rng(8).normal(size=8)
    orders = within_one(8, 99)
    alone, _ = column_tests(columns, quantity, orders)
    more, _ = column_tests(np.column_stack([columns, np.ones(8)]), quantity, orders)
    pd.testing.assert_frame_equal(more[:3], alone)
    assert more.loc[3].isna().all()
    nothing, needed = column_tests(np.ones((8, 2)), quantity, orders)
    assert nothing.isna().to_numpy().all()
    assert np.isnan(needed)


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
        null, _ = column_tests(columns, quantity, orders, covariates=covariates)
        single.append(null["p"][0])
        smallest.append(null["p_max"].min())
        columns[:, 5] += 1.5 * quantity
        found, _ = column_tests(columns, quantity, orders, covariates=covariates)
        planted += found["p_max"][5] < 0.05
    assert stats.kstest(single, "uniform").pvalue > 0.005
    assert 0.02 < np.mean(np.array(smallest) <= 0.05) < 0.085
    assert planted > 240


# -- tables over targets ---------------------------------------------------------------------------


def test_a_constant_column_is_undefined_and_not_corrected_for():
    table = pd.DataFrame({"category": "a", "target": [f"t{i}" for i in range(12)], "constant": 1.0})
    table["mean_abs_T"] = rng().normal(size=12)
    found = correlations(
        table.assign(r=3 * table["mean_abs_T"]),
        ["r"],
        ["constant", "mean_abs_T"],
        n_resamples=199,
        rng=rng(),
    ).set_index("summary")
    assert np.isnan(found.loc["constant", ["spearman", "p", "q"]].astype(float)).all()
    assert found.loc["mean_abs_T", "q"] == found.loc["mean_abs_T", "p"] == 1 / 200


def test_covariates_are_taken_out_together(monkeypatch):
    """Against residuals of an ordinary regression on ranks."""
    generator = rng(0)
    targets = ["nurse", "tailor", "engineer", "physicist", "mover", "priest", "butcher", "chemist"]
    table = pd.DataFrame({"category": "profession", "target": targets})
    table["n_items"], table["tokens"] = generator.integers(20, 30, 8), generator.integers(1, 4, 8)
    table["mean_T"], table["r"] = generator.normal(size=8), generator.normal(size=8)
    table = with_frequency(table)
    assert table.set_index("target")["zipf"]["nurse"] > table.set_index("target")["zipf"]["mover"]
    assert usable_covariates(table) == ["n_items", "tokens", "zipf"]
    found = correlations(table, ["r"], ["mean_T"], n_resamples=99, rng=generator)
    design = sm.add_constant(rankdata(table[["n_items", "tokens", "zipf"]], axis=0))
    left = [sm.OLS(rankdata(table[name]), design).fit().resid for name in ("mean_T", "r")]
    assert found["partial"][0] == pytest.approx(stats.pearsonr(*left).statistic)
    # Without the package the others remain.
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    plain = with_frequency(table.drop(columns="zipf"))
    assert usable_covariates(plain) == ["n_items", "tokens"]


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
