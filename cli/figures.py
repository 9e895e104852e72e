"""``tdabias figures``: the papers' figures and tables from saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field
from rich.console import Console

from tda_bias.runs.text import counted
from tda_bias.types import InputError

from .options import Positional, command
from .output import Output
from .settings import CommandSettings, FilePath, Format, OutputSettings, Several

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tda_bias.runs.figures import Entry
    from tda_bias.runs.run import Run


class FiguresSettings(CommandSettings):
    """Settings of ``tdabias figures``."""

    runs: Annotated[tuple[FilePath, ...], Positional()] = Field(
        (),
        description="Folders that `tdabias heads`, `pvf`, `unqover`, `ablate` or `crossref` wrote. "
        "Those of `stereoset`, `compare` and `debias` have figures too. Without any, what is "
        "simulated is drawn.",
    )
    out: FilePath = Field(Path("figures"), description="folder for the files")
    format: str = Field(
        "svg,pdf,png",
        description="svg, pdf, png, or several: svg,pdf; and table, json or csv, which is printed",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this figure; may be given several times"
    )
    quiet: bool = Field(False, description="say nothing but errors")
    factors: FilePath | None = Field(
        None, description="CSV x,factor,...[,weight]: adds the PVF papers' regressions"
    )


@command(FiguresSettings)
def figures(settings: FiguresSettings) -> None:
    """Draw every figure and table that saved runs allow, ready for print."""
    formats, printed = _formats(settings.format)
    out = settings.out

    from tda_bias.runs.figures import drawings, write_print
    from tda_bias.runs.run import refuse_run_of_another_command, with_parts

    refuse_run_of_another_command(out, "figures")
    opened = with_parts(settings.runs)
    errors = Console(stderr=True, soft_wrap=True, quiet=settings.quiet)
    written: list[dict[str, Any]] = []
    lacking: list[str] = []
    with errors.status("drawing"):
        for drawn in drawings(opened, catalogue(), only=settings.only, left_out=lacking.append):
            files = write_print(
                out,
                drawn.name,
                drawn.figure,
                formats=formats,
                title=drawn.title,
                run_id=drawn.run_id,
            )
            written.append(_row(drawn.name, drawn.title, drawn.run_id, files))
        if settings.factors is not None:
            written += _regressions(opened, settings.factors, out, formats)
    tables = 0 if settings.only else _tables(opened, out, left_out=lacking.append)
    for line in lacking:
        errors.print(f"Not drawn: {line}", highlight=False, markup=False)
    output(written, tables, lacking, out, formats).print(
        OutputSettings(format=printed, quiet=settings.quiet)
    )


def output(
    written: Sequence[dict[str, Any]],
    tables: int,
    lacking: Sequence[str],
    out: Path,
    formats: Sequence[str],
) -> Output:
    """Output: the figures drawn, and those left out with the reason."""
    import pandas as pd

    figures = f"{counted(len(written), 'figure')} ({', '.join(formats)})"
    last = f"{figures}, {counted(tables, 'table')}. Files: {out}/"
    return Output(
        shown=[*(f"{row['figure']}: {row['title']}" for row in written), last],
        values={
            "folder": str(out),
            "figures": [{**row, "files": row["files"].split(" ")} for row in written],
            "tables": tables,
            "not_drawn": list(lacking),
        },
        rows=pd.DataFrame(written, columns=["figure", "title", "run", "files"]),
    )


def _row(name: str, title: str, run_id: str, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "figure": name,
        "title": title,
        "run": run_id,
        "files": " ".join(path.name for path in files),
    }


def catalogue() -> tuple[Entry, ...]:
    """Every figure there is, package by package."""
    from pvf.figures import FIGURES as PVF
    from tda_bias.plots.figures import FIGURES as HEADS
    from unqover.figures import FIGURES as UNQOVER

    return (*HEADS, *PVF, *UNQOVER)


def _formats(text: str) -> tuple[list[str], Format]:
    """The formats of pictures, and that of what is printed."""
    from tda_bias.runs.figures import FORMATS

    words = [part.strip() for part in text.split(",") if part.strip()]
    pictures = [word for word in words if word in FORMATS]
    printed = [word for word in get_args(Format) if word in words]
    if set(words) - {*FORMATS, *printed} or len(printed) > 1 or not words:
        raise InputError(
            "`format` must be svg, pdf, png or several of them with commas, and at most one of "
            f"{', '.join(get_args(Format))}; got {text!r}"
        )
    return pictures or list(FORMATS), printed[0] if printed else "table"


def _tables(runs: Sequence[Run], out: Path, *, left_out: Callable[[str], None]) -> int:
    """Tables 1-4 of the head paper, and those of the PVF papers, of every run.

    Args:
        runs: The runs.
        out: Folder of the tables.
        left_out: Called with a line about each run that cannot stand beside a published table.

    Returns:
        Their number.
    """
    return _head_tables(runs, out) + _risk_tables(runs, out, left_out)


def _head_tables(runs: Sequence[Run], out: Path) -> int:
    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.published import (
        TABLE_NUMBER,
        beside_published,
        extreme_groups,
        unlike_the_paper,
    )
    from tda_bias.runs.tables import write_table

    written = 0
    for run in (run for run in runs if run.command == "heads"):
        result = run.load(HeadBias.load)
        for category in (name for name in result.categories if name in TABLE_NUMBER):
            name = f"table{TABLE_NUMBER[category]}_{category}"
            caption = f"{category}: metric T over heads of {run.model}, run {run.id}"
            write_table(out, name, extreme_groups(result, category), caption)
            table = beside_published(result, category)
            beside = f"{caption}, beside the paper's GPT-2"
            if reasons := unlike_the_paper(result):
                beside += f". Unlike the paper: {'; '.join(reasons)}"
            write_table(out, f"{name}_beside_paper", table, beside)
            written += 2
    return written


def _risk_tables(runs: Sequence[Run], out: Path, left_out: Callable[[str], None]) -> int:
    from pvf.published import published, risk_table, unlike_the_papers
    from pvf.record import PreferencesRecord
    from pvf.report import load_report
    from tda_bias.runs.tables import write_table

    pvf = [run for run in runs if run.command == "pvf"]
    written = 0
    for name, entry in (published()["risk"]["tables"] if pvf else {}).items():
        file = "risk_" + name.replace(",", "").replace(" ", "_")
        beside = {}
        for run in pvf:
            if run.record_as(PreferencesRecord).words.y.name != name:
                continue
            report = run.load(load_report)
            if reasons := unlike_the_papers(report, name):
                left_out(f"{run.folder} in {file}: {'; '.join(reasons)}")
            else:
                beside[run.model] = report
        caption = f"Risk, {name}: {entry['source']}" + ("; and this tool" if beside else "")
        write_table(out, file, risk_table(beside, name), caption)
        written += 1
    return written


def _regressions(
    runs: Sequence[Run], factors: Path, out: Path, formats: Sequence[str]
) -> list[dict[str, Any]]:
    from pvf.plots import plot_regression
    from pvf.report import load_report
    from pvf.social import load_factors
    from tda_bias.runs.figures import COLUMN, captioned, print_figure, print_style, write_print

    used = [run for run in runs if run.command == "pvf"]
    if not used:
        raise InputError("--factors needs a run of `tdabias pvf`; got none")
    table = load_factors(factors)
    written = []
    for run in used:
        for number, name in enumerate(table.table.columns, start=1):
            with print_style():
                figure = print_figure(COLUMN, 2.9)
                plot_regression(run.load(load_report).by_x, table, name, ax=figure.subplots())
                captioned(figure, f"{run.model}: risk r of each word on {name}.")
            file = f"pvf9_regression{number}" + (f"-{run.folder.name}" if len(used) > 1 else "")
            title = f"PVF papers, figures 9 and 12-15: regression on {name}"
            files = write_print(out, file, figure, formats=formats, title=title, run_id=run.id)
            written.append(_row(file, title, run.id, files))
    return written
