"""What ``tdabias pvf`` prints: risks beside reference models, extremes, and the control lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from pvf.report import RiskReport


def print_reports(
    reports: dict[str, RiskReport], top: int, format: str, folders: dict[str, Path]
) -> None:
    """One table for all models, then the extremes and controls of each; or JSON."""
    from pvf.report import comparison

    table = comparison(reports)
    if format == "json":
        typer.echo(as_json(reports, table, folders))
        return
    console = Console(highlight=False)
    console.print(risk_table(table, next(iter(reports.values()))))
    for name, report in reports.items():
        console.print(extremes_table(report, top))
        for line in [*control_lines(report), f"Files: {folders[name]}/ (by_x.csv, run.json, ...)"]:
            console.print(line, soft_wrap=True)


def risk_table(table: pd.DataFrame, report: RiskReport) -> Table:
    """R, R_p and R_v of every model, with intervals, above the reference models."""
    config, n = report.config, report.controls
    title = (
        f"{' / '.join(n['classes'])} · {n['x']} words x, {n['templates']} templates · "
        f"{config.confidence:.0%} intervals over both"
    )
    shown = Table("model", title=title, title_justify="left")
    for heading in ("R", "R_p prejudice", "R_v volatility"):
        shown.add_column(heading, justify="right")
    for row in table.to_dict("records"):
        cells = []
        for quantity in ("R", "R_p", "R_v"):
            low, high = (row.get(f"{quantity}_{end}_both") for end in ("low", "high"))
            defined = low is not None and low == low
            interval = f"\n{low:.3f} to {high:.3f}" if defined else ""
            cells.append(f"{row[quantity]:.4f}{interval}")
        shown.add_row(str(row["name"]), *cells, style=None if row["row"] == "measured" else "dim")
    return shown


def extremes_table(report: RiskReport, top: int) -> Table:
    """The x that lean most to each side (two classes), or those with the largest risk."""
    classes = report.preferences.classes
    columns = ["x", "r", "r_p", "r_v", *(f"s_{label}" for label in classes), "union_mass"]
    if len(classes) == 2:
        ordered = report.by_x.sort_values(f"s_{classes[0]}", ascending=False, kind="stable")
        middle = len(ordered) > 2 * top
        import pandas as pd

        chosen = pd.concat([ordered.head(top), ordered.tail(top)]) if middle else ordered
        title = f"{report.model} · words that lean most to {classes[0]} and to {classes[1]}"
    else:
        columns = ["x", "toward", "r", "r_p", "r_v", "s", "union_mass"]
        ordered = report.by_x.assign(s=report.risk.mean_s.max(1))
        chosen = ordered.sort_values("r", ascending=False, kind="stable").head(top)
        title = f"{report.model} · words with the largest risk"
    return as_table(chosen[columns], title)


def as_table(table: pd.DataFrame, title: str) -> Table:
    """A data frame for the terminal, numbers to three digits."""
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(name, justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    return shown


def control_lines(report: RiskReport) -> list[str]:
    """What the numbers must be held against."""
    n = report.controls
    null = report.summary.iloc[-1]
    lines = [
        f"Union mass (probability of any listed word): mean {n['union_mass_mean']:.3g}, median "
        f"{n['union_mass_median']:.3g}, 5 % to 95 % {n['union_mass_q05']:.2g} to "
        f"{n['union_mass_q95']:.2g}. Where it is small, preferences mean little.",
        f"Contexts: {n['templates']} templates weigh like {n['n_effective_contexts']:.1f}. So few "
        f"give even a model without prejudice, whose preferences are random in each template, "
        f"R_p = {null['R_p']:.3f}.",
    ]
    if n["words_shared_by_classes"] or n["words_not_read"]:
        shared, unread = n["words_shared_by_classes"], n["words_not_read"]
        lines.append(
            f"Words not read: {len(shared)} in two classes, {len(unread)} that these settings "
            "exclude for this tokenizer; run.json names them."
        )
    if n["words_that_begin_others"]:
        lines.append(
            f"Words that are, in tokens, the beginning of another: "
            f"{len(n['words_that_begin_others'])}; what continues to the longer one is not counted "
            "for the shorter."
        )
    if n["prompts_without_mass"] or n["prompts_left_out"]:
        lines.append(
            f"{n['prompts_without_mass']} prompts give no listed word any probability (uniform "
            f"there); {n['prompts_left_out']} are left out by --min-mass."
        )
    if report.config.definition == "one_sided":
        lines.append("One-sided, as the published code: half the paper's volatility.")
    return lines


def as_json(reports: dict[str, RiskReport], table: pd.DataFrame, folders: dict[str, Path]) -> str:
    """The same for other programs."""
    from tda_bias.records.files import plain

    found = {
        "summary": table.to_dict("records"),
        "models": {
            name: {
                "folder": str(folders[name]),
                "model": report.preferences.record["model"],
                "controls": report.controls,
                "x": report.by_x.to_dict("records"),
            }
            for name, report in reports.items()
        },
    }
    return json.dumps(plain(found), indent=2, allow_nan=False)
