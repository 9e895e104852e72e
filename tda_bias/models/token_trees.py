"""Token sequences that share beginnings, as trees.

Prompts that differ in one word, and the words that may follow them, share most of their tokens.
Such sequences are a tree of tokens, and a causal model's prediction at a node depends on the path
from the root to it alone. Pure arrays; ``scoring`` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class TokenTree:
    """Token sequences with common beginnings, and what to read from them.

    Attributes:
        tokens: Token ids; a node comes after its parent.
        parent: Index of each node's parent; -1 for a first token.
        read_node: Nodes after which something is read, one per reading.
        read_token: The token whose probability is read there.
    """

    tokens: Int[np.ndarray, " node"]
    parent: Int[np.ndarray, " node"]
    read_node: Int[np.ndarray, " reading"]
    read_token: Int[np.ndarray, " reading"]

    def __len__(self) -> int:
        return len(self.tokens)

    def depth(self) -> Int[np.ndarray, " node"]:
        """Position of each node in its path, from 0."""
        depth = np.zeros(len(self), dtype=np.int64)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                depth[node] = depth[parent] + 1
        return depth

    def visible(self) -> np.ndarray:
        """``(node, node)``: which nodes each node sees, its path and itself."""
        seen = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen

    def paths(self) -> tuple[list[TokenTree], list[Int[np.ndarray, " reading"]]]:
        """The tree as chains, one per leaf that something is read on the way to.

        Returns:
            The chains, and for each the indices of the readings it takes over; together they hold
            every reading once.
        """
        leaf = np.arange(len(self))
        for node in range(len(self) - 1, -1, -1):
            if self.parent[node] >= 0:
                leaf[self.parent[node]] = leaf[node]
        depth = self.depth()
        chains, readings = [], []
        for end in np.unique(leaf):
            taken = np.flatnonzero(leaf[self.read_node] == end)
            if not len(taken):
                continue
            path = path_to(int(end), self.parent)
            chains.append(
                TokenTree(
                    tokens=self.tokens[path],
                    parent=np.arange(len(path)) - 1,
                    read_node=depth[self.read_node[taken]],
                    read_token=self.read_token[taken],
                )
            )
            readings.append(taken)
        return chains, readings


def path_to(node: int, parent: Int[np.ndarray, " node"]) -> list[int]:
    """The nodes from the first token to a node, both included."""
    path = [node]
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return path[::-1]


@dataclass(frozen=True)
class Rows:
    """Trees or paths of trees that are rows of forward passes.

    Attributes:
        rows: What stands in each row.
        tree: Index of the tree each belongs to.
        readings: For each row, which of its tree's readings it makes.
    """

    rows: list[TokenTree]
    tree: list[int]
    readings: list[Int[np.ndarray, " reading"]]

    def only(self, chosen: Sequence[int]) -> Rows:
        """Some of the rows."""
        return Rows(
            [self.rows[i] for i in chosen],
            [self.tree[i] for i in chosen],
            [self.readings[i] for i in chosen],
        )


def whole_trees(trees: Sequence[TokenTree]) -> Rows:
    """Every tree as one row."""
    readings = [np.arange(len(tree.read_node)) for tree in trees]
    return Rows(list(trees), list(range(len(trees))), readings)


def separate_paths(trees: Sequence[TokenTree]) -> Rows:
    """Every path of every tree as a row of its own."""
    rows = Rows([], [], [])
    for number, tree in enumerate(trees):
        chains, taken = tree.paths()
        rows.rows.extend(chains)
        rows.readings.extend(taken)
        rows.tree.extend([number] * len(chains))
    return rows


@dataclass(frozen=True)
class Grid:
    """Places of trees in the rows of a forward pass.

    Attributes:
        row: Of each tree.
        column: Of each tree's first token.
        n_rows: Rows.
        width: Tokens of each.
    """

    row: Int[np.ndarray, " tree"]
    column: Int[np.ndarray, " tree"]
    n_rows: int
    width: int

    def places(
        self, trees: Sequence[TokenTree]
    ) -> tuple[Int[np.ndarray, " place"], Int[np.ndarray, " reading"]]:
        """The distinct places that are read, row by row, and which of them each reading is."""
        start = self.row * self.width + self.column
        flat = [tree.read_node + first for tree, first in zip(trees, start, strict=True)]
        places, which = np.unique(np.concatenate(flat), return_inverse=True)
        return places, which


def one_per_row(trees: Sequence[Sized]) -> Grid:
    """A row for every tree, or whatever stands in a row."""
    n = len(trees)
    return Grid(np.arange(n), np.zeros(n, dtype=np.int64), n, max(map(len, trees)))


def packed_rows(trees: Sequence[Sized]) -> Grid:
    """Several trees in a row, where they fit into the length of the longest: less is padding.

    The longest first, each into the fullest row that it fits into (best fit, decreasing).
    """
    lengths = np.array([len(tree) for tree in trees])
    width = int(lengths.max())
    row, column = np.zeros_like(lengths), np.zeros_like(lengths)
    filled: list[int] = []
    for tree in np.argsort(-lengths, kind="stable"):
        fitting = [n for n, used in enumerate(filled) if used + lengths[tree] <= width]
        if fitting:
            chosen = max(fitting, key=filled.__getitem__)
        else:
            chosen = len(filled)
            filled.append(0)
        row[tree], column[tree] = chosen, filled[chosen]
        filled[chosen] += int(lengths[tree])
    return Grid(row, column, len(filled), width)


def merge(sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sequences as nodes of one tree.

    Returns:
        Tokens and parents of the nodes, and the last node of each sequence.
    """
    index: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    ends = []
    for sequence in sequences:
        node = -1
        for token in sequence:
            key = (node, token)
            if key not in index:
                index[key] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = index[key]
        ends.append(node)
    return np.array(tokens, dtype=np.int64), np.array(parents), np.array(ends)
