"""``tdabias ls``: what can be used here and now, and what a folder of runs holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from rich.console import Console

from tda_bias.models.packaged import PACKAGED
from tda_bias.pairs import SETS
from tda_bias.show.output import Output
from tda_bias.show.table import TableSpec
from tda_bias.show.terminal import say
from tda_bias.show.text import counted
from tda_bias.store.files import RECORD
from tda_bias.store.run import open_run
from tda_bias.triples import comes_from_hub, load_triples
from tda_bias.types import InputError
from unqover.classes import NAMED

from .loading import use_cache_if_unreachable
from .options import Positional
from .settings import OutputSettings

if TYPE_CHECKING:
    import pandas as pd


class LsSettings(OutputSettings):
    """Settings of ``tdabias ls``."""

    what: Annotated[
        Literal["models", "data", "categories", "groups", "runs"] | None, Positional()
    ] = Field(
        None, description="models, data, categories, groups or runs (default: models, data, runs)"
    )
    data: str = Field(
        "starter",
        description="texts whose categories or groups are listed: stereoset, starter, or a file",
    )
    folder: Path = Field(Path("runs"), description="where runs are looked for")


_HINTS = {
    "models": "Any other name is looked for on the hub; a path is a local folder.",
    "data": "starter demonstrates only; stereoset is the file that TDABIAS_STEREOSET names, else "
    "the hub's. Files can be given too.",
    "categories": "Of {settings.data}; another with --data.",
    "groups": "Of {settings.data}; another with --data.",
    "runs": "{number} in {settings.folder}; `tdabias show RUN` prints one again.",
}


def ls(settings: LsSettings) -> Output:
    """List what is asked for."""
    import pandas as pd

    listed: dict[str, Callable[[], pd.DataFrame]] = {
        "models": models,
        "data": data,
        "categories": lambda: categories(settings.data),
        "groups": lambda: groups(settings.data),
        "runs": lambda: runs(settings.folder, settings.console),
    }
    kinds = [settings.what] if settings.what else ["models", "data"]
    named = "folder" in settings.model_fields_set
    if settings.what is None and (named or settings.folder.is_dir()):
        kinds.append("runs")
    tables = {kind: listed[kind]() for kind in kinds}
    shown: list[TableSpec | str] = []
    for kind, table in tables.items():
        short = table
        if kind == "runs":  # of a time, the minute; a narrow terminal breaks the line at the space
            short = table.assign(created=table["created"].str[:16].str.replace("T", " "))
        shown.append(TableSpec.of(short))
        number = counted(len(table), "finished run")
        shown.append(_HINTS[kind].format(settings=settings, number=number))
    if settings.what is None:
        shown.append("`tdabias ls categories` and `groups` list more.")
    rows = pd.concat([table.assign(kind=kind) for kind, table in tables.items()])
    if settings.what:
        rows = rows.drop(columns="kind")
    return Output(shown=shown, values=tables, rows=rows)


def models() -> pd.DataFrame:
    """Models that packages carry, and those in the hub's cache."""
    import pandas as pd
    from huggingface_hub.constants import HF_HUB_CACHE

    rows = []
    for name, model in PACKAGED.items():
        try:
            model.found()
            state = "installed"
        except InputError:
            state = model.install
        rows.append((name, "package", state))
    for folder in sorted(Path(HF_HUB_CACHE).glob("models--*")):
        # A model without its configuration was not downloaded to the end.
        if any(folder.glob("snapshots/*/config.json")):
            name = folder.name.removeprefix("models--").replace("--", "/")
            rows.append((name, "hub cache", "downloaded"))
    return pd.DataFrame(rows, columns=["model", "from", "state"])


def data() -> pd.DataFrame:
    """Texts, words and questions that ship with tdabias, and those of the hub."""
    import pandas as pd

    from pvf.words import packaged

    names = {
        ("heads, stereoset, twins", "--data"): ("starter", "stereoset"),
        ("heads, pairs, compare", "--pairs"): SETS,
        ("pvf", "--attribute"): packaged("classes.yaml"),
        ("pvf", "--words"): packaged("words.yaml"),
        ("unqover", "--class"): NAMED,
    }
    rows = [(name, *of) for of, several in names.items() for name in several]
    return pd.DataFrame(rows, columns=["name", "for", "option"])


def groups(source: str) -> pd.DataFrame:
    """Groups of some texts: the targets, with the number of triples."""
    import pandas as pd

    if comes_from_hub(source):
        use_cache_if_unreachable()
    rows = [(triple.category, triple.group) for triple in load_triples(source)]
    table = pd.DataFrame(rows, columns=["category", "group"])
    return table.groupby(["category", "group"]).size().reset_index(name="triples")


def categories(source: str) -> pd.DataFrame:
    """Categories of some texts, with the number of groups and of triples; as ``groups``."""
    of = groups(source).groupby("category")
    return of.agg(groups=("group", "size"), triples=("triples", "sum")).reset_index()


def runs(folder: Path, errors: Console) -> pd.DataFrame:
    """Finished runs in a folder and in those inside; what cannot be read is said."""
    import pandas as pd

    if not folder.is_dir():
        raise InputError(f"`folder` {folder} is no folder; name one with --folder")
    rows = []
    for path in sorted(folder.rglob(RECORD), key=lambda path: path.parent):
        try:
            record = open_run(path.parent).record
        except InputError as error:
            say(errors, f"Not listed: {error}")
            continue
        rows.append((str(path.parent), record.command, record.model.name, record.created or ""))
    return pd.DataFrame(rows, columns=["run", "command", "model", "created"], dtype=str)
