"""Answers to underspecified questions, as a chart of a page."""

from __future__ import annotations

from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run

# Lines of a chart: more cannot be read.
MOST = 40


def plain_lines(run: Run) -> list[str]:
    """The answers in a sentence or two, for somebody who reads nothing else."""
    if not (run.has("summary.csv") and run.has("groups.csv")):
        return []
    first = run.plain_table("summary.csv").iloc[0]
    groups = run.plain_table("groups.csv")
    known, kept = int(groups["p"].notna().sum()), int((groups["q"] < 0.05).sum())
    return [
        f"Asked about two people where the text does not say, {run.model} prefers one by "
        f"{first['mu']:.3f} on average; flipping each comparison at random gives "
        f"{first['mu_chance']:.3f}. {kept} of {known} groups and attributes are picked more or "
        "less often than others after correction (q < .05)."
    ]


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
