import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.models.causal import TreeReader
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import log_probs
from tda_bias.models.token_trees import TokenTree, merge
from tests.support.models import tiny_hf_model

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6)


def tree_of(sequences, read_token=0):
    """A tree that reads one token after every node."""
    tokens, parent, _ = merge(sequences)
    nodes = np.arange(len(tokens))
    return TokenTree(tokens, parent, nodes, np.full(len(tokens), read_token))


def path(tree, node):
    own = []
    while node >= 0:
        own.append(int(tree.tokens[node]))
        node = int(tree.parent[node])
    return own[::-1]


@given(SEQUENCES)
def test_every_beginning_is_one_node(sequences):
    tokens, parent, ends = merge(sequences)
    tree = TokenTree(tokens, parent, ends, ends)
    assert [path(tree, end) for end in ends] == sequences
    beginnings = {tuple(s[:n]) for s in sequences for n in range(1, len(s) + 1)}
    assert len(tree) == len(beginnings)


@given(SEQUENCES)
def test_a_node_sees_its_path_alone(sequences):
    tree = tree_of(sequences)
    visible, depth = tree.visible(), tree.depth()
    for node in range(len(tree)):
        assert tree.tokens[visible[node]].tolist() == path(tree, node)
        assert depth[node] == len(path(tree, node)) - 1


@given(SEQUENCES)
def test_chains_take_over_every_reading_once(sequences):
    tree = tree_of(sequences)
    chains, taken = tree.paths()
    assert sorted(np.concatenate(taken).tolist()) == list(range(len(tree)))
    for chain, readings in zip(chains, taken, strict=True):
        for node, reading in zip(chain.read_node, readings, strict=True):
            assert path(chain, node) == path(tree, tree.read_node[reading])


def trees():
    generator = np.random.default_rng(0)
    shared = generator.integers(5, 60, 6).tolist()
    made = []
    for size in (3, 9, 5):
        ends = [generator.integers(5, 60, generator.integers(1, 5)).tolist() for _ in range(size)]
        made.append(tree_of([shared[:size] + end for end in ends], read_token=7))
    return made


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt"])
@pytest.mark.parametrize("packed", [True, False])
def test_readings_are_those_of_each_path_alone(tokenizer, kind, packed):
    model = LanguageModel(tiny_hf_model(kind, len(tokenizer)), tokenizer, kind)
    reader = TreeReader(model, batch_size=2)
    found = reader.read(trees(), packed=packed)
    for tree, values in zip(trees(), found, strict=True):
        for node, value in zip(tree.read_node, values, strict=True):
            with torch.no_grad():
                ids = torch.tensor([path(tree, node)])
                expected = torch.log_softmax(model.hf_model(input_ids=ids).logits[0, -1], -1)[7]
            assert value == pytest.approx(float(expected), abs=2e-4)


def test_windows_shorter_than_a_row_are_noticed(tokenizer):
    hf_model = tiny_hf_model("mistral", len(tokenizer), sliding_window=4)
    reader = TreeReader(LanguageModel(hf_model, tokenizer, "mistral"), batch_size=4)
    packed, why = reader.packing(trees())
    assert not packed
    assert "differ by" in why


def test_a_model_that_refuses_the_mask_is_run_path_by_path(tokenizer):
    hf_model = tiny_hf_model("bloom", len(tokenizer))
    packed, why = TreeReader(LanguageModel(hf_model, tokenizer, "b"), batch_size=4).packing(trees())
    assert not packed
    assert "does not take a tree as one row" in why


def test_few_logits_are_held_at_once(tokenizer, monkeypatch):
    """However many prompts there are, a pass never computes more than the bound."""
    from tda_bias.models import token_trees

    model = LanguageModel(tiny_hf_model("gpt2", len(tokenizer)), tokenizer, "g")
    sizes = []
    original = token_trees.logits_at

    def counted(*args):
        logits = original(*args)
        sizes.append(logits.numel())
        return logits

    plain = TreeReader(model, batch_size=50).read(trees() * 5, packed=True)
    monkeypatch.setattr(token_trees, "logits_at", counted)
    bound = 60 * len(tokenizer)
    monkeypatch.setattr(token_trees, "_LOGITS", bound)
    few = TreeReader(model, batch_size=50).read(trees() * 5, packed=True)
    assert len(sizes) > 3
    assert max(sizes) <= bound
    for a, b in zip(plain, few, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_log_probs_are_normalised_over_the_vocabulary():
    logits = torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    row, token = np.array([0, 39, 17, 17]), np.array([8, 0, 3, 4])
    expected = torch.log_softmax(logits, -1)[row, token].numpy()
    np.testing.assert_allclose(log_probs(logits, row, token), expected, rtol=1e-5)
