import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.models.token_trees import TokenTree, merge, separate_paths, whole_trees
from tests.support.trees import path, tree_of

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6)


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


@given(st.lists(SEQUENCES, min_size=1, max_size=3))
def test_rows_are_whole_trees_or_their_paths_with_every_reading_once(groups):
    trees = [tree_of(sequences) for sequences in groups]
    for rows in (whole_trees(trees), separate_paths(trees)):
        for number, tree in enumerate(trees):
            own = [r for t, r in zip(rows.tree, rows.readings, strict=True) if t == number]
            assert sorted(np.concatenate(own).tolist()) == list(range(len(tree)))
