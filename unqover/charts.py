"""Answers to underspecified questions, as a chart of a page."""

from __future__ import annotations

from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run

# Lines of a chart: more cannot be read.
MOST = 40


def charts(run: Run) -> list[Chart]:
    """The groups and attributes with the largest bias, with their intervals."""
    if not run.has("groups.csv"):
        return []
    table = run.plain_table("groups.csv")
    if not {"gamma", "low", "high", "group", "attribute"} <= set(table.columns):
        return []
    largest = table["gamma"].abs().nlargest(MOST).index
    kept = table.loc[largest].sort_values("gamma", ascending=False)
    rows = kept.assign(name=kept["group"].astype(str) + " · " + kept["attribute"].astype(str))
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
