"""Risks with heads removed: finite differences, and the whole measurement of an edited model."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from pvf.reading import score_preferences
from pvf.report import risk_report
from pvf.risk import decompose
from pvf.words import Template, WordClasses, WordList
from tda_bias.ablation.effects import HeadEffects
from tda_bias.ablation.word_outcome import WordRisk, WordsAsked
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError
from tests.tda_bias.ablation.test_ablation import without_weights

HEADS = (HeadId(0, 1), HeadId(1, 3))
WORDS = ("nurse", "cook", "software developer")
TEMPLATES = (
    Template("The [X] said that [Y]", 5.0),
    Template("The [X] wrote [Y]", 3.0),
    Template("The [X], who knew the cook, felt [Y]", 2.0),
)
# "he" is how "heiress" begins; words of several tokens.
CLASSES = WordClasses(
    "some", "test", {"male": ("he", "man", "monk"), "female": ("she", "heiress", "hers")}, ()
)
ASKED = WordsAsked(WORDS, TEMPLATES, CLASSES)
OF_ONE_TOKEN = replace(ASKED, classes=replace(CLASSES, classes={"a": ("he", "man"), "b": ("she",)}))


@pytest.fixture
def doubled(tiny_lm):
    """Tiny models in double precision."""

    def make(kind):
        changes = {"decoder_start_token_id": 1} if kind in ("t5", "bart") else {}
        model = tiny_lm(kind, **changes)
        model.hf_model.double()
        return model

    return make


def asked_of(kind):
    return OF_ONE_TOKEN if kind == "bert" else ASKED


def literal_risk(model, asked, **given):
    """The risk of a model as it is, by the command's own reader."""
    read = score_preferences(
        model, WordList("some", "test", asked.words), list(asked.templates), asked.classes
    )
    return decompose(read.by_class().p, context_weights=read.counts, **given)


def scaled(effects, model, asked, head, factor):
    """R, R_p and R_v with a head's output multiplied."""
    layer = effects.layers[head.layer]

    def hook(_, arguments):
        z = arguments[0].clone()
        layer.by_head(z)[:, :, head.head] *= factor
        return (z,)

    handle = layer.projection.register_forward_pre_hook(hook)
    risk = literal_risk(model, asked)
    handle.remove()
    return risk


def first_order(effects, outcome):
    values = effects.unchanged(outcome, Cache())
    arrays = Cache().each(effects.estimate_parts(outcome, values))
    return effects.estimates(outcome, values, arrays)


# -- bad input --


def test_models_that_are_read_otherwise_are_refused(tiny_lm):
    with pytest.raises(InputError, match="tiny-xlnet is a permutation language model; heads are"):
        WordRisk(tiny_lm("xlnet"), ASKED)


# -- the definition --


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "bart"])
def test_first_order_effects_are_derivatives_by_scaling_a_heads_output(doubled, kind):
    model, asked = doubled(kind), asked_of(kind)
    effects, outcome = HeadEffects(model, (), ablation="zero"), WordRisk(model, asked)
    found = first_order(effects, outcome)
    # Llama computes some steps in single precision, which forbids a small step.
    step, near = (3e-3, {"abs": 2e-3}) if kind == "llama" else (1e-4, {"rel": 1e-4, "abs": 1e-8})
    largest = 0.0
    for head in HEADS:
        up, down = (scaled(effects, model, asked, head, 1 + sign * step) for sign in (1, -1))
        for name in WordRisk.RISKS:
            slope = (getattr(up, name) - getattr(down, name)) / (2 * step)
            # Removal moves the factor from 1 to 0.
            assert found[name][head.layer, head.head] == pytest.approx(-slope, **near)
            largest = max(largest, abs(slope))
    assert largest > 0.01


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "t5"])
def test_exact_effects_are_risks_of_the_model_with_the_heads_output_set_to_0(doubled, kind):
    model, asked = doubled(kind), asked_of(kind)
    effects, outcome = HeadEffects(model, (), ablation="zero"), WordRisk(model, asked)
    sets = [(), *((head,) for head in HEADS), HEADS]
    arrays = Cache().each(effects.removal_parts(outcome.readings, sets))
    risks = [outcome.summary(values) for values in outcome.readings.by_tree(arrays, len(sets))]
    for heads, found in zip(sets, risks, strict=True):
        expected = literal_risk(without_weights(model, heads), asked)
        for name in WordRisk.RISKS:
            assert found[name] == pytest.approx(getattr(expected, name), abs=2e-6)
    assert abs(risks[-1]["R"] - risks[0]["R"]) > 0.01


