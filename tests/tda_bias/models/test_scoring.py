"""Readings of trees against every path run by itself."""

import numpy as np
import pytest
import torch

from tda_bias.models import scoring
from tda_bias.models.load import LanguageModel
from tda_bias.models.scoring import Scorer
from tda_bias.models.token_trees import packed_rows, whole_trees
from tda_bias.types import InputError
from tests.support.architectures import tiny
from tests.support.models import tiny_hf_model
from tests.support.trees import path, tree_of, trees


@pytest.fixture
def model(tokenizer):
    """Tiny models by architecture."""

    def make(kind, **changes):
        return LanguageModel(tiny_hf_model(kind, len(tokenizer), **changes), tokenizer, kind)

    return make


def scorer_for(model, **options):
    scorer = Scorer(model, **{"batch_size": 4, "texts_per_tree": 2, **options})
    scorer.check_sharing(trees())
    return scorer


def by_definition(model, tree):
    """Log-probability of token 7 after each node's path, run alone."""
    expected = []
    for node in tree.read_node:
        with torch.no_grad():
            ids = torch.tensor([path(tree, node)])
            logits = model.hf_model(input_ids=ids, use_cache=False).logits[0, -1]
        expected.append(float(torch.log_softmax(logits, -1)[7]))
    return expected


def test_broken_weights_are_refused_and_not_taken_for_a_packing_that_fails(model):
    broken = model("gpt2")
    broken.hf_model.transformer.ln_f.weight.data[3] = float("nan")
    with pytest.raises(InputError, match=r"`model` gpt2 gives NaN for \d+ of \d+ log-prob.*broken"):
        scorer_for(broken)
    with pytest.raises(InputError, match="gives NaN"):
        Scorer(broken, batch_size=4, share_prefix=False).log_probs(trees())


def test_running_out_of_memory_is_not_taken_for_a_refused_mask(model, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(scoring, "_tree_inputs", full)
    with pytest.raises(torch.OutOfMemoryError):
        scorer_for(model("gpt2"))


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt"])
def test_readings_are_those_of_each_path_alone(model, kind):
    model = model(kind)
    expected = [by_definition(model, tree) for tree in trees()]
    for share_prefix in (True, False):
        scorer = Scorer(model, batch_size=2, share_prefix=share_prefix)
        for values, alone in zip(scorer.log_probs(trees()), expected, strict=True):
            np.testing.assert_allclose(values, alone, atol=2e-4)
        assert scorer.packed == share_prefix


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
def test_trees_in_one_row_do_not_see_each_other(model, kind):
    reader = Scorer(model(kind), batch_size=9)
    many = trees() + [path_tree for tree in trees() for path_tree in tree.paths()[0]]
    alone = reader.log_probs(many)
    assert reader.packed
    grid = packed_rows(many)
    assert grid.n_rows < len(many)
    together = reader.run(reader.pass_of(whole_trees(many), grid))
    for expected, values in zip(alone, together, strict=True):
        np.testing.assert_allclose(values, expected, atol=2e-4)


@pytest.mark.parametrize("name", ["cpmant", "bert-generation"])
@pytest.mark.parametrize("share_prefix", [True, False])
def test_a_causal_model_that_sees_what_comes_later_is_refused(tokenizer, name, share_prefix):
    hf_model = tiny(name, len(tokenizer))
    hf_model.config.is_decoder = False  # BERT's own mask, which hides nothing
    looks_ahead = LanguageModel(hf_model, tokenizer, "m")
    with pytest.raises(InputError, match="differently in a batch than alone: .* cannot be scored"):
        Scorer(looks_ahead, batch_size=4, share_prefix=share_prefix).log_probs(trees())


# Layers of these see only some tokens back.
WINDOWED = ["mistral", "gemma3", "qwen2"]


@pytest.mark.parametrize("kind", WINDOWED)
def test_texts_longer_than_the_attention_window_are_read_as_they_are(model, kind):
    """A large tree of short texts must not speak for a small one of long texts."""
    generator = np.random.default_rng(1)
    wide = tree_of([[5, 6, *generator.integers(5, 60, 3).tolist()] for _ in range(20)], 7)
    long = tree_of([[5, 6, *generator.integers(5, 60, 18).tolist()] for _ in range(2)], 7)
    more = {"use_sliding_window": True, "max_window_layers": 0} if kind == "qwen2" else {}
    windowed = model(kind, sliding_window=10, **more)
    assert len(wide) > len(long)
    scorer = Scorer(windowed, batch_size=4, texts_per_tree=2)
    found = scorer.log_probs([wide, long])
    assert not scorer.packed
    for tree, values in zip([wide, long], found, strict=True):
        np.testing.assert_allclose(values, by_definition(windowed, tree), atol=2e-4)
    # The short ones alone fit, and what comes later is looked at again.
    scorer = Scorer(windowed, batch_size=4, texts_per_tree=2)
    np.testing.assert_allclose(scorer.log_probs([wide])[0], found[0], atol=2e-4)
    assert scorer.packed
    np.testing.assert_allclose(scorer.log_probs([long])[0], found[1], atol=2e-4)
    assert not scorer.packed


def test_a_window_that_no_setting_names_is_found_by_trying_the_longest_text(model, monkeypatch):
    monkeypatch.setattr(scoring, "_attention_window", lambda _: None)
    scorer = scorer_for(model("mistral", sliding_window=4))
    assert not scorer.packed


def test_a_model_that_refuses_the_mask_is_run_path_by_path(model):
    reader = scorer_for(model("bloom"))
    assert not reader.packed


def test_few_logits_are_read_in_one_pass(model, monkeypatch):
    """However many prompts there are, a pass never reads more than the bound."""
    model = model("gpt2")
    reader = Scorer(model, batch_size=50)
    plain = reader.log_probs(trees() * 5)
    assert reader.packed
    bound = 60
    monkeypatch.setattr(scoring, "LOGITS", bound * len(model.tokenizer))
    sizes = [len(one.places) for one in reader.passes(trees() * 5)]
    assert len(sizes) > 3
    assert max(sizes) <= bound
    for a, b in zip(plain, reader.log_probs(trees() * 5), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
