"""The composition of a cross-reference: what is joined, what is refused, what is saved."""

from dataclasses import replace
from importlib.resources import files
from itertools import product

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

from pvf.words import load_words
from tda_bias import HeadBias
from tda_bias.config import CrossrefConfig
from tda_bias.crossref.crossref import (
    CrossReference,
    WordScores,
    cross_reference,
    head_summaries,
    head_vectors,
    joined,
    match_words,
    normalised_target,
    preferences_of_targets,
)
from tda_bias.crossref.finding import target_finding
from tda_bias.crossref.rank_tests import correlations, head_map
from tda_bias.scores.stereoset_scores import StereoSetRecord, StereoSetScores
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.store.result import writing_run
from tda_bias.triples import load_triples
from tda_bias.types import CATEGORIES, InputError

# The combined value of a head that the tests compare.
T = "combined_relative"


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
        model=heads_run.record.model,
        kind="causal",
        texts={"triples": len(items), "hash": "h"},
        confidence=0.95,
        seed=0,
    )
    twins = pd.DataFrame({"item": [0]})
    nothing = pd.DataFrame()
    return StereoSetScores(
        items, nothing, nothing, twins, nothing, nothing, nothing, nothing, record
    )


@pytest.fixture(scope="module")
def found(heads_run, said, preferences):
    return cross_reference(
        heads_run,
        said,
        stereoset=preferences,
        config=CrossrefConfig(rank_by="relative", n_permutations=99, seed=3),
    )


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [("else", r"different weights \(tiny-gpt2 and other\)"), (None, "another version of tdabias")],
)
def test_other_models_are_refused(heads_run, said, preferences, weights, message):
    other = said.record.model.model_copy(update={"weights": weights, "name": "other"})
    with pytest.raises(InputError, match=message):
        cross_reference(heads_run, replace(said, record=RunRecord(command="pvf", model=other)))
    record = preferences.record.model_copy(update={"model": other})
    with pytest.raises(InputError, match=message):
        cross_reference(heads_run, said, stereoset=replace(preferences, record=record))


def test_scores_of_other_targets_are_refused(heads_run, said, preferences):
    lacking = preferences.items["group"].iloc[0]
    items = preferences.items[preferences.items["group"] != lacking]
    with pytest.raises(InputError, match=f"has no items of {lacking!r}; run it on the same cat"):
        cross_reference(heads_run, said, stereoset=replace(preferences, items=items))


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
    summaries = head_summaries(heads_run.table, head_vectors(heads_run.combined, T)).set_index(
        "target"
    )
    assert table.loc[target, "gini"] == summaries.loc[target, "gini"]


def test_every_test_is_that_of_its_function(found, heads_run, said):
    quantities = ["r", "r_p", "r_v", "s_male", "log_odds", "abs_log_odds", "beta", "abs_beta"]
    assert list(found.heads["quantity"].unique()) == quantities
    own = correlations(found.targets, quantities, n_resamples=99, rng=np.random.default_rng([3, 0]))
    pd.testing.assert_frame_equal(found.correlations.iloc[: len(own)], own)
    assert set(found.correlations["summary"].iloc[len(own) :]) == set(quantities[4:])
    place = pd.MultiIndex.from_frame(found.targets[["category", "target"]])
    expected, shuffled = head_map(
        head_vectors(heads_run.combined, T).loc[place],
        found.targets["r_v"],
        n_resamples=99,
        rng=np.random.default_rng([3, 4]),
    )
    of_risk = found.heads[found.heads["quantity"] == "r_v"].drop(columns="quantity")
    pd.testing.assert_frame_equal(of_risk.reset_index(drop=True), expected)
    assert found.record.shuffled_heads["r_v"] == shuffled


def test_correlations_without_heads_are_a_control_and_no_result(found):
    table = found.correlations.assign(q=0.5)
    table.loc[table["summary"].isin(["log_odds", "abs_log_odds", "beta", "abs_beta"]), "q"] = 0.01
    told = target_finding(replace(found, correlations=table))
    assert told.result[0].startswith("No link between what the heads do with a target")
    assert "(smallest q 0.50)" in told.result[0]
    # Four quantities of words with four of StereoSet.
    assert told.control[0].startswith("Of 16 correlations between words and StereoSet's own")
    assert told.control[0].endswith("16 have q (FDR) < .05.")


