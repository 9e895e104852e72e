"""Answers to underspecified questions, as a chart of a page."""

from __future__ import annotations

import io

import pandas as pd

from tda_bias.records.page import Chart
from tda_bias.records.runs import Run

# Lines of a chart: more cannot be read.
MOST = 40


def charts(run: Run) -> list[Chart]:
    """The groups and attributes with the largest bias, with their intervals."""
    if not run.has("groups.csv"):
        return []
    table = pd.read_csv(io.BytesIO(run.read("groups.csv")), keep_default_na=False, na_values=[""])
    if not {"gamma", "low", "high", "level", "attribute"} <= set(table.columns):
        return []
    largest = table["gamma"].abs().nlargest(MOST).index
    kept = table.loc[largest].sort_values("gamma", ascending=False)
    rows = kept.assign(name=kept["level"].astype(str) + " · " + kept["attribute"].astype(str))
    rows = rows[["name", "gamma", "low", "high"]].dropna()
    axis = {
        "field": "gamma",
        "type": "quantitative",
        "title": "gamma: above 0, the group is picked more often than others",
    }
    spec = {
        "description": "Bias of groups by attribute with intervals",
        "height": {"step": 15},
        "encoding": {"y": {"field": "name", "type": "nominal", "sort": None, "title": None}},
        "layer": [
            {
                "mark": {"type": "rule", "color": "var(--first)"},
                "encoding": {"x": {**axis, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "color": "var(--first)", "size": 45},
                "encoding": {
                    "x": axis,
                    "tooltip": [{"field": name} for name in ("name", "gamma", "low", "high")],
                },
            },
        ],
    }
    return [Chart(f"The {len(rows)} largest biases of groups", spec, rows)]
