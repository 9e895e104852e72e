"""What the presets are made of: texts that are found or listed, words and questions as outcomes."""

import json
from dataclasses import replace

import pytest

from pvf.config import RiskConfig, ScoreConfig
from pvf.reading import score_preferences
from pvf.report import risk_report
from pvf.words import Template, WordClasses, WordList
from tda_bias import InputError
from tda_bias.comparison.battery import (
    PRESETS,
    _questions,
    _risk,
    battery,
    response_measure,
    risk_measure,
)
from tda_bias.comparison.measures import perplexity_measure
from tda_bias.config import RespondConfig
from tda_bias.responses.respond import respond
from tda_bias.sources import NeutralText
from tda_bias.types import ROLES
from tdabias_cli.compare import CompareSettings
from tests.support.bbq import write_rows
from tests.support.pairs import write_lines
from tests.support.responses import some_people, some_prompts, writing_model
from unqover.asking import ask_questions
from unqover.bbq.asking import bbq_scores
from unqover.bbq.readers import load_bbq
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig, InferenceConfig
from unqover.questions import sampled_design
from unqover.report import bias_report

NAMES = (
    "stereoset", "intrasentence", "crows", "winobias", "winogender", "pvf", "unqover", "bbq",
    "perplexity", "blimp", "divergence",
)  # fmt: skip


@pytest.fixture
def nothing_there(monkeypatch):
    def gone(*_, **__):
        raise InputError("could not be fetched")

    for name in ("tda_bias.pairs.published", "tda_bias.triples", "tda_bias.sources",
                 "unqover.bbq.readers"):  # fmt: skip
        monkeypatch.setattr(f"{name}.hub_split", gone)
    return {
        "data": "starter", "sentences": "stereoset",
        "text": "wikitext2", "twins": "auto", "limit": 2,
    }  # fmt: skip


def test_what_the_hub_alone_has_is_listed_where_it_cannot_be_reached(nothing_there):
    measures, not_measured = battery("smoke", **nothing_there)
    assert {one.name for one in not_measured} == {
        "intrasentence", "crows", "bbq", "perplexity", "divergence",
    }  # fmt: skip
    assert all("could not be fetched" in one.reason for one in not_measured)
    assert {one.name for one in (*measures, *not_measured)} == set(NAMES)


def test_texts_that_were_named_must_be_there_and_all_that_are_not_are_said_at_once(
    nothing_there, tmp_path
):
    named = {"text": str(tmp_path / "no.txt"), "sentences": str(tmp_path / "no.json")}
    named |= {"pairs": "blimp", "pairs_data": "no"}
    said = r"`sentences` .*no\.json.*; `text` .*no\.txt.*; `pairs_data`"
    with pytest.raises(InputError, match=said) as error:
        battery("smoke", **nothing_there | named)
    assert str(error.value).count("no.txt") == 1  # perplexity and divergence read one file


def test_sentences_without_a_category_of_ones_own_are_listed(nothing_there, tmp_path, monkeypatch):
    """The environment names StereoSet's; who names a file is told that it lacks the category."""
    item = {"target": "old", "bias_type": "age", "context": "The old man.", "stereotype": "He sat.",
            "anti-stereotype": "He ran.", "unrelated": "It is red."}  # fmt: skip
    data = write_lines(tmp_path, item, name="age.jsonl")
    blank = {**item, "bias_type": "gender", "context": "The old man BLANK."}
    sentences = [{"sentence": blank[role], "gold_label": role} for role in ROLES]
    dev = tmp_path / "dev.json"
    dev.write_text(json.dumps({"data": {"intrasentence": [{**blank, "sentences": sentences}]}}))
    monkeypatch.setenv("TDABIAS_STEREOSET", str(dev))
    given = nothing_there | {"data": str(data), "twins": "none", "category": "age"}
    only = ["stereoset", "intrasentence"]
    [measure], not_measured = battery("smoke", **given, only=only)
    assert measure.name == "stereoset"
    assert "intrasentence" in {one.name for one in not_measured}
    with pytest.raises(InputError, match="must be one of gender, all, which `sentences`"):
        battery("smoke", **given | {"sentences": str(dev)}, only=only)


def test_a_set_that_pairs_names_takes_the_place_of_the_presets_sample(nothing_there):
    def measured(**options):
        return [m.about["pairs"] for m in battery("smoke", **nothing_there, **options)[0]]

    assert measured(only=["winogender"]) == [120]
    assert measured(only=["winogender", "pairs"], pairs="winogender") == [240]
    with pytest.raises(InputError, match="`pairs_data` 'no' is no folder"):
        battery("smoke", **nothing_there, only=["pairs"], pairs="crows", pairs_data="no")


def test_a_set_of_ones_own_has_no_measures_name(nothing_there, tmp_path):
    """The saved answers and the record of both would have one name."""
    pair = {"id": 1, "group": "old", "more": "The man sat.", "less": "The man ran."}
    given = nothing_there | {"only": ["pairs"]}
    with pytest.raises(InputError, match="cannot be named 'pvf', as another measure is"):
        battery("smoke", **given, pairs=str(write_lines(tmp_path, pair, name="pvf.jsonl")))
    own = write_lines(tmp_path, pair, name="pairs.jsonl")
    [measure], _ = battery("smoke", **given, pairs=str(own))
    assert measure.name == "pairs"


