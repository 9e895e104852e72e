"""``tdabias show``: print a finished run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tda_bias.types import MAX_COUNT

from .options import Positional, command
from .output import Output
from .settings import FilePath, OutputSettings

if TYPE_CHECKING:
    from tda_bias.runs.run import Run


class ShowSettings(OutputSettings):
    """Settings of ``tdabias show``."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder of a finished run.")
    top: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="rows of a ranking (default: the run's)"
    )


@command(ShowSettings)
def show(settings: ShowSettings) -> None:
    """Print a finished run again, from its folder and without the model."""
    from tda_bias.runs.run import open_run

    record = open_run(settings.run, *_PRINTED).record
    top = settings.top or record.told("top", 10)
    _PRINTED[record.command](settings.run, top).print(settings)


def printed(run: Run) -> Output | None:
    """Output of a run; None of commands whose runs are not printed again."""
    if run.command not in _PRINTED:
        return None
    top = int(run.record.settings.get("top") or 10)
    return _PRINTED[run.command](run.folder, top)


# -- by command ------------------------------------------------------------------------------------


def _heads(folder: Path, top: int) -> Output:
    from .heads import saved

    return saved(folder, top)


def _pvf(folder: Path, top: int) -> Output:
    from .pvf import saved

    return saved(folder, top)


def _unqover(folder: Path, top: int) -> Output:
    from .unqover import saved

    return saved(folder, top)


def _ablate(folder: Path, top: int) -> Output:
    from .ablate import saved

    return saved(folder)


def _stereoset(folder: Path, top: int) -> Output:
    from tda_bias.scores.stereoset_scores import StereoSetScores

    from .stereoset import output

    return output(StereoSetScores.load(folder), folder)


def _sentences(folder: Path, top: int) -> Output:
    from .sentences import saved

    return saved(folder)


def _crossref(folder: Path, top: int) -> Output:
    from tda_bias.crossref.crossref import CrossReference

    from .crossref import target_output

    return target_output(CrossReference.load(folder), folder)


def _crossref_items(folder: Path, top: int) -> Output:
    from tda_bias.crossref.item_crossref import ItemCrossReference

    from .crossref import item_output

    return item_output(ItemCrossReference.load(folder), folder)


def _compare(folder: Path, top: int) -> Output:
    from tda_bias.runs.run import open_run

    if getattr(open_run(folder, "compare").record, "compares", None) == "heads":
        from tda_bias.comparison.head_maps import HeadsComparison

        from .compare import heads_output

        return heads_output(HeadsComparison.load(folder), folder)
    from .compare import saved

    return saved(folder)


def _published(folder: Path, top: int) -> Output:
    from tda_bias.paper.published_run import PublishedAgreement

    from .crossref import published_output

    return published_output(PublishedAgreement.load(folder), folder)


def _prune_curve(folder: Path, top: int) -> Output:
    from .prune_curve import saved

    return saved(folder)


def _debias(folder: Path, top: int) -> Output:
    from .debias import saved

    return saved(folder)


def _pairs(folder: Path, top: int) -> Output:
    from .pairs import saved

    return saved(folder)


_PRINTED: dict[str, Callable[[Path, int], Output]] = {
    "heads": _heads,
    "pvf": _pvf,
    "pvf risk": _pvf,
    "unqover": _unqover,
    "ablate": _ablate,
    "stereoset": _stereoset,
    "stereoset intrasentence": _sentences,
    "crossref": _crossref,
    "debias": _debias,
    "pairs": _pairs,
    "crossref items": _crossref_items,
    "compare": _compare,
    "crossref published": _published,
    "prune-curve": _prune_curve,
}
