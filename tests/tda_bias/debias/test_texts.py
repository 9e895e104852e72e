"""Gaps and outcomes of items with twins, against one text at a time."""

import math

import numpy as np
import pytest
import torch

from tda_bias.debias.loss import relatedness
from tda_bias.debias.texts import TwinTexts
from tda_bias.types import InputError

KINDS = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "mistral", "opt", "bloom"]


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
    of_texts = [
        log_prob(model, triple.context, text)
        for text in (triple.stereotype, triple.anti_stereotype, triple.unrelated)
    ]
    (s, a, u), (ms, ma, mu) = [t for t, _ in of_texts], [t / n for t, n in of_texts]
    language, per_token = ((s > u) + (a > u)) / 2, ((ms > mu) + (ma > mu)) / 2
    return gap, total, ms - ma, language, per_token, (ms + ma) / 2 - mu


def test_masked_models_and_items_of_which_some_have_twins_are_refused(twin_texts):
    with pytest.raises(InputError, match="only causal ones are trained"):
        twin_texts("bert")
    texts = twin_texts("gpt2")
    with pytest.raises(InputError, match="needs a twin, or none has one"):
        TwinTexts(texts.model, texts.triples, [(), *texts.twins[1:]])


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_and_outcomes_are_those_of_the_definition(twin_texts, kind):
    texts = twin_texts(kind, limit=3)
    plain, triples, twins = texts.model, texts.triples, texts.twins
    chosen = [0, 3, 4, 9]
    found = texts.answers(chosen)
    for place, item in enumerate(chosen):
        gap, total, odds, *language, related = literal(plain, triples[item], twins[item])
        assert found.gap[place] == pytest.approx(gap, abs=2e-4)
        assert found.total[place] == pytest.approx(total, abs=2e-3)
        assert found.odds[place] == pytest.approx(odds, abs=2e-4)
        assert [found.language[place], found.language_per_token[place]] == language
        assert found.relatedness[place] == pytest.approx(related, abs=2e-4)
    means = texts.means(chosen, unrelated=True)
    np.testing.assert_allclose(means.gaps().detach().numpy(), found.gap, atol=2e-4)
    related = relatedness(means.originals).detach().numpy()
    np.testing.assert_allclose(related, found.relatedness, atol=2e-4)
    texts.means(chosen).gaps().sum().backward()
    assert all(p.grad is not None for p in plain.hf_model.get_output_embeddings().parameters())


def test_twins_about_some_targets_can_be_left_out(twin_texts):
    texts = twin_texts("gpt2", category="profession", limit=2)
    name = texts.twins[0][0].group
    left = texts.without({name})
    twins = [[twin for twin in own if twin.group != name] for own in texts.twins]
    chosen = [i for i, own in enumerate(twins) if own][:3]
    assert len(twins[0]) == len(texts.twins[0]) - 1
    expected = TwinTexts(texts.model, texts.triples, twins).means(chosen).gaps()
    torch.testing.assert_close(left.means(chosen).gaps(), expected, rtol=0, atol=1e-6)
    assert [len(left.sequences(i)) for i in chosen] == [2 * len(twins[i]) for i in chosen]
    assert not torch.allclose(texts.means(chosen).gaps(), expected)


def test_without_twins_the_gap_is_the_plain_difference(twin_texts):
    texts, bare = twin_texts("gpt2"), twin_texts("gpt2", with_twins=False)
    equalised = texts.means([0, 1], twins=False).gaps().detach().numpy()
    np.testing.assert_allclose(equalised, bare.answers([0, 1]).gap, atol=1e-5)
    assert not np.allclose(equalised, texts.answers([0, 1]).gap, atol=1e-3)


def test_the_placebo_keeps_wording_and_loses_the_target(twin_texts):
    texts = twin_texts("gpt2", limit=3)
    of_twins = [own[0] for own in texts.twins]
    swapped = TwinTexts(texts.model, of_twins, [(triple,) for triple in texts.triples])
    means, of_swapped = texts.means([0, 1, 2]), swapped.means([0, 1, 2])
    straight, exchanged = means.gaps(), means.gaps(exchanged=True)
    # Exchanging triple and twin flips the sign of the gap and leaves the placebo as it is.
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(of_swapped.gaps(), -straight, **close)
    torch.testing.assert_close(of_swapped.gaps(exchanged=True), exchanged, **close)