def test_target_effects_of_texts_without_twins_are_listed(nothing_there):
    only = {"only": ["stereoset"], "category": "gender"}
    assert battery("smoke", **nothing_there, **only)[1] == []
    [lacking] = battery("smoke", **nothing_there | {"twins": "none"}, **only)[1]
    assert (lacking.name, lacking.reason) == ("beta_sum_gender", "`twins` is none")


def test_every_measure_is_named_in_the_help_of_only(nothing_there):
    said = CompareSettings.model_fields["only"].description
    known = [*NAMES, "respond"]
    assert all(name in said for name in known)
    with pytest.raises(InputError, match=f"must be among {', '.join(known)}; got 'x'"):
        battery("smoke", **nothing_there, only=["x"])


def test_encoder_decoders_are_not_asked_for_what_is_not_defined_for_them(nothing_there, tiny_lm):
    model, text = tiny_lm("t5"), NeutralText("The nurse said that. " * 40, "here", None)
    (questions,), _ = battery("smoke", **nothing_there, only=["unqover"])
    for measure in (perplexity_measure(text), questions):
        with pytest.raises(InputError, match="causal and masked|causal or masked"):
            measure.items(model, batch_size=8)


def test_responses_are_compared_only_where_they_are_named_prompt_by_prompt(nothing_there):
    assert "respond" not in [measure.name for measure in battery("smoke", **nothing_there)[0]]
    (asked,), _ = battery("smoke", **nothing_there, only=["respond"])
    assert len(asked.about["ids"]) == 12
    assert asked.about["settings"]["samples"] == PRESETS["smoke"].responses
    config = RespondConfig(samples=1, tokens=4)
    measure = response_measure(some_prompts(3, 0), some_people(), config)
    model = writing_model(by_group=True)
    items = measure.items(model, batch_size=8)
    found = respond(model, some_prompts(3, 0), some_people(), config=config)
    assert items["cluster"].tolist() == found.prompts["id"].tolist()
    assert items["value"].tolist() == pytest.approx(found.prompts["effect"].tolist())


def test_risk_is_that_of_the_report(tiny_lm):
    words = WordList("own", "here", ("nurse", "cook", "man", "heiress"))
    templates = [Template("The [X] said that [Y]", 3.0), Template("The [X] knew that [Y]", 1.0)]
    classes = WordClasses("own", "here", {"male": ("he",), "female": ("she",)}, ())
    measure, model = risk_measure(words, templates, classes), tiny_lm("gpt2")
    items = measure.items(model, batch_size=8)
    preferences = score_preferences(model, words, templates, classes, config=ScoreConfig())
    risk = risk_report(preferences, config=RiskConfig()).risk
    assert set(items["outcome"]) == {outcome.name for outcome in measure.outcomes}
    for name, own in items.groupby("outcome"):
        expected = getattr(risk, str(name).removeprefix("pvf_"))
        assert own["value"].mean() == pytest.approx(expected, rel=1e-9)


def test_questions_are_those_of_the_report(tiny_lm):
    small = replace(PRESETS["smoke"], subjects=2, attributes=2)
    measure, model = _questions(small, seed=1), tiny_lm("gpt2")
    design = sampled_design(load_class("gender"), DesignConfig(subjects=2, attributes=2, seed=1))
    items = measure.items(model, batch_size=8)
    answers = ask_questions(model, design, config=AskConfig())
    summary = bias_report(answers, config=InferenceConfig(n_flips=19, n_bootstrap=100)).summary
    row = summary[(summary["scale"] == "two_way") & (summary["compared"] == "subjects")].iloc[0]
    for name, own in items.groupby("outcome"):
        assert own["value"].mean() == pytest.approx(row[str(name).removeprefix("unqover_")])


def test_smoke_takes_its_occupations_from_the_whole_list():
    every, some = (_risk(PRESETS[name]).about["words"] for name in ("full", "smoke"))
    assert len(some) == 20
    places = [every.index(word) for word in some]
    assert places == sorted(places)
    assert max(places) > 0.8 * len(every)


def test_bbq_s_outcomes_are_those_of_its_command(nothing_there, tiny_lm, tmp_path):
    path = write_rows(tmp_path, templates=3)
    [measure], _ = battery("smoke", **nothing_there, only=["bbq"], bbq=str(path))
    model = tiny_lm("gpt2", n_positions=512)
    items = measure.items(model, batch_size=8)
    scored = bbq_scores(model, load_bbq(str(path), limit=PRESETS["smoke"].questions))
    assert [one.name for one in measure.outcomes] == ["bbq_bias", "bbq_s_AMB", "bbq_accuracy"]
    for name, of in {
        "bbq_bias": ("bias", "ambiguous"), "bbq_s_AMB": ("s_AMB", "ambiguous"),
        "bbq_accuracy": ("accuracy", "disambiguated"),
    }.items():  # fmt: skip
        own = items[items["outcome"] == name]
        assert own["value"].mean() == pytest.approx(scored.value(*of)["value"])
        assert own["item"].is_unique
        assert own["cluster"].nunique() == 2
