"""Summaries of heads by target, and their correlations with what the model says."""

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.crossref.target_tests import (
    correlations,
    head_map,
    head_summaries,
    head_vectors,
    usable_covariates,
)
from tda_bias.crossref.targets import with_frequency
from tda_bias.stats.resampling import permutations_within


def rng(seed=0):
    return np.random.default_rng(seed)


def made_up_heads(
    targets=("nurse", "engineer", "tailor"), layers=2, heads=5, category="profession"
):
    generator = rng(1)
    rows = [
        {"category": "profession", "group": t, "layer": layer, "head": head}
        for t in targets
        for layer in range(layers)
        for head in range(heads)
    ]
    combined = pd.DataFrame(rows)
    combined["combined_relative"] = generator.normal(size=len(rows))
    table = pd.concat([combined.assign(dim=dim) for dim in (0, 1)], ignore_index=True)
    table["n"] = 9
    table["q_bh"] = generator.uniform(size=len(table))
    return table, combined


def test_summaries_by_hand():
    table, combined = made_up_heads()
    found = head_summaries(table, combined).set_index("target")
    own = combined[combined["group"] == "tailor"]["combined_relative"].to_numpy()
    row = found.loc["tailor"]
    size = np.sort(np.abs(own))
    assert row["mean_T"] == pytest.approx(own.mean())
    assert row["mean_abs_T"] == pytest.approx(size.mean())
    assert row["max_abs_T"] == pytest.approx(size[-1])
    assert row["sd_T"] == pytest.approx(own.std())
    assert row["top_share"] == pytest.approx(size[-1] / size.sum())
    gini = np.abs(size[:, None] - size[None]).sum() / (2 * len(size) ** 2 * size.mean())
    assert row["gini"] == pytest.approx(gini)
    significant = table[(table["group"] == "tailor") & (table["q_bh"] < 0.05)]
    assert row["n_sig_heads"] == len(
        set(zip(significant["layer"], significant["head"], strict=True))
    )
    assert row["n_items"] == 9


def test_vectors_keep_layers_and_heads_in_order():
    _, combined = made_up_heads()
    keys, values, columns = head_vectors(combined.sample(frac=1, random_state=0))
    assert columns == [(layer, head) for layer in range(2) for head in range(5)]
    expected = combined[combined["group"] == "engineer"].sort_values(["layer", "head"])
    at = list(keys["target"]).index("engineer")
    np.testing.assert_array_equal(values[at], expected["combined_relative"])


def table_of(n=12, seed=0, linked=True):
    generator = rng(seed)
    table = pd.DataFrame({"category": "a", "target": [f"t{i}" for i in range(n)]})
    table["n_items"] = generator.integers(20, 30, n)
    table["mean_abs_T"] = generator.normal(size=n)
    table["constant"] = 1.0
    table["r"] = table["mean_abs_T"] * 3 if linked else generator.normal(size=n)
    return table


