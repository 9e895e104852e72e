"""The paper's model is told by what it does."""

import pytest
import torch

from tda_bias import load_triples
from tda_bias.models.language_model import model_record
from tda_bias.paper.model import (
    largest_difference,
    published,
    published_likelihoods,
    why_another,
)
from tda_bias.store.hashes import text_hash


def mean_log_likelihood(model, text):
    """The definition, token by token: no start token, the first token not scored."""
    ids = torch.tensor([model.tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        logits = model.hf_model(ids).logits[0].double()
    steps = [
        float(logits[place - 1].log_softmax(-1)[ids[0, place]]) for place in range(1, ids.shape[1])
    ]
    return sum(steps) / len(steps)


@pytest.fixture
def known(tiny_lm, monkeypatch):
    """A tiny model that the published numbers are made to describe, and its texts."""
    model = tiny_lm("gpt2")
    triples = load_triples("starter", category="gender", limit=2)
    texts = [triple.texts()[number % 3] for number, triple in enumerate(triples)]
    about = {
        "size": {"parameters": model.n_parameters, "vocabulary": len(model.tokenizer)},
        "mean_log_likelihoods": {
            text_hash(text, size=8): mean_log_likelihood(model, text) for text in texts
        },
    }
    monkeypatch.setattr("tda_bias.paper.model.published", lambda: {"heads": about})
    return model, triples


def asked(model, triples):
    record = model_record(model, weights="w")
    likelihoods = published_likelihoods(triples)
    difference = largest_difference(model, likelihoods) if likelihoods else None
    return why_another(record, likelihoods, difference)


def test_the_model_itself_is_recognised_whatever_it_is_called(known):
    model, triples = known
    assert len(published_likelihoods(triples)) == len(triples)
    assert asked(model, triples) is None


def test_other_weights_of_the_same_size_are_another_model(known, tiny_lm):
    """As a folder of random weights that is called like the paper's model."""
    _, triples = known
    other = tiny_lm("gpt2")
    with torch.no_grad():
        for parameter in other.hf_model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    object.__setattr__(other, "name", "gpt2")
    likelihoods = published_likelihoods(triples)
    expected = max(abs(mean_log_likelihood(other, t) - v) for t, v in likelihoods.items())
    assert largest_difference(other, likelihoods) == pytest.approx(expected, abs=1e-4)
    assert f"is up to {expected:.2f} nats per token off" in asked(other, triples)


def test_another_size_or_vocabulary_is_another_model_without_asking_it(known, tiny_lm):
    record = model_record(known[0], weights="w")
    for name in ("parameters", "vocabulary"):
        changed = record.model_copy(update={name: getattr(record, name) + 1, "name": "gpt2"})
        assert why_another(changed, {}, None) == "another model (gpt2)"


def test_without_the_texts_nothing_is_claimed(known):
    model, _ = known
    assert published_likelihoods(load_triples("starter", category="race")) == {}
    assert "nothing shows to be the paper's" in asked(
        model, load_triples("starter", category="race")
    )


def test_gpt2_is_described_by_its_size_and_ten_texts():
    heads = published()["heads"]
    gpt2 = {"n_embd": 768, "n_layer": 12, "vocabulary": 50257, "positions": 1024}
    width = gpt2["n_embd"]
    layer = 12 * width**2 + 13 * width  # attention and feed-forward, with biases and two norms
    parameters = (gpt2["vocabulary"] + gpt2["positions"]) * width + 12 * layer + 2 * width
    assert heads["size"] == {"parameters": parameters, "vocabulary": gpt2["vocabulary"]}
    assert len(heads["mean_log_likelihoods"]) == 10


@pytest.mark.real
def test_the_ten_texts_are_stereosets(stereoset):
    found = published_likelihoods(load_triples(stereoset))
    assert sorted(found.values()) == sorted(published()["heads"]["mean_log_likelihoods"].values())
    # Nobody's log-likelihood of whole sentences by GPT-2 is outside these.
    assert all(-6 < value < -2.5 for value in found.values())
