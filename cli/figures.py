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
from .progress import doing, say
from .settings import CommandSettings, Format, OutputSettings, Several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tda_bias.runs.figures import Entry


class FiguresSettings(CommandSettings):
    """Settings of ``tdabias figures``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        (),
        description="Folders that `tdabias heads`, `pvf`, `unqover`, `ablate` or `crossref` wrote. "
        "Those of `stereoset`, `compare` and `debias` have figures too. Without any, what is "
        "simulated is drawn.",
    )
    out: Path = Field(Path("figures"), description="folder for the files")
    format: str = Field(
        "svg,pdf,png",
        description="svg, pdf, png, or several: svg,pdf; and table, json or csv, which is printed",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this figure; may be given several times"
    )
    quiet: bool = Field(False, description="say nothing but errors")
    factors: Path | None = Field(
        None, description="CSV x,factor,...[,weight]: adds the PVF papers' regressions"
    )


@command(FiguresSettings)
def figures(settings: FiguresSettings) -> None:
    """Draw every figure and table that saved runs allow, ready for print."""
    formats, printed = _formats(settings.format)
    out = settings.out

    from pvf.papers import write_regressions, write_risk_tables
    from pvf.social import load_factors
    from tda_bias.paper.page import write_tables
    from tda_bias.runs.figures import drawings, write_print
    from tda_bias.runs.run import refuse_run_of_another_command, with_parts

    refuse_run_of_another_command(out, "figures")
    opened = with_parts(settings.runs)
    factors = None
    if settings.factors is not None:
        if not any(run.command == "pvf" for run in opened):
            raise InputError("--factors needs a run of `tdabias pvf`; got none")
        factors = load_factors(settings.factors)
    errors = Console(stderr=True, quiet=settings.quiet)
    written: list[dict[str, Any]] = []
    lacking: list[str] = []
    with doing(errors, "drawing"):
        for drawn in drawings(opened, catalogue(), only=settings.only, left_out=lacking.append):
            files = write_print(out, drawn, formats)
            written.append(_row(drawn.name, drawn.title, drawn.run_id, files))
        if factors is not None:
            drawn_too = write_regressions(opened, factors, out, formats)
            written += [_row(*entry) for entry in drawn_too]
    tables = 0
    if not settings.only:
        tables = write_tables(opened, out) + write_risk_tables(opened, out, lacking.append)
    for line in lacking:
        say(errors, f"Not drawn: {line}")
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
    from pvf.papers import FIGURES as PVF
    from tda_bias.plots.figures import FIGURES as HEADS
    from unqover.plots import FIGURES as UNQOVER

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
