"""Prejudice and volatility of words, as a chart of a page."""

from __future__ import annotations

from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run

# Lines of a chart: more cannot be read.
MOST = 40
# A word x may look like a number.
_NAMES = {"x": str}


def charts(run: Run) -> list[Chart]:
    """The words with the largest risk, with their intervals over templates."""
    if not run.has("by_x.csv"):
        return []
    table = run.plain_table("by_x.csv", dtype=_NAMES)
    if "r_low" not in table:
        return []
    rows = table.nlargest(MOST, "r")[["x", "r", "r_low", "r_high", "r_p", "r_v", "toward"]]
    tip = [{"field": name} for name in ("x", "r", "r_low", "r_high", "r_p", "r_v", "toward")]
    axis = {
        "field": "r",
        "type": "quantitative",
        "title": "risk r, with its interval over templates",
    }
    spec = {
        "description": "Risk of words with intervals",
        "height": {"step": 15},
        "encoding": {"y": {"field": "x", "type": "nominal", "sort": None, "title": None}},
        "layer": [
            {
                "mark": {"type": "rule", "color": "var(--first)"},
                "encoding": {"x": {**axis, "field": "r_low"}, "x2": {"field": "r_high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "color": "var(--first)", "size": 45},
                "encoding": {
                    "x": axis,
                    "shape": {
                        "field": "toward",
                        "type": "nominal",
                        "title": "leans to",
                        "legend": {"symbolFillColor": "var(--first)", "orient": "top"},
                    },
                    "tooltip": tip,
                },
            },
        ],
    }
    title = f"The {len(rows)} words with the largest risk"
    return [Chart(title, spec, rows, "0: no leaning in any template; the table holds all words.")]
