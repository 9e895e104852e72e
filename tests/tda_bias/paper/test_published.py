"""Tables of the papers: published numbers as printed, ours as computed."""

import json

import numpy as np
import pandas as pd
import pytest

from tda_bias.paper.published import beside_published, extreme_groups, published
from tda_bias.runs.tables import latex, markdown, write_table
from tda_bias.types import InputError


def test_published_values_are_those_of_the_papers():
    tables = published()["heads"]["tables"]
    assert ["Norway", -1.638, -19.774, 6.098] in tables["race"]
    sizes = {category: len(rows) for category, rows in tables.items()}
    assert sizes == {"gender": 4, "profession": 4, "race": 4, "religion": 3}


def test_tables_hold_the_extreme_groups(heads_run):
    table = extreme_groups(heads_run, "gender")
    own = heads_run.groups[heads_run.groups["category"] == "gender"]
    means = own.set_index("group")["metric_mean"].sort_values(ascending=False)
    assert list(table["group"]) == [*means.index[:2], *means.index[-2:]]
    np.testing.assert_allclose(table["mean"], means[table["group"]])
    rows = heads_run.combined[heads_run.combined["group"] == table["group"][0]]
    assert table["minimum"][0] == pytest.approx(rows["combined_metric"].min())
    assert table["unstable"][0] == rows["unstable"].sum()
    stable = rows.loc[~rows["unstable"], "combined_metric"].mean()
    assert table["mean of the others"][0] == pytest.approx(stable)
    with pytest.raises(InputError, match="no groups of height"):
        extreme_groups(heads_run, "height")


def test_groups_stand_beside_the_papers(heads_run, monkeypatch):
    name = heads_run.groups.query("category == 'gender'")["group"].iloc[0]
    content = json.loads(json.dumps(published()))
    content["heads"]["tables"]["gender"] = [[name.upper(), 1.0, -2.0, 3.0], ["nobody", 0.5, 0, 1]]
    monkeypatch.setattr("tda_bias.paper.published.published", lambda: content)
    table = beside_published(heads_run, "gender").set_index("group")
    own = heads_run.groups.set_index("group").loc[name]
    assert table.loc[name.upper(), "mean, paper"] == 1.0
    assert table.loc[name.upper(), "mean, here"] == pytest.approx(own["metric_mean"])
    assert table.loc[name.upper(), "rank here"].endswith("of 4")
    assert np.isnan(table.loc["nobody", "mean, here"])
    assert table.loc["nobody", "rank here"] == ""


def test_formats_hold_the_same_numbers(tmp_path):
    table = pd.DataFrame({"group": ["a_b", "c & d"], "mean": [0.12345, np.nan], "n": [1, 2]})
    shown = markdown(table)
    assert "| a_b" in shown
    assert "0.123" in shown
    assert "nan" not in shown
    text = latex(table, "50 % of a_b", "x")
    assert r"a\_b" in text
    assert r"c \& d" in text
    assert r"\toprule" in text
    assert r"50 \% of a\_b" in text
    files = write_table(tmp_path, "t", table, "caption")
    assert sorted(f.name for f in files) == ["t.csv", "t.md", "t.tex"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "t.csv"), table)
