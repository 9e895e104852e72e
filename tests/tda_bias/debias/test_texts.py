"""Gaps and outcomes of items with twins, against one text at a time, and the terms of the loss."""

import math

import numpy as np
import pytest
import torch

from tda_bias.debias.texts import TwinTexts, anchor, divergence, gaps, huber, relatedness
from tda_bias.types import InputError

RNG = np.random.default_rng(0)
KINDS = ["gpt2", "llama", "gemma2", "opt", "bloom"]


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
    return gap, total, language, per_token, (ms + ma) / 2 - mu


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
        gap, total, *language, related = literal(plain, triples[item], twins[item])
        assert found.gap[place] == pytest.approx(gap, abs=2e-4)
        assert found.total[place] == pytest.approx(total, abs=2e-3)
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
    means = texts.means([0, 1]).originals.detach().numpy()
    plain = means[:, 0] - means[:, 1]
    np.testing.assert_allclose(plain, bare.answers([0, 1]).gap, atol=1e-5)
    assert not np.allclose(plain, texts.answers([0, 1]).gap, atol=1e-3)


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


# -- terms of the loss -----------------------------------------------------------------------------


def softmax(row):
    top = max(row)
    total = sum(math.exp(x - top) for x in row)
    return [math.exp(x - top) / total for x in row]


def test_the_gap_subtracts_the_mean_of_the_twins():
    means, twins = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
    twin_of = [0, 0, 2, 1]
    found = gaps(torch.tensor(means), torch.tensor(twins), torch.tensor(twin_of))
    for item in range(3):
        of_twins = [s - a for (s, a), i in zip(twins, twin_of, strict=True) if i == item]
        literal = means[item, 0] - means[item, 1] - sum(of_twins) / len(of_twins)
        assert float(found[item]) == pytest.approx(literal, rel=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.05, -0.05, 0.125, 0.3, -2.0])
def test_huber_is_quadratic_inside_delta_and_linear_outside(gap):
    scaled = abs(4 * gap)
    literal = scaled**2 / 2 if scaled <= 0.5 else 0.5 * (scaled - 0.25)
    assert float(huber(torch.tensor([gap]))[0]) == pytest.approx(literal, rel=1e-6)


def test_the_loss_does_not_know_which_continuation_is_the_stereotype():
    """Exchanging both sides changes nothing; exchanging the twins' alone, the placebo, does."""
    means, twins = torch.tensor(RNG.normal(size=(3, 2))), torch.tensor(RNG.normal(size=(3, 2)))
    twin_of = torch.arange(3)
    straight = huber(gaps(means, twins, twin_of))
    torch.testing.assert_close(straight, huber(gaps(means.flip(1), twins.flip(1), twin_of)))
    assert not torch.allclose(straight, huber(gaps(means, twins.flip(1), twin_of)))


def test_the_divergence_is_the_mean_over_tokens_and_0_only_where_nothing_changed():
    before, after = RNG.normal(size=(2, 4, 5))
    found = divergence(torch.tensor(before), torch.tensor(after))
    terms = []
    for logits in zip(before, after, strict=True):
        p, q = map(softmax, logits)
        terms.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert float(found) == pytest.approx(sum(terms) / 4, rel=1e-5)
    assert float(found) > 0
    assert float(divergence(torch.tensor(before), torch.tensor(before + 3.0))) < 1e-6


def test_the_anchor_is_the_mean_squared_change_of_the_relatedness():
    before, now = RNG.normal(size=(2, 5, 3))
    found = float(anchor(*(relatedness(torch.tensor(m)) for m in (now, before))))
    changes = [
        ((s + a) / 2 - u) - ((s0 + a0) / 2 - u0)
        for (s, a, u), (s0, a0, u0) in zip(now.tolist(), before.tolist(), strict=True)
    ]
    assert found == pytest.approx(sum(c**2 for c in changes) / 5, rel=1e-12)
    # Equalising stereotype and anti-stereotype costs nothing; nor does a shift of all three.
    equal = before.copy()
    equal[:, :2] = before[:, :2].mean(1, keepdims=True)
    same = (relatedness(torch.tensor(m)) for m in (equal + 0.7, before))
    assert float(anchor(*same)) < 1e-12
