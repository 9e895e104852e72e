"""Runs of behaviour as charts of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tda_bias.behaviour.ablation_study import AblationStudy
from tda_bias.behaviour.beta import log_odds
from tda_bias.behaviour.stereoset_scores import StereoSetScores
from tda_bias.records.page import Chart
from tda_bias.records.runs import Run
from tda_bias.records.spreadsheets import csv_table

POINT = {"type": "point", "filled": True, "size": 45, "color": "var(--first)", "opacity": 0.7}


def number(name: str, title: str, **options: Any) -> dict[str, Any]:
    """An axis of numbers."""
    return {"field": name, "type": "quantitative", "title": title, **options}


def names(name: str, title: str = "", **options: Any) -> dict[str, Any]:
    """An axis of names, in the order of the rows."""
    return {"field": name, "type": "nominal", "title": title or None, "sort": None, **options}


def hover(*fields: str) -> list[dict[str, Any]]:
    """What the box beside the pointer says."""
    return [{"field": name} for name in fields]


def chosen(name: str, label: str, values: list[str]) -> dict[str, Any]:
    """A choice that filters the rows by a column, and the filter."""
    select = {"input": "select", "options": ["", *values], "labels": ["all", *values]}
    return {
        "params": [{"name": f"chosen_{name}", "value": "", "bind": {**select, "name": label}}],
        "transform": [{"filter": f"chosen_{name} === '' || datum.{name} === chosen_{name}"}],
    }


def interval_chart(
    title: str, rows: pd.DataFrame, value: str, *, label: str, axis: str, note: str = ""
) -> Chart:
    """Values with intervals, a line each.

    Args:
        title: What it shows.
        rows: With the columns ``value``, ``value_low``, ``value_high`` and the label's.
        value: The column.
        label: The column that names a line.
        axis: What the numbers are.
        note: How to read it.
    """
    layers = [
        {
            "mark": {"type": "rule", "color": "var(--first)"},
            "encoding": {"x": number("low", axis), "x2": {"field": "high"}},
        },
        {"mark": POINT, "encoding": {"x": number("value", axis), "tooltip": hover(*_TIP)}},
    ]
    table = pd.DataFrame(
        {
            "name": rows[label].astype(str),
            "value": rows[value],
            "low": rows[f"{value}_low"],
            "high": rows[f"{value}_high"],
        }
    ).dropna()
    spec = {
        "description": title,
        "height": {"step": 15},
        "encoding": {"y": names("name")},
        "layer": layers,
    }
    return Chart(title, spec, table, note)


_TIP = ("name", "value", "low", "high")


# -- by command ------------------------------------------------------------------------------------


def stereoset(run: Run, texts: Mapping[str, str]) -> list[Chart]:
    """Every item's preference against that of its twin.

    Args:
        run: Of ``tdabias stereoset``.
        texts: Texts by the items' names, as far as another run knows them.
    """
    found = run.load(StereoSetScores.load)
    if not found.has_twins:
        return []
    items = found.items
    said = items["id"].map(lambda name: texts.get(str(name), "")) if "id" in items else ""
    rows = pd.DataFrame(
        {
            "category": items["category"],
            "target": items["group"],
            "item": log_odds(items, "sum"),
            "twin": items["logprob_s_twin"] - items["logprob_a_twin"],
            "text": said,
        }
    ).dropna(subset=["item", "twin"])
    same = {"type": "rule", "color": "var(--soft)", "strokeDash": [4, 3], "aria": False}
    values = rows[["item", "twin"]].to_numpy(float)
    least, most = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    ends = {
        "x": {"datum": least},
        "y": {"datum": least},
        "x2": {"datum": most},
        "y2": {"datum": most},
    }
    points = {
        "mark": POINT,
        "encoding": {
            "x": number("twin", "the twin's log-odds of the stereotype, nats"),
            "y": number("item", "the item's log-odds, nats"),
            "tooltip": hover("target", "item", "twin", "text"),
        },
    }
    spec = {
        "description": "Log-odds of every item against its twin's",
        "height": 340,
        **chosen("target", "Target ", sorted(rows["target"].unique())),
        "layer": [{"mark": same, "encoding": ends}, points],
    }
    note = (
        "Each point is an item; its twin says the same of another target. Points on the dashed "
        "line are preferred for their wording; what lies above it is about the target."
    )
    return [Chart("Items against their twins", spec, rows, note)]


def ablate(run: Run) -> list[Chart]:
    """What removal changes: the top heads, the bottom ones, and random ones."""
    effects = run.load(AblationStudy.load).effects
    rows = effects[["kind", "heads", "d_log_odds"]]
    spec = {
        "description": "Change of the log-odds by which heads were removed",
        "height": {"step": 26},
        "mark": {**POINT, "opacity": 0.6},
        "encoding": {
            "y": names("kind"),
            "x": number("d_log_odds", "change of the mean log-odds of the stereotype, nats"),
            "tooltip": hover("kind", "heads", "d_log_odds"),
        },
    }
    note = "A chosen set that lies among the random ones does no more than any heads would."
    return [Chart("What removal changes", spec, rows, note)]


def crossref(run: Run) -> list[Chart]:
    """Correlations over targets of what heads do with what the model says."""
    table = _csv(run, "correlations.csv")
    rows = table.assign(
        pair=table["quantity"].astype(str) + " · " + table["summary"].astype(str),
        rho_low=table["low"],
        rho_high=table["high"],
        rho=table["spearman"],
    )
    title = "Heads against behaviour, over targets"
    return [interval_chart(title, rows, "rho", label="pair", axis="Spearman's rho")]


def prune_curve(run: Run) -> list[Chart]:
    """What is left of the preference while more and more heads are removed."""
    rows = _csv(run, "curve.csv").assign(
        line=lambda t: t["ranking"].astype(str) + " " + t["draw"].astype(str)
    )
    rows = rows[["ranking", "line", "k", "log_ppl", "log_odds_test"]].dropna()
    spec = {
        "description": "Preference left against log-perplexity while heads are removed",
        "height": 320,
        "mark": {"type": "line", "point": True, "opacity": 0.7},
        "encoding": {
            "x": number("log_ppl", "log-perplexity of neutral text", scale={"zero": False}),
            "y": number("log_odds_test", "preference left on targets that chose nothing, nats"),
            "color": names("ranking", "ranking", scale={"scheme": "tableau10"}),
            "detail": {"field": "line"},
            "order": {"field": "k", "type": "quantitative"},
            "tooltip": hover("ranking", "k", "log_ppl", "log_odds_test"),
        },
    }
    return [Chart("What removing more and more heads leaves", spec, rows)]


def compare(run: Run) -> list[Chart]:
    """Changes between two models, outcome by outcome."""
    table = _csv(run, "compare.csv").rename(columns={"low": "change_low", "high": "change_high"})
    title = "Changes from before to after"
    note = "Outcomes have units of their own; the table below says before and after."
    return [interval_chart(title, table, "change", label="outcome", axis="change", note=note)]


def debias(run: Run) -> list[Chart]:
    """The frontier of trainings: bias left on unseen targets against perplexity, check by check."""
    rows = _csv(run, "frontier.csv").assign(
        line=lambda t: t["arm"].astype(str) + " " + t["draw"].astype(str)
    )
    spec = {
        "description": "Bias left against perplexity, arm by arm",
        "height": 320,
        "mark": {"type": "line", "point": True, "opacity": 0.7},
        "encoding": {
            "x": number("perplexity", "perplexity of neutral text", scale={"zero": False}),
            "y": number("beta", "beta left on targets never trained on"),
            "color": names("arm", "arm", scale={"scheme": "tableau10"}),
            "strokeDash": names("arm", "arm"),
            "detail": {"field": "line"},
            "order": {"field": "check", "type": "quantitative"},
            "tooltip": hover("arm", "draw", "check", "perplexity", "beta"),
        },
    }
    note = "Lines of random heads show what choosing heads has to beat."
    return [Chart("The frontier: bias left, and its cost", spec, rows, note)]


def _csv(run: Run, name: str) -> pd.DataFrame:
    """A table of a run, as it stands there."""
    return csv_table(run.read(name))
