"""Heads' effects on risks against their attention: what is chosen, correlated and said."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pvf.words import Template, WordClasses
from tda_bias import HeadBiasConfig, head_bias
from tda_bias.ablation.effects import HeadEffects
from tda_bias.ablation.word_outcome import WordRisk, WordsAsked
from tda_bias.config import HeadCrossrefConfig
from tda_bias.crossref.head_crossref import (
    RISKS,
    HeadCrossReference,
    cross_reference_heads,
    effects_agreement,
    head_correlations,
    largest,
)
from tda_bias.crossref.head_finding import head_finding
from tda_bias.plots.head_effects import head_effects_figure
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError

ASKED = WordsAsked(
    ("nurse", "cook", "doctor", "woman"),
    (Template("The [X] said that [Y]", 2.0), Template("The [X] wrote that [Y]", 1.0)),
    WordClasses("some", "test", {"male": ("his",), "female": ("her",)}, ()),
)
CONFIG = HeadCrossrefConfig(top=2, n_permutations=199, seed=1)


@pytest.fixture(scope="module")
def run(tiny, gender):
    return head_bias(tiny("gpt2"), gender, twins=None, config=HeadBiasConfig(n_permutations=99))


@pytest.fixture(scope="module")
def parts(tiny):
    model = tiny("gpt2")
    return HeadEffects(model, ()), WordRisk(model, ASKED)


@pytest.fixture(scope="module")
def found(run, parts):
    effects, outcome = parts
    return cross_reference_heads(effects, run, outcome, category="gender", config=CONFIG)


def made_up(n_layers=6, per_layer=8, seed=0):
    """A table of heads whose layers differ in all values."""
    rng = np.random.default_rng(seed)
    layer = np.repeat(np.arange(n_layers), per_layer)
    level = rng.normal(size=n_layers)[layer]
    table = pd.DataFrame({"layer": layer, "head": np.tile(np.arange(per_layer), n_layers)})
    for name in ("T", "z_evidence", "z_location", *(f"effect_{risk}" for risk in RISKS)):
        table[name] = 3 * level * (-1 if name.startswith("effect") else 1)
        table[name] += rng.normal(size=len(table))
    return table.assign(unstable=False, chosen="no")


# -- bad input --


@pytest.mark.parametrize("top", [0, 5])
def test_too_few_heads_are_refused(run, parts, top):
    effects, outcome = parts
    config = CONFIG.model_copy(update={"top": top})
    with pytest.raises(InputError, match=f"`top` must lie between 1 and 4 for 8 heads.* got {top}"):
        cross_reference_heads(effects, run, outcome, category="gender", config=config)


def test_heads_of_another_model_are_refused(tiny, run):
    other = tiny("gpt2", n_layer=3)
    effects, outcome = HeadEffects(other, ()), WordRisk(other, ASKED)
    with pytest.raises(InputError, match="the run of heads has 8 heads and the model 12"):
        cross_reference_heads(effects, run, outcome, category="gender", config=CONFIG)


# -- the composition --


def test_the_heads_with_the_largest_estimates_and_as_many_random_ones_are_measured(found, parts):
    table, (effects, outcome) = found.heads, parts
    size = table[[f"effect_{risk}" for risk in RISKS]].abs().max(axis=1)
    assert set(table.index[table["chosen"] == "top"]) == set(size.nlargest(2).index)
    assert (table["chosen"] == "random").sum() == 2
    measured = table[table["chosen"] != "no"]
    assert table["exact_R"].notna().sum() == len(measured) == 4
    sets = [(), *((HeadId(row.layer, row.head),) for row in measured.itertuples())]
    arrays = Cache().each(effects.removal_parts(outcome.readings, sets))
    base, *without = map(outcome.summary, outcome.readings.by_tree(arrays, len(sets)))
    assert found.record.base == pytest.approx(base)
    for risk in RISKS:
        expected = [own[risk] - base[risk] for own in without]
        np.testing.assert_allclose(measured[f"exact_{risk}"], expected, atol=1e-6)
    assert list(largest(table).index) == list(size.nlargest(2).index)


def test_T_is_the_mean_over_targets_and_maps_are_those_of_the_run(found, run):
    table = found.heads.set_index(["layer", "head"])
    own = run.combined.groupby(["layer", "head"])["combined_relative"].mean()
    np.testing.assert_allclose(table["T"], own.loc[table.index])
    assert found.record.statistic == "combined_relative"
    for by in ("evidence", "location", "metric"):
        column = run.columns("gender", by=by).value
        expected = run.category.set_index(["layer", "head"])[column]
        np.testing.assert_allclose(table[f"z_{by}"], expected.loc[table.index])


def test_correlations_are_spearmans_with_size_and_fall():
    table = made_up()
    found = head_correlations(table, top=5, n_resamples=99).set_index(["ranking", "risk", "aspect"])
    assert len(found) == 3 * 3 * 2
    for risk in RISKS:
        effect = table[f"effect_{risk}"]
        for ranking, values in (("abs_T", table["T"].abs()), ("z_location", table["z_location"])):
            for aspect, compared in (("size", effect.abs()), ("fall", -effect)):
                row = found.loc[(ranking, risk, aspect)]
                assert row["spearman"] == pytest.approx(stats.spearmanr(values, compared).statistic)
    assert found["q"].min() >= found["p_within_layers"].min()


def test_layers_alone_give_large_correlations_and_no_small_p_but_heads_do():
    table = made_up()
    rows = head_correlations(table, n_resamples=999).query("ranking == 'z_evidence'")
    fall = rows[rows["aspect"] == "fall"]
    assert (fall["spearman"] > 0.4).all()
    np.testing.assert_allclose(fall["by_layers"], fall["spearman"], atol=0.15)
    assert (fall["p_within_layers"] > 0.05).all()
    assert (fall["p"] < 0.01).all()
    table["effect_R"] = -table["z_evidence"] + 0.1 * np.random.default_rng(3).normal(size=48)
    rows = head_correlations(table, n_resamples=999).query("ranking == 'z_evidence'")
    carried = rows.set_index(["risk", "aspect"]).loc[("R", "fall")]
    assert carried["q"] < 0.05
    assert carried["spearman"] - carried["by_layers"] > carried["significant"]


def test_agreement_by_hand():
    table = made_up().iloc[:4].assign(chosen=["top", "top", "random", "no"])
    for risk in RISKS:
        table[f"effect_{risk}"] = [1.0, 2.0, 4.0, 9.0]
        table[f"exact_{risk}"] = [2.0, 1.0, -4.0, np.nan]
    rows = effects_agreement(table).set_index(["risk", "chosen"])
    assert rows.loc[("R", "top"), ["heads", "same_sign", "ratio"]].tolist() == [2, 1.0, 1.25]
    assert rows.loc[("R_v", "all"), ["heads", "ratio"]].tolist() == [3, 0.5]
    assert rows.loc[("R", "all"), "same_sign"] == pytest.approx(2 / 3)
    assert rows.loc[("R_p", "all"), "spearman"] == pytest.approx(-1.0)


# -- what is said --


def with_rows(found, **changes):
    """The same, with other values for the ranking of the run and the risk R_p."""
    table = found.correlations.assign(q=0.9, by_layers=0.0, spearman=0.01)
    for aspect, (rho, q) in changes.items():
        own = (table["ranking"] == "z_evidence") & (table["risk"] == "R_p")
        table.loc[own & (table["aspect"] == aspect), ["spearman", "q"]] = rho, q
    return replace(found, correlations=table)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "are not found to carry R, R_p or R_v, nor to change them more than others"),
        ({"fall": (0.4, 0.01)}, "carry R_p: it falls on their ablation"),
        ({"size": (0.4, 0.01)}, "change R_p more than others of their layers do"),
        ({"size": (-0.4, 0.01)}, "change R_p less than others of their layers do"),
    ],
)
def test_the_answer_is_that_of_the_tests(found, changes, said):
    told = head_finding(with_rows(found, **changes))
    assert said in told.result[0]
    number = 1 if changes else 0
    assert (
        f"Of {len(found.correlations)} correlations of rankings with effects {number} survive"
        in (told.result[1])
    )
    assert "Spearman R" in told.control[0]
    assert "has p < .05 within layers" in told.power[0]


@pytest.mark.parametrize("poor", [{"spearman": 0.49}, {"spearman": np.nan}, {"same_sign": 0.7}])
def test_estimates_that_do_not_agree_with_ablation_are_doubted(found, poor):
    fair = found.agreement.assign(spearman=0.5, same_sign=0.8)
    sure = head_finding(replace(found, agreement=fair)).control
    assert not any("say little of ablation" in line for line in sure)
    table = fair.copy()
    for name, value in poor.items():
        table.loc[table["risk"] == "R_v", name] = value
    told = head_finding(replace(found, agreement=table)).control
    assert told[1].startswith("Estimates of R_v say little of ablation")


# -- files --


def test_what_is_saved_is_loaded_again(found, tmp_path):
    found.save(tmp_path, figures={"effects": head_effects_figure(found)})
    loaded = HeadCrossReference.load(tmp_path)
    for name in ("heads", "correlations", "agreement"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(found, name))
    assert loaded.record.base == found.record.base


def test_a_stopped_comparison_goes_on(run, parts, found, tmp_path):
    effects, outcome = parts
    cache, seen = Cache(tmp_path, {"a": 1}), []

    def stop(done, total):
        seen.append((done, total))
        if len(seen) > 1:
            raise KeyboardInterrupt

    how = {"category": "gender", "config": CONFIG, "cache": cache}
    with pytest.raises(KeyboardInterrupt):
        cross_reference_heads(effects, run, outcome, progress=stop, **how)
    assert seen[0][1] == seen[1][1] >= seen[1][0]
    again = cross_reference_heads(effects, run, outcome, **how)
    pd.testing.assert_frame_equal(again.heads, found.heads)
