import sys
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.behaviour.crossref import (
    correlations,
    head_map,
    head_summaries,
    head_vectors,
)
from tda_bias.behaviour.targets import joined, match_words, normalised_target, same_model
from tda_bias.resampling import permutations_within
from tda_bias.types import InputError


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


# -- the join --------------------------------------------------------------------------------------


def test_words_stand_for_targets_by_strictness():
    found = match_words(["nurse", "software developer", "plumber", "prisoner"], OCCUPATIONS)
    assert found["nurse"] == ("exact", ["nurse"])
    assert found["software developer"] == ("near", ["developer", "programmer"])
    assert found["plumber"] == ("weak", ["technician", "electrician"])
    assert "prisoner" not in found


OCCUPATIONS = ["nurse", "developer", "programmer", "technician", "electrician", "baker"]


def test_a_table_made_for_the_targets_is_their_own():
    found = match_words(["nurse", "Norweigan", "prisoner"], ["nurse", "Norwegian"])
    assert found == {"nurse": ("own", ["nurse"]), "Norweigan": ("own", ["Norwegian"])}
    assert normalised_target("Eriteria") == "Eritrea"


def test_near_matches_average_their_words():
    heads = pd.DataFrame(
        {"category": "profession", "target": ["nurse", "software developer", "butcher", "plumber"]}
    )
    behaviour = pd.DataFrame({"x": OCCUPATIONS, "r": [0.1, 0.2, 0.4, 0.5, 0.7, 0.9]})
    with pytest.raises(InputError, match="the runs have 1 common targets, 4 are needed; use a loo"):
        joined(heads, behaviour)
    found = joined(heads, behaviour, match="weak").set_index("target")
    assert found["r"].to_dict() == pytest.approx(
        {"nurse": 0.1, "software developer": 0.3, "plumber": 0.6, "butcher": 0.9}
    )
    assert found["match_type"].to_dict()["plumber"] == "weak"
    with pytest.raises(InputError, match="`match` must be one of exact, near, weak; got 'any'"):
        joined(heads, behaviour, match="any")


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


# -- statistics ------------------------------------------------------------------------------------


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


def test_runs_of_other_weights_are_not_joined():
    model = {"name": "m", "weights": "a"}
    same_model({"model": model}, {"model": model})
    with pytest.raises(InputError, match=r"different weights \(m and n\)"):
        same_model({"model": model}, {"model": {"name": "n", "weights": "b"}})
    with pytest.raises(InputError, match="another version of tdabias"):
        same_model({"model": model}, {"model": {"name": "n"}})


def test_every_person_of_a_target_can_be_asked_about():
    """The two lists stand in two packages that do not know each other."""
    import yaml

    from pvf.words import load_words

    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    person = yaml.safe_load(text)["person"]
    assert list(load_words("people").words) == list(person.values())
    found = match_words([*person, "Bible"], load_words("people").words)
    assert found == {target: ("own", [phrase]) for target, phrase in person.items()}


@pytest.mark.real
def test_all_targets_of_race_and_religion_but_the_bible_are_persons(stereoset):
    from tda_bias.behaviour.targets import match_words
    from tda_bias.triples import load_triples

    targets = {
        t.group for c in ("race", "religion") for t in load_triples(str(stereoset), category=c)
    }
    from pvf.words import load_words

    assert targets - set(match_words(sorted(targets), load_words("people").words)) == {"Bible"}


def test_covariates_are_taken_out_together(monkeypatch):
    """Against residuals of an ordinary regression on ranks."""
    import statsmodels.api as sm
    from scipy.stats import pearsonr, rankdata

    from tda_bias.behaviour.crossref import correlations, usable_covariates
    from tda_bias.behaviour.targets import with_frequency

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
