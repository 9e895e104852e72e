"""What ``tdabias pvf`` prints: the risks of models, and the words that lean most."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import pandas as pd

from pvf.brief import risk_brief
from pvf.finding import risk_finding
from pvf.outcomes import pvf_outcomes
from pvf.report import RiskReport, comparison
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec
from tda_bias.show.text import Finding, counted, report_of, short_names

_FILES = "by_x.csv, run.json, ..."


def shown(report: RiskReport, folder: Path, *, top: int = 10) -> Output:
    """The output of one run."""
    return risks_shown({report.model: report}, {report.model: folder}, top=top)


def risks_shown(reports: dict[str, RiskReport], folders: dict[str, Path], *, top: int) -> Output:
    """One table for all models, then the extremes and controls of each."""
    reports = {name: report.printable() for name, report in reports.items()}
    table = comparison(reports)
    found = {
        name: risk_finding(report)
        .led_by(risk_brief(report))
        .then(f"tdabias pvf plot {quote(str(folders[name]))}", report_of(folders[name]))
        for name, report in reports.items()
    }
    parts: list[Finding | TableSpec | str] = [
        *found.values(),
        risk_table(table, next(iter(reports.values()))),
    ]
    for name, report in reports.items():
        parts.append(extremes_table(report, top))
        if len(reports) > 1:
            parts.append(f"Files: {folders[name]}/ ({_FILES})")
    models = {
        name: {
            "folder": folders[name],
            "finding": found[name],
            "model": report.preferences.record.model,
            "controls": report.controls,
            "x": report.by_x,
            "verdicts": [one.as_values() for one in pvf_outcomes(report)],
        }
        for name, report in reports.items()
    }
    alone = next(iter(folders.values())) if len(reports) == 1 else None
    return Output(
        shown=parts,
        values={"summary": table, "models": models},
        rows=table,
        folder=alone,
        files=_FILES if alone is not None else "",
    )


def risk_table(table: pd.DataFrame, report: RiskReport) -> TableSpec:
    """R, R_p and R_v of every model, with intervals, above the reference models."""
    config, n = report.config, report.controls
    title = (
        f"{report.preferences.classes_text(' / ')} · {report.words} x, "
        f"{counted(n['templates'], 'template')} · "
        f"{config.confidence:.0%} intervals over both"
    )
    if (measure := measure_text(report)) is not None:
        title += f" · {measure}"
    names = [str(name) for name in table["name"]]
    short = dict(zip(names, short_names(names), strict=True))
    columns = [
        Column("model", lambda row: short[row["name"]], left=True),
        *([Column("against", "{against}", left=True)] if report.reference is not None else []),
        Column("R", lambda row: _risk(row, "R")),
        Column("R_p prejudice", lambda row: _risk(row, "R_p")),
        Column("R_v volatility", lambda row: _risk(row, "R_v")),
    ]
    return TableSpec(title, table, columns, faint=lambda row: row["row"] == "reference")


def measure_text(report: RiskReport) -> str | None:
    """The criterion and scale of a risk; None for those of the papers' tables."""
    risk = report.risk
    if risk.reference is None and risk.criterion == "linf":
        return None
    return f"{risk.criterion} of s = {risk.scale}"


def _risk(row: Row, quantity: str) -> str:
    low, high = (row.get(f"{quantity}_{end}_both") for end in ("low", "high"))
    interval = f"\n{low:.3f} to {high:.3f}" if low is not None and low == low else ""
    return f"{row[quantity]:.4f}{interval}"


def extremes_table(report: RiskReport, top: int) -> TableSpec:
    """The x of weight that lean most to each side (two classes), or have the largest risk."""
    classes = report.preferences.classes
    columns = ["x", "r", "r_p", "r_v", *(f"s_{label}" for label in classes), "union_mass"]
    if report.reference is not None:
        columns += ["r_equality", *(f"reference_{label}" for label in classes)]
    if len(classes) == 2:
        ordered = report.of_weight.sort_values(f"s_{classes[0]}", ascending=False, kind="stable")
        middle = len(ordered) > 2 * top
        chosen = pd.concat([ordered.head(top), ordered.tail(top)]) if middle else ordered
        title = f"{report.model} · words that lean most to {classes[0]} and to {classes[1]}"
    else:
        equality = ["r_equality"] if report.reference is not None else []
        columns = ["x", "toward", "r", "r_p", "r_v", "s", "union_mass", *equality]
        s = report.of_weight[[f"s_{label}" for label in classes]].max(axis=1)
        ordered = report.of_weight.assign(s=s)
        chosen = ordered.sort_values("r", ascending=False, kind="stable").head(top)
        title = f"{report.model} · words with the largest risk"
    if (measure := measure_text(report)) is not None:
        title += f" · {measure}"
    return TableSpec.of(chosen[columns], title)
