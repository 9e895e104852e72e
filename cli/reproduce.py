"""``tdabias reproduce``: everything the head paper did, on any model, as one page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from . import heads
from .figures import catalogue
from .settings import ReproduceSettings, from_flags_and_file, option

_option = partial(option, ReproduceSettings)


def reproduce(
    model: Annotated[str | None, _option("model", "--model", "-m")] = None,
    data: Annotated[str | None, _option("data")] = None,
    device: Annotated[str | None, _option("device")] = None,
    dtype: Annotated[str | None, _option("dtype")] = None,
    batch_size: Annotated[int | None, _option("batch_size", "--batch-size", "-b")] = None,
    n_resamples: Annotated[int | None, _option("n_resamples")] = None,
    limit: Annotated[int | None, _option("limit", "--limit", "-L")] = None,
    seed: Annotated[int | None, _option("seed")] = None,
    out: Annotated[Path | None, _option("out", "--out", "--output", "-o")] = None,
    resume: Annotated[bool | None, _option("resume", "--resume/--no-resume")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-C", help="YAML file of settings; flags win")
    ] = None,
) -> None:
    """Run what the head paper did and write one page that sets its values beside these."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    settings = from_flags_and_file(ReproduceSettings, flags, config)
    start = time.perf_counter()
    result = heads.compute(settings.heads())
    result.save(settings.folder / "heads")

    from tda_bias.paper.page import page, survivors_line
    from tda_bias.paper.published import TABLE_NUMBER, beside_published
    from tda_bias.records.figures import drawings, write_print
    from tda_bias.records.files import write_text
    from tda_bias.records.record import open_run
    from tda_bias.records.tables import write_table
    from tda_bias.results.head_bias import HeadBias

    run = open_run(settings.folder / "heads")
    result = run.load(HeadBias.load)
    pictures: dict[str, Path] = {}
    console = Console(stderr=True)
    with console.status("drawing"):
        for one in drawings([run], catalogue()):
            files = write_print(
                settings.folder / "figures",
                one.name,
                one.figure,
                formats=("png", "svg", "pdf"),
                title=one.title,
                run_id=one.run_id,
            )
            pictures[one.name] = files[0].relative_to(settings.folder)
        for category in result.categories:
            name = f"table{TABLE_NUMBER[category]}_{category}"
            table = beside_published(result, category)
            caption = f"{category}: metric T over heads, paper and {run.model}"
            write_table(settings.folder / "tables", name, table, caption)
    text = page(
        result,
        pictures=pictures,
        command=_command(flags, config),
        seconds=time.perf_counter() - start,
        run_id=run.id,
    )
    write_text(settings.folder / "README.md", text)
    shown = Console(highlight=False)
    shown.print(survivors_line(result), soft_wrap=True)
    shown.print(f"Page: {settings.folder / 'README.md'}", soft_wrap=True)


def _command(flags: Mapping[str, Any], config: Path | None) -> str:
    """What was typed, with the long names of options."""
    words = ["tdabias", "reproduce"]
    for name, value in {**flags, "config": config}.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
