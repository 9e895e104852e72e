"""What cross-references come to: whether what heads do goes with what the model says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.finding import largest_rho, surviving, surviving_heads
from tda_bias.crossref.head_crossref import HeadCrossReference, primary
from tda_bias.crossref.head_finding import doubts, ranking_said
from tda_bias.crossref.item_crossref import ItemCrossReference, Way
from tda_bias.crossref.rank_tests import SUMMARIES
from tda_bias.show.names import named
from tda_bias.show.table import with_head_names
from tda_bias.show.text import number_text, p_text
from tda_bias.show.verdict import Outcome, four_of_five
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL, least_pvalue

# -- over targets ----------------------------------------------------------------------------------


def target_outcomes(result: CrossReference) -> list[Outcome]:
    """The correlation with the smallest p of those of heads with what is said of targets."""
    table, record = result.correlations, result.record
    of_heads = table[table["summary"].isin(SUMMARIES)]
    kept, tested = surviving(of_heads)
    defined = of_heads[of_heads["p"].notna()]
    n = len(result.targets)
    category = _only(result.targets["category"])
    about = Outcome(
        question="tests",
        name=f"Heads and what is said{f': {category}' if category else ''}",
        about="Spearman over targets of what heads do with what the model says of a target: that "
        "of several with the smallest p, which is corrected for all of them (FDR)",
        clusters=n,
        impossible=least_pvalue(record.n_resamples) >= LEVEL,
        category=category,
        power=four_of_five(f"rho of {power(n)['power_80']:.2f} of one correlation"),
        items=result.targets,
    )
    if defined.empty:
        return [about]
    first = defined.sort_values("p", kind="stable").iloc[0]
    return [
        replace(
            about,
            value=first["spearman"],
            low=first["low"],
            high=first["high"],
            unit="rho",
            p=float(defined["q"].min()),
            lines=[
                f"{named(str(first['quantity']))} with {named(str(first['summary']))}",
                f"{kept} of {tested} correlations survive",
            ],
            limits=["the interval is not corrected"],
        )
    ]


def _only(values: pd.Series[Any]) -> str:
    """The only one of several values; empty where they differ."""
    different = values.astype(str).unique()
    return str(different[0]) if len(different) == 1 else ""


# -- over items ------------------------------------------------------------------------------------


def item_outcomes(result: ItemCrossReference) -> list[Outcome]:
    """Of every category how many heads follow its items, with twins where there are any."""
    return [
        _followed(result, str(category), rows)
        for category, rows in result.summary.groupby("category", sort=False)
    ]


def _followed(result: ItemCrossReference, category: str, summary: pd.DataFrame) -> Outcome:
    way: Way = "twins" if "twins" in set(summary["way"]) else "raw"
    own = summary[summary["way"] == way]
    heads = result.heads
    tests = heads[(heads["category"] == category) & (heads["way"] == way)]
    quantity = named("beta" if way == "twins" else "log_odds")
    lines = [f"largest rho {number_text(largest_rho(own))}"]
    if way == "twins":
        raw = surviving_heads(result, category, "raw")
        lines.append(f"without twins {raw}, perhaps for wording")
    needed = float(own["needed"].max())
    return Outcome(
        question="tests",
        name=f"Heads that follow the {quantity}: {category}",
        about="heads in which the difference between an item's two texts grows, or falls, with "
        f"the {quantity}, after correction for all heads",
        p=float(tests["p_max"].min()),
        clusters=int(own["n"].min()),
        cluster="item",
        found=surviving_heads(result, category, way),
        of=int(own["heads"].max()),
        impossible=least_pvalue(result.record.n_resamples) >= LEVEL,
        category=category,
        lines=lines,
        limits=[] if way == "twins" else ["without twins: wording is in it"],
        power=f"p < .05 from a rho of {needed:.2f}" if math.isfinite(needed) else "",
        items=with_head_names(tests[["layer", "head", "measure", "dim", "rho", "p", "p_max"]]),
    )


# -- over heads ------------------------------------------------------------------------------------


def head_outcomes(result: HeadCrossReference) -> list[Outcome]:
    """Of every risk whether it falls when the heads are ablated that the run ranks first."""
    sizes = primary(result).set_index("risk").to_dict("index")
    every = result.agreement[result.agreement["chosen"] == "all"].set_index("risk")
    return [
        _carried(result, row, sizes[row["risk"]], every)
        for row in primary(result, "fall").to_dict("records")
    ]


def power_beyond_layers(power_80: float) -> str:
    """The distance from what layers alone give that four samples of five find, in words.

    Empty where it is not known.
    """
    if not math.isfinite(power_80):
        return ""
    return four_of_five(f"rho {power_80:.2f} away from what layers give")


def _carried(
    result: HeadCrossReference,
    fall: Mapping[Any, Any],
    size: Mapping[Any, Any],
    agreement: pd.DataFrame,
) -> Outcome:
    record, risk = result.record, str(fall["risk"])
    limits = [] if record.survivors else ["by its ranking no head of the run survives"]
    if doubts(agreement, (risk,)):
        limits.append("estimates say little of ablation")
    columns = [f"z_{record.rank_by}", f"effect_{risk}", f"exact_{risk}"]
    return Outcome(
        question="tests",
        name=f"Ranks of heads and {named(risk)}: {record.category}",
        about=f"Spearman over heads of the ranking ({ranking_said(f'z_{record.rank_by}')}) with "
        f"how far {named(risk)} falls on ablation, above or below what layers alone give",
        value=fall["spearman"],
        unit="rho",
        neutral=fall["by_layers"],
        p=fall["p_within_layers"],
        p_corrected=fall["q"],
        clusters=int(fall["heads"]),
        cluster="head",
        impossible=least_pvalue(record.n_resamples) >= LEVEL,
        category=record.category,
        lines=[
            f"layers alone give {number_text(fall['by_layers'])}",
            f"with the size of effects {number_text(size['spearman'])} (q {p_text(size['q'])})",
        ],
        limits=limits,
        power=power_beyond_layers(fall["power_80"]),
        items=with_head_names(result.heads[["layer", "head", *columns]]),
    )
