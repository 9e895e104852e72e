"""``tdabias reproduce``: everything the head paper did, on any model, as one page."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import Field

from tda_bias.config import HeadBiasConfig
from tda_bias.types import PValue, RankBy

from . import heads
from .figures import catalogue
from .heads import HeadsSettings
from .options import command, command_line
from .output import Output
from .progress import doing
from .settings import OutputSettings, TriplesSettings, folder_name


class ReproduceSettings(TriplesSettings, OutputSettings, HeadBiasConfig):
    """Settings of ``tdabias reproduce``; defaults are what the head paper did."""

    category: str = Field("all", description="which categories")
    pvalue: PValue = Field("paper", description="which p-value the q columns use")
    rank_by: RankBy = Field("metric", description="the map that ranks heads")
    out: Path | None = Field(
        None, description="folder for the files (default: runs/MODEL/reproduce)"
    )
    resume: bool = Field(True, description="reuse groups that an earlier run finished")

    @property
    def folder(self) -> Path:
        """Folder of the page; the run itself goes to ``heads`` inside it."""
        return self.out or Path("runs") / folder_name(self.model) / "reproduce"

    def heads(self) -> HeadsSettings:
        """The run of ``tdabias heads``."""
        return HeadsSettings(**{**self.model_dump(), "out": self.folder / "heads", "twins": "none"})


# What `tdabias heads` prints is no part of this command; its configuration files are.
@command(ReproduceSettings, file=HeadsSettings)
def reproduce(settings: ReproduceSettings) -> None:
    """Reproduce the head paper's tables, figures and claims for a model, on one page."""
    start = time.perf_counter()
    heads.compute(settings.heads(), shared=False)

    import pandas as pd

    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.page import TABLE_NUMBER, beside_published, page, survivors_line
    from tda_bias.runs.figures import drawings, write_print
    from tda_bias.runs.files import write_text
    from tda_bias.runs.run import open_run
    from tda_bias.runs.tables import write_table

    run = open_run(settings.folder / "heads")
    result = run.load(HeadBias.load)
    pictures: dict[str, Path] = {}
    with doing(settings.console, "drawing"):
        for drawn in drawings([run], catalogue()):
            files = write_print(settings.folder / "figures", drawn, ("png", "svg", "pdf"))
            pictures[drawn.name] = files[0].relative_to(settings.folder)
        for category in result.categories:
            name = f"table{TABLE_NUMBER[category]}_{category}"
            table = beside_published(result, category)
            caption = f"{category}: metric T over heads, paper and {run.model}"
            write_table(settings.folder / "tables", name, table, caption)
    text = page(
        result,
        pictures=pictures,
        command=command_line(["reproduce"], settings),
        seconds=time.perf_counter() - start,
        run_id=run.id,
    )
    write_text(settings.folder / "README.md", text)
    written = settings.folder / "README.md"
    Output(
        shown=[survivors_line(result), f"Page: {written}"],
        values={"page": str(written), "figures": {n: str(p) for n, p in pictures.items()}},
        rows=pd.concat([result.survivors(category=c, by="relative") for c in result.categories]),
    ).print(settings)
