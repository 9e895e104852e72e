"""Continuations' log-probabilities against the definition, text by text."""

import numpy as np
import pytest
import torch

from tda_bias.models.load import LanguageModel
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.types import InputError, Triple
from tests.support.models import tiny_hf_model

TRIPLES = [
    Triple("nurse", "profession", "The nurse said that.", "She knew it", "He knew it", "A cook he"),
    Triple("cook", "profession", "The cook wrote", "that he felt", "that she", "man man man woman"),
]


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def parts(model, triple):
    context = ids_of(model.tokenizer, triple.context)
    for text in triple.texts():
        ids = ids_of(model.tokenizer, text)
        assert ids[: len(context)] == context
        yield context, ids


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
@pytest.mark.parametrize("share", ["auto", "never"])
@pytest.mark.parametrize("batch_size", [1, 50])
def test_causal_continuations_follow_the_chain_rule(tiny_lm, kind, share, batch_size):
    model = tiny_lm(kind)
    found = triple_likelihoods(model, TRIPLES, batch_size=batch_size, share_prefix=share)
    for triple, likelihood in zip(TRIPLES, found, strict=True):
        for (context, ids), own in zip(parts(model, triple), likelihood.tokens, strict=True):
            with torch.no_grad():
                logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
            steps = torch.log_softmax(logits, -1)
            expected = [float(steps[i - 1, ids[i]]) for i in range(len(context), len(ids))]
            np.testing.assert_allclose(own, expected, atol=2e-4)


# Among them a head that is not called, one class for two kinds, and outputs that padding changes.
MASKED = ["bert", "roberta", "mobilebert", "xlm", "convbert", "fnet"]


@pytest.mark.parametrize("kind", MASKED)
def test_masked_continuations_are_masked_one_token_at_a_time(tiny_lm, kind):
    model = tiny_lm(kind)
    found = triple_likelihoods(model, TRIPLES, batch_size=7)
    mask = model.tokenizer.mask_token_id
    for triple, likelihood in zip(TRIPLES, found, strict=True):
        for (context, ids), own in zip(parts(model, triple), likelihood.tokens, strict=True):
            expected = []
            for place in range(len(context), len(ids)):
                row = [*ids[:place], mask, *ids[place + 1 :]]
                with torch.no_grad():
                    logits = model.hf_model(input_ids=torch.tensor([row])).logits[0, place]
                expected.append(float(torch.log_softmax(logits.double(), -1)[ids[place]]))
            np.testing.assert_allclose(own, expected, atol=2e-4)


@pytest.mark.parametrize("kind", ["t5", "bart", "switch", "nllb_moe"])
def test_decoders_fill_the_gap_behind_the_context(tiny_lm, kind):
    model = tiny_lm(kind, decoder_start_token_id=1)
    found = triple_likelihoods(model, TRIPLES, batch_size=4)
    gap = model.tokenizer.convert_tokens_to_ids("<extra_id_0>")
    for triple, likelihood in zip(TRIPLES, found, strict=True):
        source = model.tokenizer(f"{triple.context} <extra_id_0>")["input_ids"]
        for (context, ids), own in zip(parts(model, triple), likelihood.tokens, strict=True):
            written, expected = [1, gap], []
            for token in ids[len(context) :]:
                with torch.no_grad():
                    logits = model.hf_model(
                        input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([written])
                    ).logits[0, -1]
                expected.append(float(torch.log_softmax(logits.double(), -1)[token]))
                written.append(token)
            np.testing.assert_allclose(own, expected, atol=2e-4)


@pytest.mark.parametrize("kind", ["fsmt", "prophetnet"])
def test_decoders_that_see_what_comes_later_are_refused(tiny_lm, kind):
    with pytest.raises(InputError, match="reads a text differently in a batch than alone"):
        triple_likelihoods(tiny_lm(kind, decoder_start_token_id=1), TRIPLES)


def test_totals_means_and_lengths_are_those_of_the_tokens(tiny_lm):
    (found,) = triple_likelihoods(tiny_lm(), TRIPLES[:1])
    assert found.n_tokens == tuple(len(own) for own in found.tokens)
    np.testing.assert_allclose(found.total, [own.sum() for own in found.tokens])
    np.testing.assert_allclose(found.mean * found.n_tokens, found.total)


def test_what_cannot_be_scored_is_refused(tiny_lm, subwords):
    empty = Triple("g", "gender", "", "a", "b", "c", source="here")
    with pytest.raises(InputError, match="here: the tokenizer makes no token of the context"):
        triple_likelihoods(tiny_lm(), [empty])
    xlnet = LanguageModel(tiny_hf_model("xlnet", len(subwords)), subwords, "xl")
    with pytest.raises(InputError, match="`model` xl is a permutation language model"):
        triple_likelihoods(xlnet, TRIPLES)
    long = Triple("g", "gender", "The nurse " * 100, "a", "b", "c")
    with pytest.raises(InputError, match="`model` tiny-gpt2 takes 128"):
        triple_likelihoods(tiny_lm(), [long])


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_broken_weights_are_refused(tiny_lm, kind):
    model = tiny_lm(kind, **({"decoder_start_token_id": 1} if kind == "t5" else {}))
    next(model.hf_model.parameters()).data[:] = float("nan")
    with pytest.raises(InputError, match=f"tiny-{kind} gives NaN for .* weights are broken"):
        triple_likelihoods(model, TRIPLES)
