"""Small trees of tokens."""

import numpy as np

from tda_bias.models.token_trees import TokenTree, merge


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


def trees():
    generator = np.random.default_rng(0)
    shared = generator.integers(5, 60, 6).tolist()
    made = []
    for size in (3, 9, 5):
        ends = [generator.integers(5, 60, generator.integers(1, 5)).tolist() for _ in range(size)]
        made.append(tree_of([shared[:size] + end for end in ends], read_token=7))
    return made
