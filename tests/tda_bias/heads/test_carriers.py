"""Which texts carry a head's difference, and of which heads patterns are kept."""

import numpy as np
import pandas as pd
import pytest

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.items import carriers, shares
from tda_bias.twins import make_twins


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
    own = kept[(kept["layer"] == first["layer"]) & (kept["head"] == first["head"])]
    assert own["id"].nunique() == 3
    assert {*own["role"]} >= {"stereotype", "anti-stereotype", "twin stereotype"}
    stereotype = own[own["role"] == "stereotype"]
    table = result.items.items.set_index("id")
    assert list(stereotype["text"]) == list(table.loc[stereotype["id"], "stereotype"])


def test_heads_are_those_of_the_ranking_and_survivors_below_them(result):
    assert result.texts_to_keep(0).empty
    wanted = result.texts_to_keep(3), result.top(3), result.survivors().head(3)
    heads, *ranked = (table[["layer", "head"]].drop_duplicates() for table in wanted)
    expected = pd.concat(ranked).drop_duplicates()
    assert heads.to_numpy().tolist() == expected.to_numpy().tolist()