def test_scores_without_twins_have_no_beta(preferences):
    plain = replace(preferences, twins=pd.DataFrame())
    assert list(preferences_of_targets(plain)) == [
        "category", "target", "log_odds", "abs_log_odds",
    ]  # fmt: skip


# -- heads -----------------------------------------------------------------------------------------


def made_up_heads():
    generator = np.random.default_rng(1)
    places = product(("nurse", "engineer", "tailor"), range(2), range(5))
    combined = pd.DataFrame(places, columns=["group", "layer", "head"]).assign(
        category="profession"
    )
    combined["combined_relative"] = generator.normal(size=len(combined))
    table = pd.concat([combined.assign(dim=dim) for dim in (0, 1)], ignore_index=True)
    table["n"] = 9
    table["q_bh"] = generator.uniform(size=len(table))
    return table, combined


def test_summaries_by_hand():
    table, combined = made_up_heads()
    found = head_summaries(table, head_vectors(combined, T)).set_index("target")
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
    found = head_vectors(combined.sample(frac=1, random_state=0), T)
    assert found.columns.to_list() == [(layer, head) for layer in range(2) for head in range(5)]
    expected = combined[combined["group"] == "engineer"].sort_values(["layer", "head"])
    np.testing.assert_array_equal(
        found.loc["profession", "engineer"], expected["combined_relative"]
    )


# -- words -----------------------------------------------------------------------------------------


OCCUPATIONS = ["nurse", "developer", "programmer", "technician", "electrician", "baker"]


def test_a_word_stands_for_its_own_target_and_a_table_made_for_the_targets_is_their_own():
    found = match_words(["Nurse", "software developer", "prisoner"], OCCUPATIONS)
    assert found == {"Nurse": ("exact", "nurse")}
    found = match_words(["nurse", "Norweigan", "prisoner"], ["nurse", "Norwegian"])
    assert found == {"nurse": ("own", "nurse"), "Norweigan": ("own", "Norwegian")}
    assert normalised_target("Eriteria") == "Eritrea"


@pytest.mark.parametrize(
    ("category", "targets", "way"),
    [
        ("gender", ["herself", "mother", "mommy", "schoolboy", "gentlemen"], "targets:gender`"),
        ("profession", ["prisoner", "butcher", "plumber", "mover"], "targets:profession`"),
        ("gender", ["aunt", "uncle", "niece", "nephew"], "FILE` with the targets, one per line"),
        ("religion", ["Muslim", "Bible", "Brahmin"], "heads --category all` and `tdabias pvf"),
        ("age", ["teenager", "senior", "child", "adult"], "FILE` with the targets of the heads"),
        ("age", ["teenager"], "the run of heads has 1: run `tdabias heads` on more"),
    ],
)
def test_too_few_common_targets_are_refused_with_a_way_that_works(category, targets, way):
    heads = pd.DataFrame({"category": category, "target": targets})
    behaviour = pd.DataFrame({"x": OCCUPATIONS, "r": [0.1, 0.2, 0.4, 0.5, 0.7, 0.9]})
    with pytest.raises(InputError, match="have 0 common targets, 4 are needed; ") as refused:
        joined(heads, behaviour)
    assert way in str(refused.value)
    assert "\n" not in str(refused.value)
    if "targets:" in way and category in way:
        words = load_words(f"targets:{category}").words
        said = pd.DataFrame({"x": words, "r": np.arange(len(words), dtype=float)})
        assert len(joined(heads, said)) >= 4


def test_targets_without_a_word_are_named(heads_run, said):
    lacking = said.by_x["x"].iloc[0]
    fewer = replace(said, by_x=said.by_x.iloc[1:])
    found = cross_reference(heads_run, fewer, config=CrossrefConfig(n_permutations=99))
    assert found.record.without_word == (lacking,)
    told = target_finding(found).control[-1]
    assert told == f"1 target of the heads has no word there: {lacking}."


@pytest.mark.parametrize("by", ["evidence", "location", "metric"])
def test_the_record_names_the_quantity_that_T_is(heads_run, said, by):
    config = CrossrefConfig(rank_by=by, n_permutations=99)
    found = cross_reference(heads_run, said, config=config)
    column = {"evidence": "combined_relative"}.get(by, f"combined_{by}")
    assert found.record.statistic == column
    target = found.targets.iloc[0]
    own = heads_run.combined[heads_run.combined["group"] == target["target"]]
    assert target["mean_T"] == pytest.approx(own[column].mean())
    name = {"evidence": "the dispersion", "location": "the location statistic"}
    assert name.get(by, "the metric T") in target_finding(found).details[0]


