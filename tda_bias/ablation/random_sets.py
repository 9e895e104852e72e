"""Sets of heads to hold a chosen set against: as many others of the same layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from tda_bias.types import HeadId, InputError


def n_possible_sets(heads: Sequence[HeadId], n_heads: int) -> int:
    """How many different sets of as many other heads of the same layers there are."""
    by_layer = _by_layer(heads)
    return math.prod(math.comb(n_heads - len(chosen), len(chosen)) for chosen in by_layer.values())


def random_sets(
    heads: Sequence[HeadId], n_heads: int, n: int, *, rng: np.random.Generator
) -> list[tuple[HeadId, ...]]:
    """Different sets of as many other heads of the same layers.

    Args:
        heads: The set they are compared with; its heads are not drawn.
        n_heads: Heads per layer.
        n: Number of sets. Where there are fewer, all of them are given.
        rng: The generator they come from.

    Raises:
        InputError: if a layer has too few other heads.
    """
    by_layer = _by_layer(heads)
    others = {
        layer: [h for h in range(n_heads) if h not in theirs] for layer, theirs in by_layer.items()
    }
    for layer, theirs in by_layer.items():
        if len(others[layer]) < len(theirs):
            raise InputError(
                f"layer {layer} has {len(theirs)} chosen heads and {len(others[layer])} others, so "
                "there is no random set of the same layers; choose fewer with --top"
            )
    sizes = {layer: len(theirs) for layer, theirs in by_layer.items()}
    possible = n_possible_sets(heads, n_heads)
    if possible <= 2 * n:
        every = list(_every(others, sizes))
        return [every[i] for i in rng.permutation(possible)[:n]]
    drawn: dict[tuple[HeadId, ...], None] = {}
    while len(drawn) < n:
        chosen = [
            HeadId(layer, int(head))
            for layer, size in sizes.items()
            for head in sorted(rng.choice(others[layer], size=size, replace=False))
        ]
        drawn[tuple(chosen)] = None
    return list(drawn)


def _by_layer(heads: Sequence[HeadId]) -> dict[int, list[int]]:
    by_layer: dict[int, list[int]] = {}
    for head in sorted(set(heads)):
        by_layer.setdefault(head.layer, []).append(head.head)
    return by_layer


def _every(others: dict[int, list[int]], sizes: dict[int, int]) -> Iterator[tuple[HeadId, ...]]:
    per_layer = [
        [
            tuple(HeadId(layer, head) for head in chosen)
            for chosen in combinations(others[layer], size)
        ]
        for layer, size in sizes.items()
    ]
    return (tuple(head for drawn in several for head in drawn) for several in product(*per_layer))
