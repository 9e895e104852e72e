"""The published words and templates on SmolLM2-135M."""

import numpy as np
import pytest
import torch

from pvf.config import RiskConfig
from pvf.reading import score_preferences
from pvf.report import risk_report
from pvf.words import Template, WordClasses, WordList, load_classes, load_templates, load_words
from tda_bias.models.load import load_language_model

pytestmark = [pytest.mark.real, pytest.mark.thorough]


@pytest.fixture(scope="module")
def model():
    return load_language_model("smollm2-135m", device="cpu")


@pytest.fixture(scope="module")
def pronouns(model):
    return score_preferences(
        model, load_words("occupations"), load_templates("gender"), load_classes("pronouns")
    )


def test_every_published_word_can_be_written(model):
    """And has the tokens it has behind every template, not only behind the anchor."""
    from pvf.word_tokens import word_tokens

    for name, source in (("gender", "gender"), ("race", "race"), ("religion", "race")):
        listed = word_tokens(model.tokenizer, load_classes(name))
        assert not listed.skipped
        for template in load_templates(source):
            prompt = template.prompt("nurse")
            before = model.tokenizer(prompt)["input_ids"]
            for word, own in zip(listed.words, listed.tokens, strict=True):
                ids = model.tokenizer(f"{prompt} {word}")["input_ids"]
                assert ids == [*before, *own]


def test_probabilities_are_those_of_the_plain_model(model):
    """Full word lists, each word of several tokens by its own forward pass."""
    templates = load_templates("gender")[:2]
    words = WordList("one", "occupations", ("nurse",))
    found = score_preferences(model, words, templates, load_classes("gender"))
    for c, template in enumerate(templates):
        prompt = model.tokenizer(template.prompt("nurse"))["input_ids"]
        for word in ("he", "stepfather", "baroness", "soprano"):
            ids = model.tokenizer(f"{template.prompt('nurse')} {word}")["input_ids"]
            with torch.no_grad():
                logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
            steps = torch.log_softmax(logits, -1)[range(len(prompt) - 1, len(ids) - 1)]
            own = ids[len(prompt) :]
            expected = float(steps[range(len(own)), own].sum())
            log_prob = found.log_prob[0, c, found.words.index(word)]
            assert log_prob == pytest.approx(expected, abs=1e-4)


def test_the_measured_risk_is_the_recorded_one_and_nurse_leans_to_she(pronouns):
    report = risk_report(pronouns, config=RiskConfig())
    measured = report.summary.iloc[0]
    for name, recorded in {"R": 0.2630, "R_p": 0.2071, "R_v": 0.0559}.items():
        assert measured[name] == pytest.approx(recorded, abs=5e-4)
    lean = report.by_x.set_index("x")["s_female"]
    assert lean["nurse"] == pytest.approx(0.669, abs=0.002)
    assert lean["engineer"] == pytest.approx(0.240, abs=0.002)
    by_template = pronouns.by_class().p[..., 1]
    nurse, engineer = (by_template[pronouns.x.index(word)] for word in ("nurse", "engineer"))
    assert (nurse > engineer).all()


def test_chinese_is_read_without_a_space_where_the_template_has_none(model):
    classes = WordClasses("pronouns", "test", {"male": ("他",), "female": ("她",)}, ())
    words = WordList("jobs", "test", ("工程师", "医生"))
    risk = {}
    for text in ("[X]说[Y]", "[X]说 [Y]"):
        found = score_preferences(model, words, [Template(text, 1.0)], classes)
        p, mass = found.by_class()
        risk[text] = 2 * p[:, 0, 0] - 1, mass[:, 0]
    s, mass = risk["[X]说[Y]"]
    np.testing.assert_allclose(s, [0.2578, -0.0455], atol=1e-3)
    np.testing.assert_allclose(mass, [2.46e-3, 7.07e-4], rtol=1e-2)
    s, mass = risk["[X]说 [Y]"]
    np.testing.assert_allclose(s, [0.9467, 0.1107], atol=1e-3)
    np.testing.assert_allclose(mass, [3.51e-6, 4.96e-7], rtol=1e-2)
