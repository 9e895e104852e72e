"""What ``tdabias heads`` prints: of every category the finding and the ranked heads."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from tda_bias.heads.brief import heads_brief
from tda_bias.heads.controls import placebo_contrasts, untrained_control
from tda_bias.heads.finding import heads_finding, ranking_name, run_remarks
from tda_bias.heads.result import HeadBias
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec, groups_table, head_name
from tda_bias.show.text import Finding, data_option, p_text, report_of, short_name
from tda_bias.types import CATEGORIES, TESTS


def shown(result: HeadBias, folder: Path, *, top: int = 10) -> Output:
    """The ranked heads and the controls of every category."""
    parts: list[Finding | TableSpec | str] = []
    rows, values = [], {}
    for name in result.categories:
        ranked, found = result.top(top, category=name), finding(result, folder, name, top)
        parts += [found, ranked_table(result, name, top), *_own_groups(result, name)]
        rows.append(ranked.assign(category=name)[["category", *ranked.columns]])
        values[name] = {
            "finding": found,
            "controls": result.controls(name),
            "placebos": placebo_contrasts(result, folder, name),
            "heads": ranked,
            "survivors": result.survivors(category=name),
        }
    return Output(
        shown=[*parts, *run_remarks(result)],
        values={"model": result.record.model, "categories": values},
        rows=pd.concat(rows),
        folder=folder,
        files="heads.csv, groups.csv, heatmap.png, run.json, ...",
        pictures={"Map": "heatmap.png"},
    )


def finding(result: HeadBias, folder: Path, category: str, top: int = 10) -> Finding:
    """The finding of a category, with the commands that follow."""
    inside: dict[str, Any] = {
        "untrained": untrained_control(result, folder),
        "placebos": placebo_contrasts(result, folder, category),
    }
    brief = heads_brief(result, category, top=top, **inside)
    found = heads_finding(result, category, **inside).led_by(brief)
    commands = []
    if not result.record.settings.get("pairs"):
        of = f"--model {quote(result.record.model.name)} --category {quote(category)}"
        groups = set(result.groups.loc[result.groups["category"] == category, "group"])
        commands.append(f"tdabias stereoset {of}{data_option(result.record, among=groups)}")
    if len(result.survivors(category=category)):
        several = f" --category {quote(category)}" if len(result.categories) > 1 else ""
        commands.append(f"tdabias ablate {quote(str(folder))}{several}")
    return found.then(*commands, report_of(folder))


def _own_groups(result: HeadBias, category: str) -> list[TableSpec | str]:
    """The groups of a category that is not StereoSet's."""
    if category in CATEGORIES:
        return []
    end = "_twin" if result.controls(category)["twins"] is not None else ""
    of_category = result.table[result.table["category"] == category]
    tested = of_category.groupby("group")[f"p_max_location{end}"].min()
    title = f"Groups of {category} · location test{', triple minus twin' if end else ''}"
    columns = [
        Column("group", "{group}", left=True),
        Column("texts", "{n}"),
        Column("reliability", "{reliability_location:n2}"),
        Column("smallest p (family-wise)", lambda row: p_text(tested[row["group"]])),
    ]
    groups = result.groups[result.groups["category"] == category]
    return groups_table(title, groups, columns, "groups.csv")


def ranked_table(result: HeadBias, category: str, top: int) -> TableSpec:
    """The ranked heads of one category."""
    columns = [
        Column("head", head_name, left=True),
        Column("z" if result.rank_by in TESTS else "mean z", "{z:.2f}"),
        Column("p", "{p:p}"),
        Column("p (family-wise)", "{p_max:p}"),
        Column("q (FDR)", "{q:p}"),
        Column("unstable", lambda row: "yes" if row["unstable"] else ""),
    ]
    name = ranking_name(result, category)
    title = f"{short_name(result.record.model.name)} · {category} · heads ranked by {name}"
    if result.survivors(category=category).empty:
        title += " · no findings: none survives correction"
    return TableSpec(title, result.top(top, category=category), columns)
