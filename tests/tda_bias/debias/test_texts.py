"""Gaps and outcomes of items with twins, against one text at a time."""

import math

import numpy as np
import pytest
import torch

from tda_bias import load_triples
from tda_bias.debias.stream import LowerLayers
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.twins import make_twins
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom"]


@pytest.fixture(scope="module")
def items():
    triples = load_triples("starter", category="gender", limit=3)
    twins = make_twins(triples)
    kept = [triple for triple in triples if twins.of(triple)]
    return kept, [twins.of(triple) for triple in kept]


@pytest.fixture
def model(tokenizer):
    def make(kind="gpt2"):
        return LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)

    return make


def log_prob(model, context, continuation):
    """Token by token, one text at a time: log-probability and number of tokens."""
    ids = model.tokenizer(f"{context} {continuation}", add_special_tokens=False)["input_ids"]
    n = len(model.tokenizer(context, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
    chances = torch.softmax(logits, -1)
    return sum(math.log(float(chances[t - 1, ids[t]])) for t in range(n, len(ids))), len(ids) - n


def literal(model, triple, twins):
    def odds(one, per_token):
        values = []
        for text in (one.stereotype, one.anti_stereotype):
            total, n = log_prob(model, one.context, text)
            values.append(total / n if per_token else total)
        return values[0] - values[1]

    gap, total = (
        odds(triple, per) - sum(odds(twin, per) for twin in twins) / len(twins)
        for per in (True, False)
    )
    s, a, u = (
        log_prob(model, triple.context, text)[0]
        for text in (triple.stereotype, triple.anti_stereotype, triple.unrelated)
    )
    return gap, total, ((s > u) + (a > u)) / 2


def test_masked_models_and_items_of_which_some_have_twins_are_refused(model, items):
    triples, twins = items
    with pytest.raises(InputError, match="only causal ones are trained"):
        TwinTexts(model("bert"), triples, twins)
    with pytest.raises(InputError, match="needs a twin, or none has one"):
        TwinTexts(model(), triples, [(), *twins[1:]])


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_and_outcomes_are_those_of_the_definition(model, items, kind):
    triples, twins = items
    plain = model(kind)
    texts = TwinTexts(plain, triples, twins)
    chosen = [0, 3, 4, 9]
    found = texts.outcomes(chosen)
    for place, item in enumerate(chosen):
        gap, total, language = literal(plain, triples[item], twins[item])
        assert found.gap[place] == pytest.approx(gap, abs=2e-4)
        assert found.total[place] == pytest.approx(total, abs=2e-3)
        assert found.language[place] == language
    gaps = texts.gaps(chosen)
    np.testing.assert_allclose(gaps.detach().numpy(), found.gap, atol=2e-4)
    gaps.sum().backward()
    assert all(p.grad is not None for p in plain.hf_model.get_output_embeddings().parameters())


def test_without_twins_the_gap_is_the_plain_difference(model, items):
    triples, twins = items
    plain = model()
    texts = TwinTexts(plain, triples, twins)
    bare = TwinTexts(plain, triples, [()] * len(triples))
    equalised = texts.gaps([0, 1], loss="equalise").detach().numpy()
    np.testing.assert_allclose(equalised, bare.outcomes([0, 1]).gap, atol=1e-5)
    assert not np.allclose(equalised, texts.outcomes([0, 1]).gap, atol=1e-3)


def test_the_placebo_keeps_wording_and_loses_the_target(model, items):
    triples, twins = items
    plain = model()
    texts = TwinTexts(plain, triples, twins)
    swapped = TwinTexts(plain, [own[0] for own in twins], [(t,) for t in triples])
    straight, exchanged = texts.gaps([0, 1, 2]), texts.gaps([0, 1, 2], exchanged=True)
    # Exchanging triple and twin flips the sign of the gap and leaves the placebo as it is.
    torch.testing.assert_close(swapped.gaps([0, 1, 2]), -straight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        swapped.gaps([0, 1, 2], exchanged=True), exchanged, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_remembered_lower_layers_change_neither_gaps_nor_gradients(model, items, kind):
    triples, twins = items
    plain = model(kind)
    texts = TwinTexts(plain, triples, twins)
    named = dict(plain.hf_model.named_parameters())
    upper = [name for name in named if ".1." in name and named[name].ndim > 1]

    def read(below):
        plain.hf_model.zero_grad()
        gaps = texts.gaps([4, 0, 7], below=below)
        (gaps**2).sum().backward()
        return gaps.detach(), [named[name].grad.clone() for name in upper]

    below = LowerLayers(plain, 1)
    expected = read(None)
    read(below)  # remembers
    ran = []
    block = next(m for n, m in plain.hf_model.named_modules() if n.endswith(("h.0", "layers.0")))
    handle = next(block.children()).register_forward_hook(lambda *_: ran.append(1))
    found = read(below)
    outcomes = texts.outcomes([7, 4], below=below)
    ran_for_new_texts = len(ran)
    texts.outcomes([4, 7], below=below)
    handle.remove()
    assert len(ran) == ran_for_new_texts == 1  # whole items, with the third text, once
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for now, before in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(now, before, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(outcomes.gap, texts.outcomes([7, 4]).gap, atol=1e-4)
