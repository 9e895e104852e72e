"""Log-probabilities at chosen places against the softmax of all logits."""

import numpy as np
import pytest
import torch

from tda_bias.models import logits
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import in_tiles, refuse_undefined, tempered, token_log_probs
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model

PLACES = torch.tensor([1, 2, 5, 7, 13])
PLACE = np.array([0, 3, 3, 1, 4, 2])


@pytest.fixture
def hf_model(tokenizer):
    def make(kind, **changes):
        return tiny_hf_model(kind, len(tokenizer), **changes)

    return make


def given(vocabulary):
    """Two rows of seven tokens, and tokens to read."""
    generator = np.random.default_rng(0)
    ids = torch.from_numpy(generator.integers(4, vocabulary, (2, 7)))
    return {"input_ids": ids}, generator.integers(0, vocabulary, len(PLACE))


def by_definition(hf_model, inputs, token):
    with torch.no_grad():
        rows = hf_model(**inputs).logits.flatten(0, 1)[PLACES].double()
    return torch.log_softmax(rows, -1)[PLACE, token].numpy()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "gemma2", "bloom"])
@pytest.mark.parametrize("tile", [1, 1 << 20])
def test_a_reading_is_the_log_softmax_at_its_place(hf_model, monkeypatch, kind, tile):
    """Gemma's logits are bent after the output embeddings, so theirs are computed whole."""
    monkeypatch.setattr(logits, "_TILE", {"cpu": tile})
    model = hf_model(kind)
    inputs, token = given(model.config.vocab_size)
    found = token_log_probs(model, inputs, PLACES, PLACE, token)
    np.testing.assert_allclose(found, by_definition(model, inputs, token), atol=1e-4)
    assert logits._LINEAR[model] == (kind != "gemma2")


@pytest.mark.parametrize("kind", ["gpt2", "bert", "gemma2"])
def test_a_temperature_divides_every_logit_and_is_gone_afterwards(hf_model, tokenizer, kind):
    """BERT's output embeddings have a bias, Gemma's are bent."""
    model = hf_model(kind)
    head = model.get_output_embeddings()
    if head.bias is not None:
        head.bias.data.normal_()
    inputs, token = given(model.config.vocab_size)
    with torch.no_grad():
        whole = model(**inputs).logits.flatten(0, 1)[PLACES].double()
    with tempered(LanguageModel(model, tokenizer, kind), 1.7):
        found = token_log_probs(model, inputs, PLACES, PLACE, token)
    expected = torch.log_softmax(whole / 1.7, -1)[PLACE, token].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    found = token_log_probs(model, inputs, PLACES, PLACE, token)
    np.testing.assert_allclose(found, by_definition(model, inputs, token), atol=1e-4)


def test_a_bias_added_behind_the_output_embeddings_counts(hf_model):
    model = hf_model("bart")
    model.final_logits_bias.normal_()
    inputs, token = given(model.config.vocab_size)
    inputs["decoder_input_ids"] = inputs["input_ids"]
    found = token_log_probs(model, inputs, PLACES, PLACE, token)
    np.testing.assert_allclose(found, by_definition(model, inputs, token), atol=1e-4)
    assert not logits._LINEAR[model]


def test_double_precision_is_kept_and_half_is_read_in_single(hf_model):
    model = hf_model("gpt2").double()
    inputs, token = given(model.config.vocab_size)
    found = token_log_probs(model, inputs, PLACES, PLACE, token)
    np.testing.assert_allclose(found, by_definition(model, inputs, token), atol=1e-12)
    model = model.bfloat16()
    found = token_log_probs(model, inputs, PLACES, PLACE, token)
    np.testing.assert_allclose(found, by_definition(model, inputs, token), atol=1e-5)


def test_the_logits_of_all_words_never_exist_at_once(hf_model, monkeypatch):
    model = hf_model("gpt2")
    inputs, token = given(model.config.vocab_size)
    token_log_probs(model, inputs, PLACES, PLACE, token)
    monkeypatch.setattr(logits, "_TILE", {"cpu": 1})
    sizes, original = [], torch.nn.functional.linear

    def counted(*arguments):
        output = original(*arguments)
        sizes.append(output.shape[-1])
        return output

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    token_log_probs(model, inputs, PLACES, PLACE, token)
    assert sum(sizes) == model.config.vocab_size
    assert max(sizes) == 256


def test_broken_weights_give_nan_and_nan_is_refused(hf_model, tokenizer):
    hf = hf_model("gpt2")
    hf.transformer.ln_f.weight.data[3] = float("nan")
    model = LanguageModel(hf, tokenizer, "broken")
    inputs, token = given(hf.config.vocab_size)
    found = token_log_probs(hf, inputs, PLACES, PLACE, token)
    with pytest.raises(
        InputError, match="`model` broken gives NaN for 6 of 8 .*weights are broken"
    ):
        refuse_undefined(model, [found, np.zeros(2)])
    refuse_undefined(model, [np.array([0.0, -np.inf])])
    hf.half()
    with pytest.raises(InputError, match="run it in float32"):
        refuse_undefined(model, [found])


@pytest.mark.parametrize(("dim", "sizes"), [(0, [2, 2, 1]), (1, [1] * 3)])
def test_tiles_are_cut_along_one_dimension_and_hold_few_numbers(monkeypatch, dim, sizes):
    monkeypatch.setattr(logits, "_TILE", {"cpu": 13})
    whole = torch.arange(30, dtype=torch.half).reshape(5, 3, 2)
    tiles = list(in_tiles(whole, dim))
    assert [tile.shape[dim] for tile in tiles] == sizes
    assert tiles[0].dtype == torch.float
    assert torch.equal(torch.cat(tiles, dim), whole.float())