def test_every_person_of_a_target_can_be_asked_about():
    """The two lists stand in two packages that do not know each other."""
    text = files("tda_bias.data").joinpath("targets.yaml").read_text(encoding="utf-8")
    person = yaml.safe_load(text)["person"]
    gentleman = person.pop("gentlemen")
    assert gentleman in load_words("targets:gender").words
    assert list(load_words("people").words) == list(person.values())
    found = match_words([*person, "Bible"], load_words("people").words)
    assert found == {target: ("own", phrase) for target, phrase in person.items()}


@pytest.mark.real
def test_all_targets_of_race_and_religion_but_the_bible_are_persons(stereoset):
    triples = [t for c in ("race", "religion") for t in load_triples(str(stereoset), category=c)]
    targets = {triple.group for triple in triples}
    assert targets - set(match_words(sorted(targets), load_words("people").words)) == {"Bible"}


@pytest.mark.real
def test_every_category_has_a_word_for_all_of_its_targets_that_are_nouns_of_people(stereoset):
    without = {"gender": {"herself", "himself"}, "religion": {"Bible"}}
    for category in CATEGORIES:
        groups = {triple.group for triple in load_triples(str(stereoset), category=category)}
        found = match_words(sorted(groups), load_words(f"targets:{category}").words)
        assert groups - set(found) == without.get(category, set())
        assert {kind for kind, _ in found.values()} == {"own"}


# -- what the model says ---------------------------------------------------------------------------


def scored(folder, command="pvf", table=True, **columns):
    record = RunRecord(command=command, model=ModelRecord(name="m", weights="w"))
    by_x = pd.DataFrame({"x": ["nurse", "None"], "r": [0.1, np.nan], "r_p": 0.1, "r_v": 0.0})
    with writing_run(folder, record) as run:
        if table:
            run.table("by_x.csv", by_x.assign(s_male=0.2).drop(columns=columns.get("without", [])))
    return folder


def test_runs_that_say_something_of_words_are_read_and_others_say_how_to_make_them(tmp_path):
    found = WordScores.load(scored(tmp_path))
    assert found.by_x["x"].tolist() == ["nurse", "None"]
    folder = scored(tmp_path / "a", table=False)
    with pytest.raises(InputError, match=f"no by_x.csv; `tdabias pvf risk {folder}` makes it"):
        WordScores.load(folder)
    with pytest.raises(InputError, match="no by_x.csv; run `tdabias unqover` again"):
        WordScores.load(scored(tmp_path / "b", "unqover", table=False))
    with pytest.raises(InputError, match="is a run of `tdabias heads`, not of `tdabias pvf` or"):
        WordScores.load(scored(tmp_path / "c", "heads"))
    with pytest.raises(InputError, match="holds no finished run of `tdabias pvf` or"):
        WordScores.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="lacks the column 'r'"):
        WordScores.load(scored(tmp_path / "d", without=["r"]))


# -- files -----------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_again(found, tmp_path):
    named = found.with_record(heads="runs/a", behaviour="runs/b")
    paths = named.save(tmp_path, figures={"targets": Figure()})
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}
    loaded = CrossReference.load(tmp_path)
    for name in ("targets", "correlations", "heads"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(named, name))
    assert loaded.record.heads == "runs/a"
    assert loaded.record.shuffled_heads == found.record.shuffled_heads
    with pytest.raises(InputError, match="is a run of `tdabias crossref`, not of `tdabias heads`"):
        HeadBias.load(tmp_path)


def test_results_it_was_made_from_are_named_by_their_content(heads_run, said, tmp_path):
    heads_run.save(tmp_path / "heads")
    loaded = HeadBias.load(tmp_path / "heads")
    assert set(
        cross_reference(loaded, said, config=CrossrefConfig(n_permutations=99)).record.made_from
    ) == {"heads"}
    found = cross_reference(heads_run, said, config=CrossrefConfig(n_permutations=99))
    assert (found.record.made_from, found.record.by) == ({}, heads_run.rank_by)
    # Without scores there are risks only.
    assert list(found.heads["quantity"].unique()) == ["r", "r_p", "r_v", "s_male"]
