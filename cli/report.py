"""``tdabias report`` and ``tdabias show``: saved runs as one page, or printed again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from tda_bias.show.output import Output
from tda_bias.store.run import open_run, with_parts
from tda_bias.types import MAX_COUNT

from .commands import FORMS
from .options import Positional, command_line
from .run import printed
from .settings import OutputSettings, PageSettings


class ReportSettings(PageSettings):
    """Settings of ``tdabias report``."""

    runs: Annotated[tuple[Path, ...], Positional()] = Field(
        description="Folders of finished runs, of any commands, or of folders of such."
    )
    out: Path = Field(Path("report.html"), description="the file to write")


def report(settings: ReportSettings) -> Output:
    """Write the page."""
    from .audit import scope_of
    from .page import written_page

    runs, again = with_parts(settings.runs), command_line(["report"], settings)
    return written_page(runs, settings.out, settings, again, scope=scope_of(runs))


# -- a run printed again -----------------------------------------------------------------------


class ShowSettings(OutputSettings):
    """Settings of ``tdabias show``."""

    run: Annotated[Path, Positional()] = Field(description="Folder of a finished run.")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="rows of a ranking (default: the run's)"
    )


def show(settings: ShowSettings) -> Output:
    """Print a finished run again."""
    run = open_run(settings.run, *FORMS)
    return printed(run, top=settings.top or run.record.setting("top", 10))
