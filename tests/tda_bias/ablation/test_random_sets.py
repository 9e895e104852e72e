"""Sets of heads drawn to compare with."""

from itertools import combinations

import numpy as np
import pytest

from tda_bias.ablation.random_sets import n_possible_sets, random_sets
from tda_bias.types import HeadId, InputError


def test_a_layer_without_enough_other_heads_is_named():
    heads = [HeadId(0, 1), HeadId(0, 2)]
    with pytest.raises(InputError, match="layer 0 has 2 chosen heads and 1 others"):
        random_sets(heads, 3, 5, rng=np.random.default_rng(0))


def test_random_sets_keep_the_layers_and_leave_the_heads_out():
    heads = [HeadId(0, 1), HeadId(0, 2), HeadId(3, 0)]
    sets = random_sets(heads, 6, 20, rng=np.random.default_rng(0))
    assert len(sets) == len(set(sets)) == 20
    for own in sets:
        assert sorted(head.layer for head in own) == [0, 0, 3]
        assert len(set(own)) == 3
        assert not set(own) & set(heads)


def test_where_there_are_few_all_are_given_once():
    heads = [HeadId(0, 1), HeadId(2, 0)]
    assert n_possible_sets(heads, 4) == 9
    sets = random_sets(heads, 4, 20, rng=np.random.default_rng(0))
    assert set(sets) == {(HeadId(0, a), HeadId(2, b)) for a in (0, 2, 3) for b in (1, 2, 3)}
    assert len(sets) == 9


def test_every_set_is_as_likely():
    heads = [HeadId(0, 0), HeadId(0, 1)]
    rng = np.random.default_rng(0)
    drawn = [own for _ in range(2000) for own in random_sets(heads, 7, 2, rng=rng)]
    pairs = [tuple(HeadId(0, h) for h in pair) for pair in combinations(range(2, 7), 2)]
    counts = np.array([drawn.count(pair) for pair in pairs])
    assert counts.sum() == 4000
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # chi squared with 9 degrees, p = .001


def test_a_seed_fixes_the_sets():
    heads = [HeadId(0, 1)]
    first, again = (random_sets(heads, 50, 9, rng=np.random.default_rng(3)) for _ in range(2))
    assert first == again
