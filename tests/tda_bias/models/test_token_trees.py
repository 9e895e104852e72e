import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tda_bias.models.token_trees import (
    TokenTree,
    merge,
    one_per_row,
    packed_rows,
    separate_paths,
    whole_trees,
)
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


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_trees_packed_into_rows_share_no_place_and_need_no_more_rows(lengths):
    trees = [tree_of([list(range(n))]) for n in lengths]
    grid = packed_rows(trees)
    taken = np.zeros((grid.n_rows, grid.width), dtype=int)
    for n, row, column in zip(lengths, grid.row, grid.column, strict=True):
        assert column + n <= grid.width == max(lengths)
        taken[row, column : column + n] += 1
    assert taken.max() == 1
    assert -(-sum(lengths) // grid.width) <= grid.n_rows <= len(trees)
    assert taken.any(axis=1).all()


@given(st.lists(SEQUENCES, min_size=1, max_size=4))
def test_places_are_those_of_the_nodes_that_are_read(groups):
    trees = [tree_of(sequences) for sequences in groups]
    for grid in (one_per_row(trees), packed_rows(trees)):
        places, which = grid.places(trees)
        expected = [
            (row * grid.width + column + node)
            for tree, row, column in zip(trees, grid.row, grid.column, strict=True)
            for node in tree.read_node
        ]
        assert places[which].tolist() == expected
        assert places.tolist() == sorted(set(expected))
