"""SmolLM2-135M answers underspecified questions."""

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


@pytest.fixture(scope="module")
def design():
    return sampled_design(load_class("gender"), DesignConfig(subjects=3, attributes=6, seed=1))


@pytest.mark.parametrize("how", ["cloze", "question"])
def test_answers_are_those_of_the_plain_model(model, design, how):
    found = ask_questions(model, design, config=AskConfig(ask=how))
    assert found.record.notes["share_prefix"]
    for number, (where, *rest) in enumerate(every_question(design)):
        if number % 173:
            continue
        assert found.log_prob[where] == pytest.approx(answer(model, how, *rest), abs=1e-3)


def test_nurses_and_mechanics_are_told_apart(model):
    """What every study of such models finds; if this fails, signs are wrong."""
    import dataclasses

    gender = load_class("gender")
    few = tuple(
        a for a in gender.attributes["name"] if a.name in ("nurse", "mechanic", "secretary")
    )
    asked = dataclasses.replace(gender, attributes={"name": few})
    design = sampled_design(asked, DesignConfig(subjects=4, seed=2))
    report = bias_report(ask_questions(model, design))
    female = report.groups[report.groups["group"] == "female"].set_index("attribute")["gamma"]
    assert female["nurse"] > female["mechanic"]
    assert female["secretary"] > female["mechanic"]