def test_the_mean_of_a_head_is_over_the_prompts(doubled):
    model = doubled("gpt2")
    outcome = WordRisk(model, ASKED)
    effects = HeadEffects(model, outcome.texts, ablation="mean")
    kept = []
    handle = effects.layers[1].projection.register_forward_pre_hook(
        lambda _, arguments: kept.append(arguments[0][0, :, 16:24])
    )
    for word in WORDS:
        for template in TEMPLATES:
            ids = model.tokenizer(template.prompt(word), return_tensors="pt")["input_ids"]
            with torch.no_grad():
                model.hf_model(ids)
    handle.remove()
    torch.testing.assert_close(effects.replacement[1, 2], torch.cat(kept).mean(0))


def test_weights_reference_and_norm_of_a_run_are_those_of_its_risks(doubled):
    model = doubled("gpt2")
    read = score_preferences(model, WordList("some", "t", WORDS), list(TEMPLATES), CLASSES)
    weights = np.array([1.0, 2.0, 5.0])
    report = risk_report(read, x_weights=weights)
    outcome = WordRisk(model, WordsAsked.of(report))
    values = HeadEffects(model, ()).unchanged(outcome, Cache())
    assert outcome.summary(values)["R_p"] == pytest.approx(report.risk.R_p, rel=1e-9)
    shares = np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]])
    asked = replace(WordsAsked.of(report), reference=shares, criterion="l2")
    expected = literal_risk(model, ASKED, x_weights=weights, reference=shares, criterion="l2")
    found = WordRisk(model, asked).risk(values)
    assert (found.R, found.R_v) == pytest.approx((expected.R, expected.R_v), rel=1e-9)
    two = WordRisk(model, asked.first(2))
    assert two.asked.words == WORDS[:2]
    assert (len(two.asked.x_weights), len(two.asked.reference)) == (2, 2)
    assert asked.first(3) is asked.first(None) is asked


# -- properties --


def test_batches_change_nothing_and_what_is_saved_belongs_to_its_values(doubled, tmp_path):
    model = doubled("gpt2")
    found = [
        first_order(HeadEffects(model, ()), WordRisk(model, ASKED, batch_size=size))
        for size in (1, 50)
    ]
    for name in WordRisk.RISKS:
        np.testing.assert_allclose(found[0][name], found[1][name], atol=1e-10)
    effects, outcome, cache = HeadEffects(model, ()), WordRisk(model, ASKED), Cache(tmp_path, {})
    values = effects.unchanged(outcome, cache)
    kept = list(cache.each(effects.estimate_parts(outcome, values)))
    effects._slopes_of = None  # nothing is run again
    again = list(cache.each(effects.estimate_parts(outcome, values)))
    np.testing.assert_array_equal(kept[0]["values"], again[0]["values"])
    other = WordRisk(model, replace(ASKED, criterion="l1"))
    moved = copy.deepcopy(values)
    moved[0] += 0.5
    with pytest.raises(InputError, match="other weights"):
        list(cache.each(effects.estimate_parts(other, moved)))


def test_prejudice_and_volatility_add_up(doubled):
    model = doubled("gpt2")
    found = first_order(HeadEffects(model, ()), WordRisk(model, ASKED))
    np.testing.assert_allclose(found["R"], found["R_p"] + found["R_v"], atol=1e-12)
