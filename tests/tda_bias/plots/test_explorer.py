"""The interactive map holds the numbers of the tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tda_bias.ablation.study import AblationStudy
from tda_bias.heads.items import ITEMS_ARRAYS
from tda_bias.heads.result import NULLS, HeadBias
from tda_bias.plots.explorer import _by_group, explorer
from tda_bias.store.run import open_run
from tests.support.reports import unpacked


@pytest.fixture(scope="module")
def folder(report_runs):
    return report_runs[0]


@pytest.fixture(scope="module")
def result(folder):
    return HeadBias.load(folder)


@pytest.fixture(scope="module")
def shown(folder):
    return explorer(open_run(folder), [open_run(folder / "ablate")])


def of(shown):
    return shown["categories"]["gender"]


def test_the_page_knows_the_direction_of_attention(shown):
    assert shown["reading"] == {"causal": True}


def test_the_map_that_the_run_ranks_by_comes_first(shown, result):
    first = of(shown)["maps"][0]
    assert first["label"] == "dispersion, triple minus twin"
    expected = result.category_map("gender").ravel()
    np.testing.assert_allclose(first["value"], expected, rtol=1e-3)


def test_every_map_stands_with_its_noise_and_its_test(shown, result):
    by_name = {one["label"]: one for one in of(shown)["maps"]}
    assert len(by_name) == 7
    for label, tested in (("location", "location"), ("mean z, T", "statistic")):
        for name in ("p", "p_max", "q"):
            column = result.layer_by_head(f"{name}_{tested}", "gender").ravel()
            np.testing.assert_allclose(by_name[label][name], column, rtol=1e-3)
        noise = result.layer_by_head(f"z_null_{tested}", "gender").ravel()
        np.testing.assert_allclose(by_name[label]["noise"], noise, rtol=1e-3, atol=1e-9)


def test_the_map_of_the_ranking_has_the_scale_of_the_printed_one_and_others_no_chance(
    shown, result
):
    first, *others = of(shown)["maps"]
    low, top, chance = first["scale"]
    assert chance == result.controls("gender")["critical"] > 0
    assert top >= 1.3 * chance
    assert low == pytest.approx(result.category_map("gender").min())
    assert {one["scale"][2] for one in others} == {None}


def test_draws_ascend_and_give_the_share_above_a_head_that_its_p_gives(shown):
    for one in of(shown)["maps"]:
        draws = unpacked(one["nulls"]["packed"]).reshape(41, 8)
        assert (np.diff(draws, axis=0) >= 0).all()
        above = (draws >= np.array(one["tested"])[None] - 1e-3).mean(0)
        np.testing.assert_allclose(above, one["p"], atol=0.06)


@pytest.mark.parametrize(
    ("kind", "column"), [("spread", "relative"), ("spread_twin", "relative_twin")]
)
def test_groups_have_the_runs_values_with_students_interval(shown, result, kind, column):
    values = of(shown)["values"][kind]
    groups, step = of(shown)["groups"], values["packed"]["step"]
    assert step < 1e-3
    limits = unpacked(values["packed"]).reshape(3, len(groups), 8)
    for place, group in enumerate(groups):
        rows = result.combined[result.combined["group"] == group].sort_values(["layer", "head"])
        np.testing.assert_allclose(limits[0, place], rows[f"combined_{column}"], atol=step)
        low, value, high = (limits[place_of, place] for place_of in (1, 0, 2))
        known = np.isfinite(value)
        assert (low[known] <= value[known]).all()
        assert (value[known] <= high[known]).all()


def test_students_interval_by_hand():
    values = np.array([[1.0], [2.0], [4.0], [np.nan], [7.0]])
    limits, n = _by_group(values, pd.Series(list("aaaab")), ["a", "b"])
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem([1, 2, 4]))
    np.testing.assert_allclose(limits[:, 0, 0], [7 / 3, low, high])
    assert np.isnan(limits[:, 1]).all()
    assert n == [3, 1]
    limits, _ = _by_group(np.full((3, 1), 0.1), pd.Series(list("aaa")), ["a"])
    assert limits[0, 0, 0] == pytest.approx(0.1)
    assert np.isnan(limits[1:, 0]).all()


def test_places_in_rankings_count_from_the_largest_and_ablations_have_theirs(shown, folder):
    study = AblationStudy.load(folder / "ablate")
    importance = next(r for r in of(shown)["rankings"] if r["label"] == "gradient importance")
    values = study.heads.sort_values(["layer", "head"])["importance"].to_numpy()
    assert importance["rank"][int(np.argmax(values))] == 1
    exact = next(r for r in of(shown)["rankings"] if r["label"].endswith("measured"))
    assert exact["of"] == study.heads["exact"].notna().sum() < 8
    assert exact["rank"].count(None) == 8 - exact["of"]


def test_the_texts_that_carry_a_head_come_with_their_texts(shown):
    carried = of(shown)["carriers"]["spread"]
    sizes = np.abs(np.array(carried["share"], dtype=float))
    assert (np.diff(sizes, axis=0) <= 1e-6).all()
    assert of(shown)["texts"][carried["item"][0][0]]["stereotype"]


def test_a_run_without_patterns_has_all_the_rest(folder, shown, tmp_path):
    result = HeadBias.load(folder)
    replace(result, run=None, extras={ITEMS_ARRAYS: result.items, NULLS: result.nulls}).save(
        tmp_path
    )
    without = of(explorer(open_run(tmp_path), [open_run(folder / "ablate")]))
    assert without == {**of(shown), "patterns": []}
