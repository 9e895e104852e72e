"""Heads' differences item by item, against the group's own numbers."""

import numpy as np
import pandas as pd

from tda_bias.heads.items import ItemDifferences
from tda_bias.store.result import writing_run
from tda_bias.store.run import open_run
from tda_bias.twins.twins import TEXTS
from tests.support.grams import made_up_group, result_of
from tests.support.runs import record_of


def group(name, n=4, twin_of=(0, 0, 2), seed=0):
    """A group of two layers and three heads, and its made-up texts by layer and dimension."""
    twins = np.bincount(twin_of, minlength=n) if len(twin_of) else 0
    texts = [
        [made_up_group(n, twins=twins, seed=100 * seed + 10 * layer + dim) for dim in range(2)]
        for layer in range(2)
    ]
    return result_of(name, *texts), texts


def differences(*groups):
    texts = dict.fromkeys(TEXTS, "a text")
    items = [[{"id": f"{g.group}{i}", **texts} for i in range(g.versions.n)] for g in groups]
    return ItemDifferences.of(groups, items, [0, 2])


def test_raw_differences_by_hand_and_their_mean_is_relative():
    found, texts = group("he")
    raw = differences(found).raw
    np.testing.assert_allclose(raw["sum"], found.item_sums[:4])
    for layer, dim in np.ndindex(2, 2):
        s, a = texts[layer][dim].stereotype, texts[layer][dim].anti
        np.testing.assert_allclose(raw["sum"][:, dim, layer], (s - a).sum(-1))
        middle = (s.mean(0) + a.mean(0)) / 2
        q_s, q_a = (((x - middle) ** 2).mean(-1) for x in (s, a))
        expected = (q_a - q_s) / (q_a + q_s).mean(0)
        np.testing.assert_allclose(raw["dispersion"][:, dim, layer], expected)
    np.testing.assert_allclose(raw["dispersion"].mean(0), found.statistic.relative)


def test_twins_are_subtracted_and_items_without_any_are_undefined():
    found, *_ = group("he")
    twins = differences(found).twins
    sums = found.item_sums
    assert np.isnan(twins["sum"][[1, 3]]).all()
    np.testing.assert_allclose(twins["sum"][0], sums[0] - (sums[4] + sums[5]) / 2)
    np.testing.assert_allclose(twins["sum"][2], sums[2] - sums[6])
    share = found.contrast.dispersion / (found.contrast.dispersion_total / 2)
    np.testing.assert_allclose(twins["dispersion"][2], share[2] - share[6])
    assert np.isnan(twins["dispersion"][[1, 3]]).all()


def test_with_one_twin_each_the_mean_is_relative_twin():
    found, *_ = group("he", twin_of=(0, 1, 2, 3), seed=3)
    twins = differences(found).twins
    np.testing.assert_allclose(twins["dispersion"].mean(0), found.contrast.relative_twin)


def test_groups_follow_each_other_and_without_twins_there_are_none():
    one, two = group("he")[0], group("she", n=3, twin_of=(), seed=1)[0]
    both = differences(one, two)
    assert both.items["group"].tolist() == ["he"] * 4 + ["she"] * 3
    assert both.items["id"].tolist()[-1] == "she2"
    np.testing.assert_array_equal(both.raw["sum"][4:], two.item_sums[:3])
    assert np.isnan(both.twins["sum"][4:]).all()
    assert differences(two).twins == {}


def test_a_head_that_does_not_vary_has_no_share():
    found, *_ = group("he")
    found.statistic.q_stereotype[:, 0, 0, 0] = found.statistic.q_anti[:, 0, 0, 0] = 0
    assert np.isnan(differences(found).raw["dispersion"][:, 0, 0, 0]).all()


def test_what_is_written_is_read_again(tmp_path):
    expected = differences(group("he")[0], group("None", n=3, twin_of=(1,), seed=1)[0])
    with writing_run(tmp_path, record_of()) as run:
        expected.write(run)
    found = ItemDifferences.read(open_run(tmp_path))
    pd.testing.assert_frame_equal(found.items, expected.items)
    assert found.layers == [0, 2]
    for kind in ("raw", "twins"):
        for name, values in getattr(expected, kind).items():
            np.testing.assert_allclose(getattr(found, kind)[name], values, rtol=1e-6)
