"""BBQ with heads removed: finite differences, and the whole measurement of an edited model."""

import numpy as np
import pytest

from tda_bias.ablation.bbq_outcome import BBQBias
from tda_bias.ablation.effects import HeadEffects
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError
from tests.support.bbq import item, of_items
from tests.support.chat import PLAIN, with_template
from tests.tda_bias.ablation.test_ablation import without_weights
from tests.tda_bias.ablation.test_word_outcome import first_order
from unqover.bbq.asking import bbq_scores
from unqover.config import BBQConfig

HEADS = (HeadId(0, 1), HeadId(1, 3))
TEXT, LETTER = BBQConfig(), BBQConfig(ask="letter")
CASES = [("gpt2", TEXT), ("gpt2", LETTER), ("bert", TEXT), ("bart", TEXT)]


@pytest.fixture(scope="module")
def asked():
    """Two scenes with short answers, whose probabilities are near enough to each other to move."""
    items = []
    for template in "12":
        met = f"The {'man' if template == '1' else 'monk'} met a cook."
        for condition, more, label in (("ambiguous", "", 2), ("disambiguated", " She fell.", 1)):
            for polarity, question in (("neg", "Who fell?"), ("nonneg", "Who stood?")):
                given = {"template": template, "condition": condition, "polarity": polarity}
                items.append(
                    item(id=str(len(items)), context=met + more, question=question, label=label,
                         answers=("he", "she", "hers"), **given)
                )  # fmt: skip
    return of_items(items)


@pytest.fixture(scope="module")
def doubled(tiny_lm):
    """Tiny models in double precision that take long texts."""

    def make(kind):
        size = "n_positions" if kind == "gpt2" else "max_position_embeddings"
        changes = {size: 512, **({"decoder_start_token_id": 1} if kind == "bart" else {})}
        model = tiny_lm(kind, **changes)
        model.hf_model.double()
        return model

    return make


def literal(model, asked, config):
    """What the command measures of a model as it is."""
    scores = bbq_scores(model, asked, config=config)
    names = {"bbq_bias": ("bias", "ambiguous"), "bbq_s_AMB": ("s_AMB", "ambiguous")}
    names["bbq_accuracy"] = ("accuracy", "disambiguated")
    return {name: scores.value(*of)["value"] for name, of in names.items()}


def scaled(effects, model, asked, config, head, factor):
    """The bias with a head's output multiplied."""
    layer = effects.layers[head.layer]

    def hook(_, arguments):
        z = arguments[0].clone()
        layer.by_head(z)[:, :, head.head] *= factor
        return (z,)

    handle = layer.projection.register_forward_pre_hook(hook)
    bias = literal(model, asked, config)["bbq_bias"]
    handle.remove()
    return bias


def test_models_that_are_read_otherwise_are_refused(tiny_lm, asked):
    with pytest.raises(InputError, match="tiny-xlnet is a permutation language model; heads are"):
        BBQBias(tiny_lm("xlnet"), asked)


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_first_order_effects_are_derivatives_by_scaling_a_heads_output(
    doubled, asked, kind, config
):
    model = doubled(kind)
    effects, outcome = HeadEffects(model, (), ablation="zero"), BBQBias(model, asked, config=config)
    found = first_order(effects, outcome)["bbq_bias"]
    step, largest = 1e-4, 0.0
    for head in HEADS:
        up, down = (scaled(effects, model, asked, config, head, 1 + s * step) for s in (1, -1))
        slope = (up - down) / (2 * step)
        # Removal moves the factor from 1 to 0.
        assert found[head.layer, head.head] == pytest.approx(-slope, rel=1e-4, abs=1e-8)
        largest = max(largest, abs(slope))
    assert largest > 1e-4


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_exact_effects_are_scores_of_the_model_with_the_heads_output_set_to_0(
    doubled, asked, kind, config
):
    model = doubled(kind)
    effects, outcome = HeadEffects(model, (), ablation="zero"), BBQBias(model, asked, config=config)
    sets = [(), *((head,) for head in HEADS), HEADS]
    arrays = Cache().each(effects.removal_parts(outcome.readings, sets))
    found = [outcome.summary(values) for values in outcome.readings.by_tree(arrays, len(sets))]
    for heads, own in zip(sets, found, strict=True):
        expected = literal(without_weights(model, heads), asked, config)
        assert own == pytest.approx(expected, abs=2e-6, nan_ok=True)
    assert abs(found[-1]["bbq_bias"] - found[0]["bbq_bias"]) > 1e-4
    assert outcome.read == "8 items of BBQ in 2 templates"


def test_first_order_and_exact_effects_of_small_heads_agree(doubled, asked):
    """Heads whose output is made small: what is left out is of second order."""
    model = doubled("gpt2")
    effects, outcome = HeadEffects(model, (), ablation="zero"), BBQBias(model, asked)
    for layer in effects.layers:
        layer.projection.weight.data *= 0.01
    first = first_order(effects, outcome)["bbq_bias"]
    sets = [(), *((head,) for head in effects.heads)]
    arrays = Cache().each(effects.removal_parts(outcome.readings, sets))
    bias = [outcome.summary(own)["bbq_bias"]
            for own in outcome.readings.by_tree(arrays, len(sets))]  # fmt: skip
    exact = np.array(bias[1:]) - bias[0]
    assert np.corrcoef(first.ravel(), exact)[0, 1] > 0.999


def test_a_chat_template_stands_around_what_is_read(doubled, asked):
    model = with_template(doubled("gpt2"), PLAIN)
    outcome = BBQBias(model, asked)
    values = HeadEffects(model, (), ablation="zero").unchanged(outcome, Cache())
    expected = literal(model, asked, BBQConfig(chat="template"))
    assert outcome.summary(values) == pytest.approx(expected, abs=2e-6, nan_ok=True)
    plain = literal(model, asked, BBQConfig(chat="text"))
    assert expected["bbq_bias"] != pytest.approx(plain["bbq_bias"], abs=1e-6)


def test_batches_change_nothing(doubled, asked):
    model = doubled("gpt2")
    found = [
        first_order(
            HeadEffects(model, ()), BBQBias(model, asked, config=BBQConfig(batch_size=size))
        )["bbq_bias"]
        for size in (1, 50)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)
