"""``tdabias figures`` and ``tdabias reproduce``: the papers' figures and tables from saved runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tda_bias.config import ARunEach, HeadBiasConfig
from tda_bias.show.figures import OF_PAPERS
from tda_bias.show.output import Output
from tda_bias.show.terminal import say
from tda_bias.show.text import counted
from tda_bias.store.identity import Changes
from tda_bias.store.run import Run, open_run, refuse_run_of_another_command, with_parts
from tda_bias.triples import read_triples
from tda_bias.types import InputError, PValue, RankBy

from .heads import HeadsSettings
from .loading import language_model, refuse_other_weights
from .options import Positional, command_line
from .run import completed
from .settings import KeptRunSettings, Out, OutputSettings, Several, TriplesSettings, folder_name
from .stereoset import StereoSetSettings

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias
    from tda_bias.scores.stereoset_scores import StereoSetScores
    from tda_bias.show.figures import Entry


class FiguresSettings(OutputSettings):
    """Settings of ``tdabias figures``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        (),
        description="Folders of finished runs, or folders that hold several. Without any, what is "
        "simulated is drawn.",
    )
    out: Path = Field(Path("runs/figures"), description="folder for the files")
    as_: Annotated[tuple[Literal["svg", "pdf", "png"], ...], Several] = Field(
        ("svg", "pdf", "png"),
        alias="as",
        description="svg, pdf or png; may be given several times",
    )
    only: Annotated[tuple[str, ...], Several] = Field(
        (),
        description="only this figure; may be given several times. "
        + "; ".join(f"{paper}: {', '.join(names)}" for paper, names in OF_PAPERS.items())
        + "; an unknown name lists all",
    )


def figures(settings: FiguresSettings) -> Output:
    """Draw every figure and table that saved runs allow."""
    import pandas as pd

    from pvf.papers import write_risk_tables
    from tda_bias.paper.page import write_rankings, write_tables
    from tda_bias.show.figures import drawings, write_print

    out, formats = settings.out, settings.as_
    refuse_run_of_another_command(out, "figures")
    lacking: list[str] = []
    given = [folder for folder in settings.runs if folder != out]
    opened, entries = with_parts(given, left_out=lacking.append), catalogue()
    lacking += _without_figures(opened, entries)
    written: list[dict[str, Any]] = []
    with settings.console.status("drawing"):
        for drawn in drawings(opened, entries, only=settings.only, left_out=lacking.append):
            files = write_print(out, drawn, formats)
            names = " ".join(path.name for path in files)
            row = {"figure": drawn.name, "title": drawn.title, "run": drawn.run_id, "files": names}
            written.append(row)
    tables = 0
    if not settings.only:
        tables = write_tables(opened, out) + write_rankings(opened, out)
        tables += write_risk_tables(opened, out, lacking.append)
    for line in lacking:
        say(settings.console, f"Not drawn: {line}")
    number = f"{counted(len(written), 'figure')} ({', '.join(formats)})"
    return Output(
        shown=[
            *(f"{row['figure']}: {row['title']}" for row in written),
            f"{number}, {counted(tables, 'table')}. Files: {out}/",
        ],
        values={
            "folder": str(out),
            "figures": [{**row, "files": row["files"].split(" ")} for row in written],
            "tables": tables,
            "not_drawn": lacking,
        },
        rows=pd.DataFrame(written, columns=["figure", "title", "run", "files"]),
    )


def _without_figures(runs: Sequence[Run], entries: Sequence[Entry]) -> list[str]:
    """Lines about runs of commands without figures, which must not be all that there are."""
    drawable = {entry.command: entry.typed for entry in entries if entry.command}
    lines = [
        f"{run.folder} is a run of `tdabias {run.command}`, which has no figures"
        for run in runs
        if run.command not in drawable
    ]
    if lines and len(lines) == len(runs):
        raise InputError(f"{lines[0]}; give runs of {', '.join(drawable.values())}")
    return lines


def catalogue() -> tuple[Entry, ...]:
    """Every figure there is, package by package."""
    from pvf.papers import FIGURES as PVF
    from tda_bias.plots.figures import FIGURES as HEADS
    from unqover.plots import FIGURES as UNQOVER

    return (*HEADS, *PVF, *UNQOVER)


# -- everything the head paper did, on any model, as one page --------------------------------------


class ReproduceSettings(TriplesSettings, KeptRunSettings, HeadBiasConfig):
    """Settings of ``tdabias reproduce``; defaults are what the head paper did."""

    category: Annotated[str, ARunEach] = Field(
        "all",
        description="gender, profession, race or religion, one of your own file's, or all; several "
        "with commas, a page each",
    )
    pvalue: Annotated[PValue, Changes.TABLES] = Field(
        "paper", description="which p-value the q columns use"
    )
    rank_by: Annotated[RankBy, Changes.TABLES] = Field(
        "metric", description="the map that ranks heads"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/reproduce)")

    @property
    def folder(self) -> Path:
        """Folder of the page; the run itself goes to ``heads`` inside it."""
        return self.out or Path("runs") / folder_name(self.model) / "reproduce"

    def of_heads(self) -> HeadsSettings:
        """The run of ``tdabias heads``."""
        return HeadsSettings(**{**self.model_dump(), "out": self.folder / "heads", "twins": "none"})

    def stereoset(self) -> StereoSetSettings:
        """The run of ``tdabias stereoset``, whose scores two of the paper's claims are about."""
        shared = self.model_dump(include=set(StereoSetSettings.model_fields))
        return StereoSetSettings(**{**shared, "out": self.folder / "stereoset", "twins": "none"})


def reproduce(settings: ReproduceSettings) -> Output:
    """Run the heads as the paper did, and write the page."""
    start = time.perf_counter()
    completed("heads", settings.of_heads(), shared=False)

    import pandas as pd

    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.page import survivors_line, write_page

    run = open_run(settings.folder / "heads")
    result = run.load(HeadBias.load)
    said, reason = _scores(settings), _why_another_model(settings, result)
    typed = command_line(["reproduce"], settings)
    with settings.console.status("drawing"):
        pictures = write_page(
            run,
            settings.folder,
            catalogue(),
            command=typed,
            started=start,
            other_model=reason,
            said=said,
        )
    written = settings.folder / "README.md"
    return Output(
        shown=[survivors_line(result), f"Page: {written}"],
        values={"page": str(written), "figures": {n: str(p) for n, p in pictures.items()}},
        rows=pd.concat([result.survivors(category=c, by="relative") for c in result.categories]),
    )


def _scores(settings: ReproduceSettings) -> StereoSetScores | str:
    """StereoSet's scores of the model; of one whose texts cannot be scored, why not."""
    try:
        scores: StereoSetScores = completed("stereoset", settings.stereoset(), shared=False)
    except InputError as error:  # such as an encoder's, whose heads are measured all the same
        say(settings.console, f"Without stereotype scores: {error}")
        return f"not measured: {error}."
    return scores


def _why_another_model(settings: ReproduceSettings, result: HeadBias) -> str | None:
    """Why the model is not the paper's, which is asked what it says of ten texts."""
    from tda_bias.paper.model import (
        has_papers_size,
        largest_difference,
        published_likelihoods,
        why_another,
    )

    record = result.record.model
    if not has_papers_size(record):
        return why_another(record, {}, None)
    likelihoods = published_likelihoods(read_triples(settings.data).items)
    difference = None
    if likelihoods:
        model = language_model(settings.model, settings, settings.console)
        refuse_other_weights(model, result.record)
        difference = largest_difference(model, likelihoods)
    return why_another(record, likelihoods, difference)
