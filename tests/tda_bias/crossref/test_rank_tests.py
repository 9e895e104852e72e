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
    correlations,
    power,
    ranks_without,
    usable_covariates,
)
from tda_bias.stats.clusters import spearman_limits
from tda_bias.stats.resampling import permutations_within


def rng(seed=0):
    return np.random.default_rng(seed)


def within_one(n, draws, seed=0):
    return permutations_within(["a"] * n, draws, rng(seed))


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


# -- tables over targets ---------------------------------------------------------------------------


def test_a_constant_column_is_undefined_and_a_perfect_order_has_no_interval():
    table = pd.DataFrame({"category": "a", "target": [f"t{i}" for i in range(12)], "constant": 1.0})
    table["mean_abs_T"] = rng().normal(size=12)
    found = correlations(
        table.assign(r=3 * table["mean_abs_T"]),
        ["r"],
        ["constant", "mean_abs_T"],
        n_resamples=199,
        rng=rng(),
    ).set_index("summary")
    assert found.loc["constant", "spearman":].isna().all()
    perfect = found.loc["mean_abs_T"]
    assert perfect["spearman"] == pytest.approx(1)
    assert perfect["q"] == perfect["p"] == 1 / 200
    assert np.isnan([perfect["low"], perfect["high"]]).all()


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


@pytest.mark.parametrize("covariates", [{}, {"n_items": 5, "tokens": 5, "zipf": 5}])
def test_without_covariates_or_with_too_few_targets_there_is_no_partial_correlation(covariates):
    table = pd.DataFrame(rng().normal(size=(5, 2)), columns=["mean_T", "r"]).assign(category="a")
    for name, n in covariates.items():
        table[name] = rng(1).permutation(n)
    found = correlations(table, ["r"], ["mean_T"], n_resamples=99, rng=rng()).iloc[0]
    assert np.isnan([found["partial"], found["p_partial"]]).all()
    assert np.isfinite([found["spearman"], found["p"]]).all()


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