def test_correlations_are_spearmans_with_exact_like_p():
    table = table_of(n=6, linked=False)
    found = correlations(table, ["r"], ["mean_abs_T"], n_resamples=20_000, rng=rng()).iloc[0]
    x, y = table["mean_abs_T"], table["r"]
    assert found["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    exact = stats.permutation_test(
        (x,),
        lambda a: stats.spearmanr(a, y).statistic,
        permutation_type="pairings",
        n_resamples=np.inf,
        vectorized=False,
    )
    two_sided = np.mean(np.abs(exact.null_distribution) >= abs(found["spearman"]) - 1e-12)
    assert found["p"] == pytest.approx(two_sided, abs=0.01)
    assert found["pearson"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert found["low"] <= found["spearman"] <= found["high"]


def test_the_partial_correlation_ignores_what_the_covariate_explains():
    generator = rng(3)
    table = table_of(n=40)
    table["mean_abs_T"] = table["n_items"] + 0.01 * generator.normal(size=40)
    table["r"] = table["n_items"] + 0.01 * generator.normal(size=40)
    found = correlations(table, ["r"], ["mean_abs_T"], n_resamples=199, rng=rng()).iloc[0]
    assert found["spearman"] > 0.9
    assert abs(found["partial"]) < 0.5


def test_a_constant_column_is_undefined_and_not_corrected_for():
    found = correlations(
        table_of(), ["r"], ["constant", "mean_abs_T"], n_resamples=199, rng=rng()
    ).set_index("summary")
    assert np.isnan(found.loc["constant", ["spearman", "p", "q"]].astype(float)).all()
    assert found.loc["mean_abs_T", "q"] == found.loc["mean_abs_T", "p"] == 1 / 200


def test_the_head_map_is_spearman_head_by_head():
    generator = rng(2)
    values, quantity = generator.normal(size=(8, 6)), generator.normal(size=8)
    columns = [(i // 3, i % 3) for i in range(6)]
    found = head_map(values, columns, quantity, ["a"] * 8, name="r", n_resamples=999, rng=rng())
    for row in found.table.itertuples():
        column = columns.index((row.layer, row.head))
        expected = stats.spearmanr(np.abs(values[:, column]), quantity).statistic
        assert row.rho == pytest.approx(expected)
        assert row.p <= row.p_max


def test_the_family_wise_p_is_the_share_of_larger_maxima():
    generator = rng(4)
    values, quantity = generator.normal(size=(7, 4)), generator.normal(size=7)
    columns = [(0, i) for i in range(4)]
    found = head_map(values, columns, quantity, ["a"] * 7, name="r", n_resamples=500, rng=rng(9))
    orders = permutations_within(["a"] * 7, 500, rng(9))
    largest = [
        max(abs(stats.spearmanr(np.abs(values[:, j]), quantity[order]).statistic) for j in range(4))
        for order in orders
    ]
    for row, rho in zip(found.table.itertuples(), found.table["rho"], strict=True):
        expected = (1 + np.sum(np.array(largest) >= abs(rho) - 1e-12)) / 501
        assert row.p_max == pytest.approx(expected)


@pytest.mark.slow
def test_the_family_wise_p_holds_its_level_and_finds_a_planted_head():
    below, found_planted = 0, 0
    for seed in range(200):
        generator = rng(seed)
        values, quantity = generator.normal(size=(20, 30)), generator.normal(size=20)
        columns = [(0, i) for i in range(30)]
        options = {"name": "r", "n_resamples": 199, "rng": generator}
        null = head_map(values, columns, quantity, ["a"] * 20, **options)
        below += null.table["p_max"].min() < 0.05
        values[:, 3] = quantity + 5 + 0.2 * generator.normal(size=20)
        planted = head_map(values, columns, quantity, ["a"] * 20, **options)
        found_planted += planted.table["p_max"][3] < 0.05
    assert below / 200 < 0.1
    assert found_planted > 195


def test_covariates_are_taken_out_together(monkeypatch):
    """Against residuals of an ordinary regression on ranks."""
    import statsmodels.api as sm
    from scipy.stats import pearsonr, rankdata

    rng = np.random.default_rng(0)
    targets = [
        "nurse",
        "tailor",
        "engineer",
        "physicist",
        "mover",
        "historian",
        "butcher",
        "chemist",
    ]
    table = pd.DataFrame({"category": "profession", "target": targets})
    table["n_items"], table["tokens"] = rng.integers(20, 30, 8), rng.integers(1, 4, 8)
    table["mean_T"], table["r"] = rng.normal(size=8), rng.normal(size=8)
    table = with_frequency(table)
    assert table.set_index("target")["zipf"]["nurse"] > table.set_index("target")["zipf"]["mover"]
    assert usable_covariates(table) == ["n_items", "tokens", "zipf"]
    found = correlations(table, ["r"], ["mean_T"], n_resamples=99, rng=rng)
    design = sm.add_constant(rankdata(table[["n_items", "tokens", "zipf"]], axis=0))
    left = [sm.OLS(rankdata(table[name]), design).fit().resid for name in ("mean_T", "r")]
    assert found["partial"][0] == pytest.approx(pearsonr(*left).statistic)
    # Without the package the others remain.
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    plain = with_frequency(table.drop(columns="zipf"))
    assert usable_covariates(plain) == ["n_items", "tokens"]
