"""``tdabias figures``: the papers' figures and tables from saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

from tda_bias.types import InputError

from .options import Positional, command
from .settings import FilePath, Several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tda_bias.records.figures import Entry
    from tda_bias.records.runs import Run


class FiguresSettings(BaseModel):
    """Everything ``tdabias figures`` can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: Annotated[tuple[FilePath, ...], Positional()] = Field(
        description="Folders that `tdabias heads`, `pvf`, `unqover`, `ablate` or `crossref` wrote. "
        "Those of `stereoset` and `compare` have figures too."
    )
    out: FilePath = Field(Path("figures"), description="folder for the files")
    format: str = Field("svg,pdf,png", description="svg, pdf, png, or several: svg,pdf")
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
    formats, out = _formats(settings.format), settings.out

    from tda_bias.records.figures import drawings, write_print
    from tda_bias.records.runs import with_parts

    opened = with_parts(settings.runs)
    console = Console(highlight=False, quiet=settings.quiet)
    errors = Console(stderr=True, soft_wrap=True, quiet=settings.quiet)
    written = 0
    lacking: list[str] = []
    for one in drawings(opened, catalogue(), only=settings.only, left_out=lacking.append):
        write_print(out, one.name, one.figure, formats=formats, title=one.title, run_id=one.run_id)
        console.print(f"{one.name}: {one.title}", soft_wrap=True)
        written += 1
    if settings.factors is not None:
        written += _regressions(opened, settings.factors, out, formats)
    tables = 0 if settings.only else _tables(opened, out)
    for line in lacking:
        errors.print(f"Not drawn: {line}", highlight=False, markup=False)
    console.print(f"{written} figures ({', '.join(formats)}), {tables} tables. Files: {out}/")


def catalogue() -> tuple[Entry, ...]:
    """Every figure there is, package by package."""
    from pvf.figures import FIGURES as PVF
    from tda_bias.plots.figures import FIGURES as HEADS
    from unqover.figures import FIGURES as UNQOVER

    return (*HEADS, *PVF, *UNQOVER)


def _formats(text: str) -> list[str]:
    from tda_bias.records.figures import FORMATS

    found = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [part for part in found if part not in FORMATS]
    if wrong or not found:
        raise InputError(
            f"`format` must be svg, pdf, png or several of them with commas; got {text!r}"
        )
    return found


def _tables(runs: Sequence[Run], out: Path) -> int:
    """Tables 1-4 of the head paper, and those of the PVF papers, of every run."""
    from pvf.published import published, risk_table
    from pvf.record import PreferencesRecord
    from pvf.report import load_report
    from tda_bias.paper.published import TABLE_NUMBER, beside_published, extreme_groups
    from tda_bias.records.tables import write_table
    from tda_bias.results.head_bias import HeadBias

    written = 0
    for run in (run for run in runs if run.command == "heads"):
        result = run.load(HeadBias.load)
        for category in (name for name in result.categories if name in TABLE_NUMBER):
            name = f"table{TABLE_NUMBER[category]}_{category}"
            caption = f"{category}: metric T over heads of {run.model}, run {run.id}"
            write_table(out, name, extreme_groups(result, category), caption)
            table = beside_published(result, category)
            write_table(out, f"{name}_beside_paper", table, f"{caption}, beside the paper's GPT-2")
            written += 2
    pvf = [run for run in runs if run.command == "pvf"]
    for name, entry in (published()["risk"]["tables"] if pvf else {}).items():
        own = {
            run.model: run.load(load_report)
            for run in pvf
            if run.record_as(PreferencesRecord).words.y.name == name
        }
        file = "risk_" + name.replace(",", "").replace(" ", "_")
        caption = f"Risk, {name}: {entry['source']}" + ("; and this tool" if own else "")
        write_table(out, file, risk_table(own, name), caption)
        written += 1
    return written


def _regressions(runs: Sequence[Run], factors: Path, out: Path, formats: Sequence[str]) -> int:
    from pvf.plots import plot_regression
    from pvf.report import load_report
    from pvf.social import load_factors
    from tda_bias.records.figures import COLUMN, captioned, print_figure, print_style, write_print

    own = [run for run in runs if run.command == "pvf"]
    if not own:
        raise InputError("--factors needs a run of `tdabias pvf`; got none")
    table = load_factors(factors)
    written = 0
    for run in own:
        for number, name in enumerate(table.table.columns, start=1):
            with print_style():
                figure = print_figure(COLUMN, 2.9)
                plot_regression(run.load(load_report).by_x, table, name, ax=figure.subplots())
                captioned(figure, f"{run.model}: risk r of each word on {name}.")
            file = f"pvf9_regression{number}" + (f"-{run.folder.name}" if len(own) > 1 else "")
            title = f"PVF papers, figures 9 and 12-15: regression on {name}"
            write_print(out, file, figure, formats=formats, title=title, run_id=run.id)
            written += 1
    return written
