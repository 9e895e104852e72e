"""Rankings from the targets that choose: mediation against patching each head by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.debias import rankings
from tda_bias.debias.rankings import fold_orders, mediation
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.attention import attention_layers
from tda_bias.twins import Twins
from tda_bias.types import HeadId, InputError

ITEMS = np.arange(4)


@pytest.fixture
def texts(twin_texts):
    return twin_texts("gpt2", limit=2)


def outputs(model, text):
    """What the heads of every layer write in a text."""
    seen = []
    handles = [
        layer.projection.register_forward_pre_hook(lambda _, z: seen.append(z[0].clone()))
        for layer in attention_layers(model)
    ]
    with torch.no_grad():
        model.hf_model(torch.tensor([text]))
    for handle in handles:
        handle.remove()
    return seen


def log_prob(model, text, start, change, layer):
    """Of a text's tokens from one on, where something is added to what a layer's heads write."""

    def hook(_, arguments):
        return (arguments[0] + change,)

    handle = attention_layers(model)[layer].projection.register_forward_pre_hook(hook)
    with torch.no_grad():
        logits = model.hf_model(torch.tensor([text])).logits[0].double()
    handle.remove()
    chances = torch.log_softmax(logits, -1)
    return sum(float(chances[t - 1, text[t]]) for t in range(start, len(text)))


def test_mediation_is_the_slope_of_moving_a_head_toward_its_twin(tokenizer, texts):
    model, triples, twins = texts.model, texts.triples, texts.twins
    found = mediation(texts, np.arange(len(texts)))

    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    literal, aligned, step = np.zeros((2, 4)), 0, 2e-2
    for triple, own in zip(triples, twins, strict=True):
        of_both = [[ids(t) for t in one.texts()[:2]] for one in (triple, own[0])]
        start = len(ids(triple.context))
        if [len(t) for t in of_both[0]] != [len(t) for t in of_both[1]]:
            continue
        aligned += 1
        for role, sign in ((0, 1), (1, -1)):
            there, twin = (outputs(model, one[role]) for one in of_both)
            for layer, head in np.ndindex(2, 4):
                change = torch.zeros_like(there[layer])
                part = slice(8 * head, 8 * head + 8)
                change[..., part] = step * (twin[layer] - there[layer])[..., part]
                text = of_both[0][role]
                up, down = (log_prob(model, text, start, c, layer) for c in (change, -change))
                literal[layer, head] += sign * (up - down) / (2 * step)
    assert aligned > 0
    np.testing.assert_allclose(found, literal / aligned, atol=5e-3, rtol=5e-2)


def test_twins_of_other_lengths_leave_nothing_to_align(texts):
    triple = texts.triples[0]
    longer = replace(triple, context=f"The {triple.context}")
    with pytest.raises(InputError, match="as many tokens as their triples; none has"):
        mediation(TwinTexts(texts.model, [triple], [(longer,)]), np.array([0]))


@pytest.mark.parametrize("mean", [1.0, -1.0])
def test_mediation_begins_with_what_brings_the_mean_toward_0(texts, monkeypatch, mean):
    values = np.array([[0.1, -0.5, 0.0, 0.2], [0.3, -0.1, 0.4, -0.2]])
    monkeypatch.setattr(rankings, "mediation", lambda *_: values)
    answers = texts.answers([0])
    monkeypatch.setattr(texts, "answers", lambda _: replace(answers, gap=np.array([mean])))
    order = fold_orders(texts, ITEMS, ["mediation"], load=pytest.fail)["mediation"]
    first = [HeadId(0, 1), HeadId(1, 3)] if mean > 0 else [HeadId(1, 2), HeadId(1, 0)]
    assert order[:2] == first
    assert len(set(order)) == 8


def test_topology_orders_are_those_of_head_bias_on_the_same_items(tiny, texts):
    every, config = np.arange(len(texts)), HeadBiasConfig(n_permutations=99)
    found = fold_orders(texts, every, ["evidence"], load=lambda: tiny("gpt2"))
    pairs = Twins(tuple(zip(texts.triples, texts.twins, strict=True)))
    run = head_bias(tiny("gpt2"), texts.triples, twins=pairs, config=config)
    for name, by in (("evidence", "evidence"), ("published", "metric")):
        rows = run.top(8, category="gender", by=by)
        expected = [HeadId(*map(int, row)) for row in rows[["layer", "head"]].to_numpy()]
        assert found[name] == expected
    assert found["bottom"] == found["evidence"][::-1]
    assert len(set(found["evidence"])) == 8
