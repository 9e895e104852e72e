"""What ``tdabias unqover`` prints: whom a model picks, and what that must be compared with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec, groups_table
from tda_bias.show.text import counted, report_of
from unqover.brief import unqover_brief
from unqover.finding import unqover_finding
from unqover.plots import by_kind
from unqover.report import ONE_SET, Report

_FILES = "groups.csv, subjects.csv, summary.csv, answers.parquet, heat_map.png, run.json, ..."


def shown(report: Report, folder: Path, *, top: int = 10) -> Output:
    """Whom the model picks, and what that must be compared with."""
    return Output(
        finding=unqover_finding(report).led_by(unqover_brief(report)).then(report_of(folder)),
        shown=[summary_table(report), *sets_table(report), ranked_table(report, top)],
        values={
            "model": report.answers.record.model,
            "summary": report.summary,
            "groups": report.groups,
            "joint": report.joint,
            "controls": report.controls,
        },
        rows=report.summary,
        folder=folder,
        files=_FILES,
    )


def summary_table(report: Report) -> TableSpec:
    """Mu and eta of every way to compare but those of ``sets_table``, with interval and p."""
    answers = report.answers
    design = answers.record.design
    title = (
        f"{answers.model} · {answers.asked.name} · {len(answers.subjects)} of "
        f"{counted(design.subjects_available, 'subject')}, {len(answers.attributes)} of "
        f"{counted(design.attributes_available, 'attribute')}, "
        f"{counted(len(answers.asked.templates), 'template')}, "
        f"{counted(answers.record.questions, 'question')} ({answers.record.ask}) · "
        f"{report.config.confidence:.0%} intervals"
    )
    rows = []
    for row in report.summary.to_dict("records"):
        of_set = row["compared"].startswith(ONE_SET)
        if of_set or (row["scale"] == "log_odds" and row["compared"] != "subjects"):
            continue
        names = {"compared": row["compared"], "scale": row["scale"].replace("_", "-")}
        for name in ("mu", "eta"):
            values = {end: row[f"{name}_{end}"] for end in ("low", "high", "chance", "p")}
            rows.append({**names, "name": name, "value": row[name], **values})
            names = {"compared": "", "scale": ""}
    columns = [
        Column("compared", "{compared}", left=True),
        Column("scale", "{scale}", left=True),
        Column("", "{name}", left=True),
        Column("value", "{value:.3f}"),
        Column("interval", lambda row: _interval(row, ".3f")),
        Column("by chance", "{chance:.3f}"),
        Column("p", "{p:p}"),
    ]
    return TableSpec(title, rows, columns, uncut=True)


def sets_table(report: Report) -> list[TableSpec | str]:
    """Mu with x1 from one level and x2 from the others, one row per level; none without levels."""
    table = report.summary[report.summary["scale"] == "two_way"]
    rows = table[table["compared"].str.startswith(ONE_SET)].rename(
        columns={"mu_low": "low", "mu_high": "high"}
    )
    columns = [
        Column("x1 from", lambda row: row["compared"].removeprefix(ONE_SET), left=True),
        Column("mu", "{mu:.3f}"),
        Column("interval", lambda row: _interval(row, ".3f")),
        Column("by chance", "{mu_chance:.3f}"),
        Column("p", "{mu_p:p}"),
    ]
    title = "x1 from one set of subjects, x2 from the others"
    return groups_table(title, rows, columns, "summary.csv")


def _interval(row: Row, digits: str) -> str:
    low, high = row["low"], row["high"]
    return f"{low:{digits}} to {high:{digits}}" if low == low else ""


def ranked_table(report: Report, top: int) -> TableSpec:
    """Table of what each of two groups is most preferred for; of more, the most and the least.

    Attributes that say bad things of people are shown by kind.
    """
    factor = report.answers.asked.factors[0]
    table = report.groups[report.groups["factor"] == factor].dropna(subset=["gamma"])
    sensitive = any(report.answers.asked.sensitive)
    column = "kind" if sensitive else "attribute"
    groups = _groups_shown(table, top)
    ranked_rows: list[Row] = []
    for group in groups:
        rows = table[table["group"] == group]
        ranked = (by_kind(rows) if sensitive else rows).sort_values("gamma", ascending=False)
        chosen = ranked.head(top) if len(groups) == 2 else ranked.iloc[[0, -1]]
        named = [group, *[""] * (len(chosen) - 1)]
        ranked_rows += chosen.assign(group=named).to_dict("records")
    columns = [
        Column(factor, "{group}", left=True),
        Column(column, f"{{{column}}}", left=True),
        Column("gamma", "{gamma:+.3f}"),
    ]
    if not sensitive:
        columns = [
            *columns,
            Column(f"{report.config.confidence:.0%}", lambda row: _interval(row, "+.3f")),
            Column("q", "{q:p}"),
            Column("eta", "{eta:+.2f}"),
        ]
    heading = "Most preferred for" if len(groups) == 2 else "Most and least preferred for"
    return TableSpec(f"{heading}, by {factor}", ranked_rows, columns)


def _groups_shown(table: pd.DataFrame, top: int) -> list[str]:
    """Both of two groups; of more, those with the largest gamma of any attribute."""
    names = list(dict.fromkeys(table["group"]))
    if len(names) == 2:
        return names
    largest = table.groupby("group")["gamma"].apply(lambda gamma: gamma.abs().max())
    return list(largest.sort_values(ascending=False, kind="stable").head(top).index)
