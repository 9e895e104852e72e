"""``tdabias ls``: what can be used here and now, and what a folder of runs holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import counted
from tda_bias.types import InputError

from .loading import use_cache_if_unreachable
from .options import Positional, command
from .output import Output
from .progress import say
from .settings import OutputSettings

Rows = list[dict[str, Any]]


class LsSettings(OutputSettings):
    """Settings of ``tdabias ls``."""

    what: Annotated[
        Literal["models", "data", "categories", "groups", "runs"] | None, Positional()
    ] = Field(
        None, description="models, data, categories, groups or runs (default: models and data)"
    )
    data: str = Field(
        "starter",
        description="texts whose categories or groups are listed: stereoset, starter, or a file",
    )
    folder: Path = Field(Path("runs"), description="where runs are looked for")


@command(LsSettings)
def ls(settings: LsSettings) -> None:
    """List models, data, categories and groups that can be used here, or finished runs."""
    import pandas as pd

    listed: dict[str, Callable[[], tuple[Rows, str]]] = {
        "models": models,
        "data": data,
        "categories": lambda: categories(settings.data),
        "groups": lambda: groups(settings.data),
        "runs": lambda: runs(settings.folder, settings.console),
    }
    kinds = [settings.what] if settings.what else ["models", "data"]
    parts = {kind: listed[kind]() for kind in kinds}
    shown = [part for rows, hint in parts.values() for part in (_table(rows), hint)]
    if settings.what is None:
        shown.append("`tdabias ls categories`, `groups` and `runs` list more.")
    table = pd.concat([pd.DataFrame(rows).assign(kind=kind) for kind, (rows, _) in parts.items()])
    columns = [name for name in table.columns if name != "kind"]
    first = [] if settings.what else ["kind"]
    Output(
        shown=shown,
        values={kind: rows for kind, (rows, _) in parts.items()},
        rows=table[[*first, *columns]],
    ).print(settings)


def models() -> tuple[Rows, str]:
    """Models that packages carry, and those in the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from tda_bias.models.packaged import PACKAGED

    rows = []
    for name, model in PACKAGED.items():
        try:
            model.found()
            state = "installed"
        except InputError:
            state = model.install
        rows.append({"model": name, "from": "package", "state": state})
    for folder in sorted(Path(HF_HUB_CACHE).glob("models--*")):
        # A model without its configuration was not downloaded to the end.
        if any(folder.glob("snapshots/*/config.json")):
            name = folder.name.removeprefix("models--").replace("--", "/")
            rows.append({"model": name, "from": "hub cache", "state": "downloaded"})
    return rows, "Any other name is looked for on the hub; a path is a local folder."


def data() -> tuple[Rows, str]:
    """Texts, words and questions that ship with tdabias, and those of the hub."""
    from pvf.words import packaged
    from tda_bias.pairs import SETS
    from unqover.classes import NAMED

    classes, words = packaged("classes.yaml"), packaged("words.yaml")
    rows = [
        {"name": "starter", "for": "heads, stereoset, twins", "option": "--data"},
        {"name": "stereoset", "for": "heads, stereoset, twins", "option": "--data"},
        *({"name": name, "for": "pairs", "option": "--set"} for name in SETS),
        *({"name": name, "for": "pvf", "option": "--attribute"} for name in classes),
        *({"name": name, "for": "pvf", "option": "--words"} for name in words),
        *({"name": name, "for": "unqover", "option": "--class"} for name in NAMED),
    ]
    return rows, (
        "starter demonstrates only; stereoset is the file that TDABIAS_STEREOSET names, else the "
        "hub's. Files can be given too."
    )


def categories(source: str) -> tuple[Rows, str]:
    """Categories of some texts, with the number of triples and of groups.

    Raises:
        InputError: as ``load_triples``.
    """
    rows, _ = groups(source)
    triples: Counter[str] = Counter()
    for row in rows:
        triples[row["category"]] += row["triples"]
    n_groups = Counter(row["category"] for row in rows)
    listed = [
        {"category": name, "groups": n_groups[name], "triples": triples[name]} for name in triples
    ]
    return listed, f"Of {source}; another with --data."


def groups(source: str) -> tuple[Rows, str]:
    """Groups of some texts: the targets, with the number of triples.

    Raises:
        InputError: as ``load_triples``.
    """
    from tda_bias.triples import comes_from_hub, load_triples

    if comes_from_hub(source):
        use_cache_if_unreachable()

    counted = Counter((triple.category, triple.group) for triple in load_triples(source))
    rows = [
        {"category": category, "group": group, "triples": number}
        for (category, group), number in sorted(counted.items())
    ]
    return rows, f"Of {source}; another with --data."


def runs(folder: Path, errors: Console) -> tuple[Rows, str]:
    """Finished runs in a folder and in those inside; what cannot be read is said.

    Raises:
        InputError: if there is no such folder.
    """
    from tda_bias.runs.files import RECORD
    from tda_bias.runs.run import open_run

    if not folder.is_dir():
        raise InputError(f"`folder` {folder} is no folder; name one with --folder")
    rows = []
    for path in sorted(folder.rglob(RECORD), key=lambda path: path.parent):
        try:
            record = open_run(path.parent).record
        except InputError as error:
            say(errors, f"Not listed: {error}")
            continue
        rows.append(
            {
                "run": str(path.parent),
                "command": record.command,
                "model": record.model.name,
                "created": record.created or "",
            }
        )
    return (
        rows,
        f"{counted(len(rows), 'finished run')} in {folder}; `tdabias show RUN` prints one again.",
    )


def _table(rows: Rows) -> Table:
    table = Table(title_justify="left")
    for name, value in (rows[0] if rows else {}).items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        # Of a time, the minute; the space lets a narrow terminal break the line.
        shown = (
            {**row, "created": row["created"][:16].replace("T", " ")} if "created" in row else row
        )
        table.add_row(*map(str, shown.values()))
    return table
