"""Tables of rank correlations over targets, against SciPy and statsmodels."""

import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.stats import rankdata

from tda_bias.crossref.crossref import with_frequency
from tda_bias.crossref.rank_tests import column_table, correlations, usable_covariates
from tda_bias.stats.correlation import column_tests, permutations_within, spearman_limits


def rng(seed=0):
    return np.random.default_rng(seed)


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


def test_a_table_of_correlations_holds_the_tests_of_each_pair():
    table = pd.DataFrame(rng(5).normal(size=(14, 4)), columns=["r", "s", "mean_T", "gini"])
    table["category"] = list("aaaaabbbbbbccc")
    found = correlations(table, ["r", "s"], ["mean_T", "gini"], n_resamples=150, rng=rng(6))
    orders = permutations_within(list(table["category"]), 150, rng(6))
    for row in found.to_dict("records"):
        x, y = table[row["summary"]].to_numpy(), table[row["quantity"]].to_numpy()
        (tested,) = column_table(column_tests(y[:, None], x, orders)).to_dict("records")
        assert (row["spearman"], row["p"]) == (pytest.approx(tested["rho"]), tested["p"])
        assert (row["low"], row["high"]) == spearman_limits(row["spearman"], 14)
    np.testing.assert_allclose(found["q"], stats.false_discovery_control(found["p"]))
