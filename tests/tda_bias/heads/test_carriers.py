"""Which texts carry a head's difference, and of which heads patterns are kept."""

import numpy as np
import pytest

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.items import carriers, shares
from tda_bias.twins import make_twins
from tda_bias.types import HeadId


@pytest.fixture(scope="module")
def result(tiny):
    triples = load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)
    twins = make_twins(load_triples("starter")).only(triples)
    config = HeadBiasConfig(n_permutations=99)
    return head_bias(tiny("gpt2"), triples, twins=twins, config=config)


def test_the_largest_come_first_whatever_their_sign_and_undefined_ones_never():
    share = np.zeros((5, 2, 3))
    share[:, 1, 2] = [0.1, -0.4, np.nan, 0.3, 0.0]
    assert carriers(share[:, 1, 2], 3).tolist() == [1, 3, 0]
    assert carriers(share[:, 1, 2], 9).tolist() == [1, 3, 0, 4]


@pytest.mark.parametrize("twins", [False, True])
def test_what_the_texts_of_a_group_add_is_on_average_the_groups_value(result, twins):
    share = shares(result.items, twins=twins)
    column = "combined_relative_twin" if twins else "combined_relative"
    for group, rows in result.combined.groupby("group"):
        own = share[(result.items.items["group"] == group).to_numpy()]
        mean = np.nanmean(own, axis=0)[rows["layer"], rows["head"]]
        np.testing.assert_allclose(mean, rows[column], atol=1e-6)


def test_each_head_keeps_its_own_texts_with_their_twins(result):
    kept = result.texts_to_keep(2)
    first = result.top(1).iloc[0]
    head = HeadId(int(first["layer"]), int(first["head"]))
    own = [text for text in kept if text.head == head]
    assert len({text.id for text in own}) == 3
    assert {text.role for text in own} >= {"stereotype", "anti-stereotype", "twin stereotype"}
    table = result.items.items.set_index("id")
    assert all(
        text.text == table.loc[text.id, "stereotype"] for text in own if text.role == "stereotype"
    )


def test_heads_are_those_of_the_ranking_and_survivors_below_them(result):
    assert result.texts_to_keep(0) == []
    heads = list(dict.fromkeys(text.head for text in result.texts_to_keep(3)))
    tables = result.top(3), result.survivors().head(3)
    ranked = [HeadId(*row) for t in tables for row in t[["layer", "head"]].to_numpy().tolist()]
    assert heads == list(dict.fromkeys(ranked))
