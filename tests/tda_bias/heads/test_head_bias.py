"""Files, ranking and the map of a finished run."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_triples
from tda_bias.plots.heads import caption
from tda_bias.store.files import to_json
from tda_bias.types import InputError

FILES = [
    "category.parquet",
    "combined.parquet",
    "groups.csv",
    "heads.csv",
    "heads.parquet",
    "heatmap.png",
    "heatmap.svg",
    "items.npz",
    "items.parquet",
    "nulls.npz",
    "run.json",
]


@pytest.fixture(scope="module")
def result(tiny) -> HeadBias:
    triples = load_triples("starter", category="gender", limit=4)
    return head_bias(tiny("gpt2"), triples, twins=None, config=HeadBiasConfig(n_permutations=99))


def test_a_result_comes_back_as_it_was_saved(result, tmp_path):
    written = result.save(tmp_path)
    assert sorted(path.name for path in written) == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert written[-1].name == "run.json"
    loaded = HeadBias.load(tmp_path)
    for name in ("table", "combined", "category"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(result, name))
    pd.testing.assert_frame_equal(loaded.groups, result.groups, check_dtype=False)
    assert loaded.record.model == result.record.model
    listed = loaded.record.model_dump(exclude={"files"})
    assert to_json(listed) == to_json(result.record.model_dump(exclude={"files"}))
    pd.testing.assert_frame_equal(loaded.top(5), result.top(5))


def test_the_csv_holds_the_same_rows_as_the_parquet(result, tmp_path):
    result.save(tmp_path)
    text = pd.read_csv(tmp_path / "heads.csv", keep_default_na=False, na_values=["nan"])
    assert list(text.columns) == list(result.table.columns)
    np.testing.assert_allclose(text["S"].astype(float), result.table["S"])


def test_folders_that_cannot_be_read_or_written_are_one_line(result, tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias heads`"):
        HeadBias.load(tmp_path)
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write"):
        result.save(tmp_path / "out")


@pytest.mark.parametrize("by", ["relative", "metric", "statistic"])
def test_the_ranking_is_that_of_the_map(result, by):
    top = result.top(8, by=by)
    heat = result.category_map(by=by)
    assert heat.shape == (2, 4)
    found = [heat[row.layer, row.head] for row in top.itertuples()]
    np.testing.assert_array_equal(found, top["z"])
    stable = top[~top["unstable"]]["z"]
    assert list(stable) == sorted(stable, reverse=True)


def test_unstable_heads_never_rank_first_in_a_published_map(result):
    category = result.category.copy()
    first = result.top(1, by="relative").iloc[0]
    chosen = (category["layer"] == first["layer"]) & (category["head"] == first["head"])
    category.loc[chosen, "unstable"] = True
    flagged = replace(result, category=category)
    ranked = flagged.top(8, by="relative")
    assert not ranked["unstable"].iloc[0]
    assert ranked["unstable"].iloc[-1]
    assert (ranked["layer"].iloc[-1], ranked["head"].iloc[-1]) == (first["layer"], first["head"])


def test_survivors_are_the_heads_below_the_level_after_correction(result):
    category = result.category.copy()
    category["p_max_relative"], category["q_relative"], category["p_relative"] = 1.0, 1.0, 0.5
    assert replace(result, category=category).survivors().empty
    category.loc[3, ["p_max_relative", "p_relative"]] = 0.04, 0.01
    category.loc[5, ["q_relative", "p_relative"]] = 0.03, 0.001
    found = replace(result, category=category).survivors()
    assert list(zip(found["layer"], found["head"], strict=True)) == [(1, 1), (0, 3)]


def test_in_the_heat_map_survivors_alone_have_colour_and_the_bar_marks_chance(result):
    figure, ax = plt.subplots()
    assert result.plot_heatmap(ax) is ax
    every, found = ax.get_images()
    np.testing.assert_array_equal(every.get_array(), result.category_map())
    kept = result.survivors()
    assert (~np.isnan(np.ma.filled(found.get_array(), np.nan))).sum() == len(kept)
    chance, (low, high) = result.controls()["critical"], every.get_clim()
    assert low < chance < high
    below, above = every.cmap(every.norm([chance - 0.1, chance + 0.1]))
    assert np.ptp(below[:3]) < 0.02 < np.ptp(above[:3])  # grey has three equal parts
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("head", "layer")
    plt.close(figure)


def test_the_figure_states_its_controls(result):
    text = caption(result, "gender", "relative")
    controls = result.controls()
    assert f"{controls['groups']} groups, {controls['triples']} triples" in text
    assert f"({controls['hot_spots_expected']:.1f} expected by chance)" in text
