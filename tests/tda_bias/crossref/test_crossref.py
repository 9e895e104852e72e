"""The composition of a cross-reference: what is joined, what is refused, what is saved."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tda_bias import HeadBias
from tda_bias.crossref.crossref import (
    CrossReference,
    cross_reference,
    places_of,
    preferences_of_targets,
)
from tda_bias.crossref.rank_tests import correlations, head_map
from tda_bias.crossref.targets import WordScores, head_summaries, head_vectors
from tda_bias.runs.record import RunRecord
from tda_bias.scores.stereoset_scores import StereoSetRecord, StereoSetScores
from tda_bias.types import InputError


@pytest.fixture(scope="module")
def said(heads_run):
    """Made-up risks of the run's own targets, in another order."""
    targets = heads_run.groups["group"].unique()[::-1]
    by_x = pd.DataFrame({"x": targets, "toward": "male"})
    generator = np.random.default_rng(0)
    for name in ("r", "r_p", "r_v", "s_male", "s_female"):
        by_x[name] = generator.uniform(size=len(targets))
    return WordScores(by_x, RunRecord(command="pvf", model=heads_run.record.model))


@pytest.fixture(scope="module")
def preferences(heads_run):
    """Made-up scores of the run's own targets, with twins."""
    generator = np.random.default_rng(1)
    items = heads_run.groups[["category", "group"]].loc[
        np.repeat(np.arange(len(heads_run.groups)), 3)
    ]
    items = items.reset_index(drop=True)
    for name in ("log_prob_s", "log_prob_a", "beta_sum"):
        items[name] = generator.normal(size=len(items))
    record = StereoSetRecord(
        model=heads_run.record.model, kind="causal", texts={"triples": len(items), "hash": "h"}
    )
    twins = pd.DataFrame({"item": [0]})
    nothing = pd.DataFrame()
    return StereoSetScores(
        items, nothing, nothing, twins, nothing, nothing, nothing, nothing, record
    )


@pytest.fixture(scope="module")
def found(heads_run, said, preferences):
    return cross_reference(
        heads_run, said, stereoset=preferences, by="relative", n_resamples=99, seed=3
    )


# -- bad input -------------------------------------------------------------------------------------


def test_a_target_without_head_values_is_refused_not_taken_for_the_first():
    keys = pd.DataFrame({"category": "gender", "target": ["he", "she"]})
    table = pd.DataFrame({"category": ["gender", "race"], "target": ["she", "she"]})
    with pytest.raises(InputError, match=r"the run of the heads has no values of 'she' \(race\)"):
        places_of(keys, table)
    assert places_of(keys, keys[::-1]).tolist() == [1, 0]


def test_other_models_are_refused(heads_run, said, preferences):
    other = said.record.model.model_copy(update={"weights": "else"})
    with pytest.raises(InputError, match="models with different weights"):
        cross_reference(heads_run, replace(said, record=RunRecord(command="pvf", model=other)))
    record = preferences.record.model_copy(update={"model": other})
    with pytest.raises(InputError, match="models with different weights"):
        cross_reference(heads_run, said, stereoset=replace(preferences, record=record))


def test_scores_of_other_targets_are_refused(heads_run, said, preferences):
    lacking = preferences.items["group"].iloc[0]
    items = preferences.items[preferences.items["group"] != lacking]
    with pytest.raises(InputError, match=f"has no items of {lacking!r}; run it on the same cat"):
        cross_reference(heads_run, said, stereoset=replace(preferences, items=items))


def test_an_unknown_quantity_is_refused(found):
    with pytest.raises(InputError, match="`quantity` must be one of r, r_p, r_v, s_male, log_odds"):
        found.head_map("risk")


# -- the composition -------------------------------------------------------------------------------


def test_targets_hold_summaries_risks_and_preferences(found, heads_run, said, preferences):
    table = found.targets.set_index("target")
    assert set(table.index) == set(said.by_x["x"])
    target = table.index[2]
    risks = said.by_x.set_index("x").loc[target]
    assert table.loc[target, ["r", "s_male"]].tolist() == risks[["r", "s_male"]].tolist()
    own = preferences.items[preferences.items["group"] == target]
    expected = (own["log_prob_s"] - own["log_prob_a"]).mean()
    assert table.loc[target, "log_odds"] == pytest.approx(expected)
    assert table.loc[target, "abs_beta"] == pytest.approx(abs(own["beta_sum"].mean()))
    summaries = head_summaries(heads_run.table, heads_run.combined).set_index("target")
    assert table.loc[target, "gini"] == summaries.loc[target, "gini"]


def test_every_test_is_that_of_its_function(found, heads_run, said):
    quantities = ["r", "r_p", "r_v", "s_male", "log_odds", "abs_log_odds", "beta", "abs_beta"]
    assert found.quantities == quantities
    own = correlations(found.targets, quantities, n_resamples=99, rng=np.random.default_rng([3, 0]))
    pd.testing.assert_frame_equal(found.correlations.iloc[: len(own)], own)
    assert set(found.correlations["summary"].iloc[len(own) :]) == set(quantities[4:])
    keys, values, columns = head_vectors(heads_run.combined)
    values = values[[list(keys["target"]).index(name) for name in found.targets["target"]]]
    expected = head_map(
        values,
        columns,
        found.targets["r_v"].to_numpy(),
        list(found.targets["category"]),
        name="r_v",
        n_resamples=99,
        rng=np.random.default_rng([3, 4]),
    )
    pd.testing.assert_frame_equal(found.head_map("r_v").table, expected.table)
    assert found.head_map("r_v").shuffled == expected.shuffled


def test_without_scores_there_are_risks_only(heads_run, said):
    found = cross_reference(heads_run, said, n_resamples=99)
    assert found.quantities == ["r", "r_p", "r_v", "s_male"]
    assert found.record.by == heads_run.rank_by


def test_scores_without_twins_have_no_beta(preferences):
    plain = replace(preferences, twins=pd.DataFrame())
    assert list(preferences_of_targets(plain)) == [
        "category", "target", "log_odds", "abs_log_odds",
    ]  # fmt: skip


# -- files -----------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_again(found, tmp_path):
    named = found.with_record(heads="runs/a", behaviour="runs/b")
    paths = named.save(tmp_path, figures={"targets": Figure()})
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    loaded = CrossReference.load(tmp_path)
    for name in ("targets", "correlations", "heads"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(named, name))
    assert loaded.record.heads == "runs/a"
    assert loaded.head_map("r").shuffled == found.head_map("r").shuffled
    with pytest.raises(InputError, match="is a run of `tdabias crossref`, not of `tdabias heads`"):
        HeadBias.load(tmp_path)


def test_results_it_was_made_from_are_named_by_their_content(heads_run, said, tmp_path):
    heads_run.save(tmp_path / "heads")
    loaded = HeadBias.load(tmp_path / "heads")
    assert set(cross_reference(loaded, said, n_resamples=99).record.made_from) == {"heads"}
    assert cross_reference(heads_run, said, n_resamples=99).record.made_from == {}
