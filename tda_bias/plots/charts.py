"""Runs of behaviour as charts of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.debias.result import DebiasRun, quantity_of
from tda_bias.runs.figures import COLOURS, RANDOM, look
from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run
from tda_bias.scores.stereoset import log_odds
from tda_bias.scores.stereoset_scores import StereoSetScores

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


def interval_chart(
    title: str,
    rows: pd.DataFrame,
    value: str,
    *,
    label: str,
    axis: str,
    note: str = "",
    shape: str = "",
    also: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
) -> Chart:
    """Values with intervals (columns ``low`` and ``high``), a line each.

    ``value``, ``label`` and ``shape`` are columns: of the numbers, of the lines' names, and of what
    gives points their shape; ``also`` are further ones of the box beside the pointer. ``limits``
    are the ends of the axis, where the quantity has some.
    """
    ends = {} if limits is None else {"scale": {"domain": list(limits)}}
    also = [*also, shape] if shape else also
    tip = hover("name", "value", "low", "high", *also)
    point: dict[str, Any] = {"x": number("value", axis, **ends), "tooltip": tip}
    if shape:
        point["shape"] = names(shape, shape, legend={"orient": "top"})
    # Without any interval there is nothing to read aloud, which an empty group would claim.
    rule = {"type": "rule", "color": "var(--first)", "aria": False}
    interval = {"x": number("low", axis, **ends), "x2": {"field": "high"}}
    spec = {
        "description": title,
        "height": {"step": 15},
        "encoding": {"y": names("name")},
        "layer": [{"mark": rule, "encoding": interval}, {"mark": POINT, "encoding": point}],
    }
    table = rows.assign(name=rows[label].astype(str), value=rows[value])
    table = table[["name", "value", "low", "high", *also]].dropna(subset=["value"])
    return Chart(title, spec, table.reset_index(drop=True), note)


# -- by command ------------------------------------------------------------------------------------


def stereoset(run: Run, texts: Mapping[str, str]) -> list[Chart]:
    """Every item's preference against that of its twin.

    ``texts`` are those of the items by their names, as far as another run knows them.
    """
    scores = run.load(StereoSetScores.load)
    if not scores.has_twins:
        return []
    items = scores.items
    text = items["id"].map(lambda name: texts.get(str(name), "")) if "id" in items else ""
    rows = pd.DataFrame(
        {
            "category": items["category"],
            "target": items["group"],
            "item": log_odds(items, "sum"),
            "twin": items["log_prob_s_twin"] - items["log_prob_a_twin"],
            "text": text,
        }
    ).dropna(subset=["item", "twin"])
    same = {"type": "rule", "color": "var(--soft)", "strokeDash": [4, 3], "aria": False}
    values = rows[["item", "twin"]].to_numpy(float)
    least, most = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    places = {"x": least, "y": least, "x2": most, "y2": most}
    ends = {name: {"datum": place} for name, place in places.items()}
    said = sorted(rows["target"].unique())
    select = {"input": "select", "options": ["", *said], "labels": ["all", *said]}
    choice = {"name": "chosen_target", "value": "", "bind": {**select, "name": "Target "}}
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
        "params": [choice],
        "transform": [{"filter": "chosen_target === '' || datum.target === chosen_target"}],
        "layer": [{"mark": same, "encoding": ends}, points],
    }
    note = (
        "Each point is an item; its twin says the same of another target. Points on the dashed "
        "line are preferred for their wording; what lies above it is about the target."
    )
    return [Chart("Items against their twins", spec, rows, note)]


def ablate(run: Run) -> list[Chart]:
    """Effects of ablating the top heads, the bottom ones, and random ones."""
    effects = run.load(AblationStudy.load).effects
    rows = effects[["kind", "heads", "d_log_odds"]]
    spec = {
        "description": "Change of the log-odds by which heads were ablated",
        "height": {"step": 26},
        "mark": {**POINT, "opacity": 0.6},
        "encoding": {
            "y": names("kind"),
            "x": number("d_log_odds", "change of the mean log-odds of the stereotype, nats"),
            "tooltip": hover("kind", "heads", "d_log_odds"),
        },
    }
    note = "A chosen set that lies among the random ones does no more than any heads would."
    return [Chart("Effect of ablation", spec, rows, note)]


def crossref(run: Run) -> list[Chart]:
    """Correlations over targets of what heads do with what the model says."""
    table = run.table("correlations.csv")
    rows = table.assign(pair=table["quantity"].astype(str) + " · " + table["summary"].astype(str))
    title = "Heads against behaviour, over targets"
    axis = "Spearman's rho"
    return [interval_chart(title, rows, "spearman", label="pair", axis=axis, limits=(-1, 1))]


def prune_curve(run: Run) -> list[Chart]:
    """Remaining preference while more and more heads are ablated."""
    quantity = run.load(PruneCurve.load).record.quantity
    left = f"{'beta' if quantity == 'beta' else 'mean log-odds'} remaining"
    rows = run.table("curve.csv").rename(columns={f"{quantity}_test": left})
    return _beside_random(
        "Ablation curve",
        rows[["ranking", "draw", "k", "log_ppl", left]].dropna(),
        "ranking",
        about=f"{left} against log-perplexity while heads are ablated",
        x=number("log_ppl", "log-perplexity of neutral text", scale={"zero": False}),
        y=number(left, f"{left} on test targets, nats"),
        order="k",
        note="Grey lines are random orders. A ranking helps if its line is closer to 0 than they "
        "are.",
    )


def debias(run: Run) -> list[Chart]:
    """The frontier of trainings: bias left on unseen targets against perplexity, check by check."""
    quantity = quantity_of(run.load(DebiasRun.load).record.twins)
    return _beside_random(
        "The frontier: bias left, and its cost",
        run.table("frontier.csv"),
        "condition",
        about="Bias left against perplexity, condition by condition",
        x=number("perplexity", "change of perplexity, per cent", scale={"zero": False}),
        y=number("beta", f"{quantity} per token, left on targets never trained on"),
        order="check",
        note="Grey lines are random heads: what choosing heads has to beat.",
    )


def _beside_random(
    title: str,
    rows: pd.DataFrame,
    column: str,
    *,
    about: str,
    x: dict[str, Any],
    y: dict[str, Any],
    order: str,
    note: str,
) -> list[Chart]:
    """Lines in colours and dashes by a column, in front of grey ones that are random."""
    rows = rows.assign(line=rows[column].astype(str) + " " + rows["draw"].astype(str))
    chosen_ones = [name for name in rows[column].unique() if name != RANDOM]
    key = {"orient": "top", "columns": 3, "symbolType": "stroke"}
    # Black lines would vanish in the dark.
    colours = [
        look(str(name), n)[0].replace("black", "#999999") for n, name in enumerate(chosen_ones)
    ]
    dashes = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2]]
    ranges = {
        "color": colours,
        "strokeDash": [dashes[n % 4] for n in range(len(chosen_ones))],
    }
    grey = {"type": "line", "color": "#999999", "strokeWidth": 1, "opacity": 0.6}
    spec = {
        "description": about,
        "height": 320,
        "encoding": {
            "x": x,
            "y": y,
            "detail": {"field": "line"},
            "order": {"field": order, "type": "quantitative"},
            "tooltip": hover(column, "draw", order, x["field"], y["field"]),
        },
        "layer": [
            {
                "transform": [{"filter": f"datum.{column} === '{RANDOM}'"}],
                "mark": {**grey, "point": {"color": "#999999", "size": 14}},
            },
            {
                "transform": [{"filter": f"datum.{column} !== '{RANDOM}'"}],
                "mark": {"type": "line", "point": True, "strokeWidth": 2},
                "encoding": {
                    name: names(
                        column,
                        column,
                        legend=key,
                        scale={"domain": chosen_ones, "range": values},
                    )
                    for name, values in ranges.items()
                },
            },
        ],
    }
    return [Chart(title, spec, rows, note)]


def compare(run: Run) -> list[Chart]:
    """Changes between two models, or between the maps of two runs."""
    compares = getattr(run.record, "compares", "models")
    if compares == "beta":  # a table of correlations says it all
        return []
    if compares == "heads":
        return _maps(run.load(HeadsComparison.load))
    table = run.table("compare.csv")
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
        heads = comparison.heads
        named = [
            f"L{layer}H{head}" for layer, head in zip(heads["layer"], heads["head"], strict=True)
        ]
        rows = heads.assign(head=named)[["head", "before", "after", "p"]]
        rows = rows.dropna(subset=["before", "after"])
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
            "color": names("model", "run", scale={"range": list(COLOURS)}),
            "strokeDash": names("model", "run"),
            "tooltip": hover("model", "layer", "depth", "value"),
        },
    }
    return [Chart("Layers before and after", spec, comparison.layers)]


# Lines of the charts below: more cannot be read.
_MOST = 40


def pvf(run: Run) -> list[Chart]:
    """The words with the largest risk, with their intervals over templates."""
    if not run.has("by_x.csv"):
        return []
    table = run.table("by_x.csv", {"x": str})  # a word may look like a number
    renamed = {"toward": "leans to", "r_low": "low", "r_high": "high"}
    rows = table.nlargest(_MOST, "r").rename(columns=renamed)
    return [
        interval_chart(
            f"The {len(rows)} words with the largest risk",
            rows,
            "r",
            label="x",
            axis="risk r, with its interval over templates",
            note="0: no leaning in any template; the table holds all words.",
            shape="leans to",
            also=("r_p", "r_v"),
        )
    ]


def unqover(run: Run) -> list[Chart]:
    """The groups and attributes with the largest bias, with their intervals.

    Attributes that say bad things of people are shown by kind, without intervals.
    """
    if not run.has("groups.csv"):
        return []
    table, column, note = run.table("groups.csv"), "attribute", ""
    if table["sensitive"].any():
        column, note = "kind", "Means over attributes of a kind, which have no intervals."
        table = table.groupby(["factor", "group", "kind"], sort=False)["gamma"].mean().reset_index()
        table = table.assign(low=np.nan, high=np.nan)
    else:
        table = table.dropna(subset=["low"])
    largest = table["gamma"].abs().nlargest(_MOST).index
    rows = table.loc[largest].sort_values("gamma", ascending=False)
    rows["name"] = rows["group"].astype(str) + " · " + rows[column].astype(str)
    return [
        interval_chart(
            f"The {len(rows)} largest biases of groups",
            rows,
            "gamma",
            label="name",
            axis="gamma: above 0, the group is picked more often than others",
            note=note,
        )
    ]
