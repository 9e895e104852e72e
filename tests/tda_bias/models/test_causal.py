"""Readings of trees against every path run by itself."""

import numpy as np
import pytest
import torch

from tda_bias.models import causal
from tda_bias.models.causal import TreeReader, reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.token_trees import beside_each_other, whole_trees
from tda_bias.types import InputError
from tests.support.models import tiny_hf_model
from tests.support.trees import path, trees


@pytest.fixture
def model(tokenizer):
    """Tiny models by architecture."""

    def make(kind, **changes):
        return LanguageModel(tiny_hf_model(kind, len(tokenizer), **changes), tokenizer, kind)

    return make


def reader_for(model, **options):
    return reader_of(model, trees(), **{"batch_size": 4, "texts_per_tree": 2, **options})


def test_broken_weights_are_refused_and_not_taken_for_a_packing_that_fails(model):
    broken = model("gpt2")
    broken.hf_model.transformer.ln_f.weight.data[3] = float("nan")
    with pytest.raises(InputError, match=r"`model` gpt2 gives NaN for \d+ of \d+ log-prob.*broken"):
        reader_for(broken)
    with pytest.raises(InputError, match="gives NaN"):
        TreeReader(broken, batch_size=4).read(trees())


def test_running_out_of_memory_is_not_taken_for_a_refused_mask(model, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as context:
        context.setattr(TreeReader, "_tree_inputs", full)
        with pytest.raises(torch.OutOfMemoryError):
            reader_for(model("gpt2"))


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt"])
@pytest.mark.parametrize("packed", [True, False])
def test_readings_are_those_of_each_path_alone(model, kind, packed):
    model = model(kind)
    found = TreeReader(model, batch_size=2, packed=packed).read(trees())
    for tree, values in zip(trees(), found, strict=True):
        for node, value in zip(tree.read_node, values, strict=True):
            with torch.no_grad():
                ids = torch.tensor([path(tree, node)])
                expected = torch.log_softmax(model.hf_model(input_ids=ids).logits[0, -1], -1)[7]
            assert value == pytest.approx(float(expected), abs=2e-4)


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt"])
def test_trees_in_one_row_do_not_see_each_other(model, kind):
    reader = TreeReader(model(kind), batch_size=9, packed=True)
    many = trees() + [path_tree for tree in trees() for path_tree in tree.paths()[0]]
    alone = reader.read(many)
    grid = beside_each_other(many)
    assert grid.n_rows < len(many)
    together = reader.run(reader.pass_of(whole_trees(many), grid))
    for expected, values in zip(alone, together, strict=True):
        np.testing.assert_allclose(values, expected, atol=2e-4)


def test_a_reader_says_how_it_runs_trees_and_why(model):
    packed, asked = reader_for(model("gpt2")), reader_for(model("gpt2"), share_prefix="never")
    assert packed.packed
    assert packed.why.startswith("log-probabilities differ by ")
    assert not asked.packed
    assert asked.why == "asked not to"


def test_a_pass_holds_as_many_texts_whether_trees_are_rows_or_not(model):
    """Two texts a tree: two rows of trees, or four of paths."""
    many = trees() * 5
    for share_prefix, rows in (("auto", 2), ("never", 4)):
        reader = reader_for(model("gpt2"), share_prefix=share_prefix)
        assert max(len(one.tree) for one in reader.passes(many)) == rows


def test_windows_shorter_than_a_row_are_noticed(model):
    reader = reader_for(model("mistral", sliding_window=4))
    assert not reader.packed
    assert "differ by" in reader.why


def test_a_model_that_refuses_the_mask_is_run_path_by_path(model):
    reader = reader_for(model("bloom"))
    assert not reader.packed
    assert "does not take a tree as one row" in reader.why


def test_few_logits_are_read_in_one_pass(model, monkeypatch):
    """However many prompts there are, a pass never reads more than the bound."""
    model = model("gpt2")
    reader = TreeReader(model, batch_size=50, packed=True)
    plain = reader.read(trees() * 5)
    bound = 60
    monkeypatch.setattr(causal, "_LOGITS", bound * len(model.tokenizer))
    sizes = [len(one.places) for one in reader.passes(trees() * 5)]
    assert len(sizes) > 3
    assert max(sizes) <= bound
    for a, b in zip(plain, reader.read(trees() * 5), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_progress_ends_with_all_trees(model):
    calls = []
    reader_for(model("gpt2")).read(trees() * 3, progress=lambda *call: calls.append(call))
    assert calls[-1] == (9, 9)
    assert calls == sorted(calls)
