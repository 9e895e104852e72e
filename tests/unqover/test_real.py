"""SmolLM2-135M answers underspecified questions."""

from dataclasses import replace

import pytest

from tda_bias.models.load import load_language_model
from tests.support.asked import answer, every_question
from unqover.asking import ask_questions
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig
from unqover.questions import sampled_design
from unqover.report import bias_report

pytestmark = [pytest.mark.real, pytest.mark.thorough]


@pytest.fixture(scope="module")
def model():
    return load_language_model("smollm2-135m", device="cpu")


def design_of(subjects):
    gender = load_class("gender")
    wanted = ("nurse", "mechanic", "secretary")
    few = tuple(a for a in gender.attributes["name"] if a.name in wanted)
    asked = replace(gender, attributes={"name": few})
    return sampled_design(asked, DesignConfig(subjects=subjects, seed=2))


@pytest.fixture(scope="module")
def cloze(model):
    return ask_questions(model, design_of(4))


def compare_with_plain_passes(model, design, found, how):
    for where, *rest in list(every_question(design))[::97]:
        assert found.log_prob[where] == pytest.approx(answer(model, how, *rest), abs=1e-3)


def test_answers_are_those_of_the_plain_model(model, cloze, scorers):
    compare_with_plain_passes(model, design_of(4), cloze, "cloze")
    pair = design_of(1)
    question = ask_questions(model, pair, config=AskConfig(ask="question"))
    assert scorers[0].packed
    compare_with_plain_passes(model, pair, question, "question")


def test_nurses_and_mechanics_are_told_apart(cloze):
    """What every study of such models finds; if this fails, signs are wrong."""
    groups = bias_report(cloze).groups
    female = groups[groups["group"] == "female"].set_index("attribute")["gamma"]
    assert female["nurse"] > female["mechanic"]
    assert female["secretary"] > female["mechanic"]
