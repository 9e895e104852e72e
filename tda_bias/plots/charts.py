"""Runs of behaviour as charts of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.runs.figures import BLUE, GREEN, ORANGE, PINK
from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run
from tda_bias.scores.beta import log_odds
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.types import HeadId

# Okabe and Ito's, without yellow and black: told apart by colour-blind readers, on white and black.
COLOURS = [BLUE, ORANGE, GREEN, PINK, "#56B4E9", "#E69F00"]
_RANDOM = "random"
POINT = {"type": "point", "filled": True, "size": 45, "color": "var(--first)", "opacity": 0.7}


def number(name: str, title: str, **options: Any) -> dict[str, Any]:
    """An axis of numbers."""
    return {"field": name, "type": "quantitative", "title": title, **options}


def names(name: str, title: str = "", **options: Any) -> dict[str, Any]:
    """An axis of names, in the order of the rows."""
    return {"field": name, "type": "nominal", "title": title or None, "sort": None, **options}


def hover(*fields: str) -> list[dict[str, Any]]:
    """Fields of the box beside the pointer."""
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
    scores = run.load(StereoSetScores.load)
    if not scores.has_twins:
        return []
    items = scores.items
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
    """Effects of removing the top heads, the bottom ones, and random ones."""
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
    table = run.plain_table("correlations.csv")
    rows = table.assign(
        pair=table["quantity"].astype(str) + " · " + table["summary"].astype(str),
        rho_low=table["low"],
        rho_high=table["high"],
        rho=table["spearman"],
    )
    title = "Heads against behaviour, over targets"
    return [interval_chart(title, rows, "rho", label="pair", axis="Spearman's rho")]


def prune_curve(run: Run) -> list[Chart]:
    """Remaining preference while more and more heads are removed."""
    quantity = run.load(PruneCurve.load).record.quantity
    said = "beta" if quantity == "beta" else "mean log-odds"
    left = f"{said} left"
    rows = run.plain_table("curve.csv").assign(
        line=lambda t: t["ranking"].astype(str) + " " + t["draw"].astype(str)
    )
    rows = rows.rename(columns={f"{quantity}_test": left})
    rows = rows[["ranking", "line", "k", "log_ppl", left]].dropna()
    spec = {
        "description": f"{left} against log-perplexity while heads are removed",
        "height": 320,
        "encoding": {
            "x": number("log_ppl", "log-perplexity of neutral text", scale={"zero": False}),
            "y": number(left, f"{left} on targets that chose nothing, nats"),
            "detail": {"field": "line"},
            "order": {"field": "k", "type": "quantitative"},
            "tooltip": hover("ranking", "k", "log_ppl", left),
        },
        "layer": _beside_random(rows, "ranking"),
    }
    note = (
        "Grey lines are random orders. A ranking is worth something if it is nearer to 0 than they."
    )
    return [Chart("What removing more and more heads leaves", spec, rows, note)]


def compare(run: Run) -> list[Chart]:
    """Changes between two models, or between the maps of two runs."""
    if getattr(run.record, "compares", "models") == "heads":
        return _maps(run.load(HeadsComparison.load))
    table = run.plain_table("compare.csv").rename(
        columns={"low": "change_low", "high": "change_high"}
    )
    charts: list[Chart] = []
    for unit, rows in table.groupby("unit", sort=False):
        title = f"Changes from before to after, {unit}"
        note = "" if charts else "A line is the interval; the table below says before and after."
        chart = interval_chart(
            title, rows, "change", label="outcome", axis=f"change, {unit}", note=note
        )
        charts += [chart] if len(chart.rows) else []
    return charts


def _maps(comparison: HeadsComparison) -> list[Chart]:
    """Every head before and after where heads are the same ones, else the layers' means."""
    by = comparison.record.by
    if len(comparison.heads):
        rows = comparison.heads.assign(
            head=[
                str(HeadId(int(layer), int(head)))
                for layer, head in zip(
                    comparison.heads["layer"], comparison.heads["head"], strict=True
                )
            ]
        )[["head", "before", "after", "p"]].dropna(subset=["before", "after"])
        spec = {
            "description": "Every head's value before and after",
            "height": 340,
            "mark": POINT,
            "encoding": {
                "x": number("before", f"{by} before"),
                "y": number("after", f"{by} after"),
                "tooltip": hover("head", "before", "after", "p"),
            },
        }
        note = "p: whether a head moved by more than the noise of both maps, by itself."
        return [Chart("Heads before and after", spec, rows, note)]
    spec = {
        "description": "Mean of each layer by its relative depth",
        "height": 320,
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": number("depth", "relative depth"),
            "y": number("value", f"mean {by} over heads"),
            "color": names("model", "run", scale={"range": COLOURS}),
            "strokeDash": names("model", "run"),
            "tooltip": hover("model", "layer", "depth", "value"),
        },
    }
    return [Chart("Layers before and after", spec, comparison.layers)]


def debias(run: Run) -> list[Chart]:
    """The frontier of trainings: bias left on unseen targets against perplexity, check by check."""
    rows = run.plain_table("frontier.csv").assign(
        line=lambda t: t["condition"].astype(str) + " " + t["draw"].astype(str)
    )
    spec = {
        "description": "Bias left against perplexity, condition by condition",
        "height": 320,
        "encoding": {
            "x": number("perplexity", "change of perplexity, per cent", scale={"zero": False}),
            "y": number("beta", "beta per token, left on targets never trained on"),
            "detail": {"field": "line"},
            "order": {"field": "check", "type": "quantitative"},
            "tooltip": hover("condition", "draw", "check", "perplexity", "beta"),
        },
        "layer": _beside_random(rows, "condition"),
    }
    note = "Grey lines are random heads: what choosing heads has to beat."
    return [Chart("The frontier: bias left, and its cost", spec, rows, note)]


def _beside_random(rows: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    """Lines in colours and dashes by a column, in front of grey ones that are random."""
    chosen_ones = [name for name in rows[column].unique() if name != _RANDOM]
    key = {"orient": "top", "columns": 3, "symbolType": "stroke"}
    told_apart = {"domain": chosen_ones}
    dashes = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2]]
    return [
        {
            "transform": [{"filter": f"datum.{column} === '{_RANDOM}'"}],
            "mark": {"type": "line", "point": {"color": "#999999", "size": 14}, "color": "#999999",
                     "strokeWidth": 1, "opacity": 0.6},
        },
        {
            "transform": [{"filter": f"datum.{column} !== '{_RANDOM}'"}],
            "mark": {"type": "line", "point": True, "strokeWidth": 2},
            "encoding": {
                "color": names(column, column, legend=key, scale={**told_apart, "range": COLOURS}),
                "strokeDash": names(
                    column,
                    column,
                    legend=key,
                    scale={**told_apart, "range": [dashes[n % 4] for n in range(len(chosen_ones))]},
                ),
            },
        },
    ]  # fmt: skip
