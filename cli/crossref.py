"""``tdabias crossref``: do targets that heads single out also show risk in what the model says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tda_bias.config import CrossrefConfig, ItemCrossrefConfig
from tda_bias.store.record import DataRecord
from tda_bias.store.run import content_hash, open_run
from tda_bias.types import InputError

from .loading import Texts
from .options import Positional
from .run import Work
from .settings import Out, RunSettings, folder_name, part_of, refuse_options

if TYPE_CHECKING:
    from tda_bias.crossref.crossref import CrossReference
    from tda_bias.crossref.item_crossref import ItemCrossReference
    from tda_bias.paper.rankings import PublishedAgreement


# Options of the other forms of the command, by form, and why they are none here.
_OTHERS = {
    "crossref": ({"scoring"}, "is read with --items alone"),
    "crossref items": ({"stereoset", "rank_by"}, "is about targets, not --items"),
    "crossref published": (
        {"behaviour", "stereoset", "items", "scoring"},
        "is not read with --published",
    ),
}


class CrossrefSettings(CrossrefConfig, ItemCrossrefConfig, RunSettings):
    """Settings of ``tdabias crossref``."""

    run: Annotated[Path, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    behaviour: Annotated[Path | None, Positional()] = Field(
        None,
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote. With --items: that "
        "`tdabias stereoset` wrote. Not with --published.",
    )
    stereoset: Path | None = Field(
        None, description="folder that `tdabias stereoset` wrote: adds its per-target score"
    )
    items: bool = Field(
        False, description="item by item: heads against the preference of tdabias stereoset"
    )
    published: str | None = Field(
        None,
        description="a model with published rankings of its heads, for example gpt2: compare the "
        "run's map with them",
    )
    out: Out = Field(
        None,
        description="folder for the files (default: RUN/crossref); with --items: RUN/items; with "
        "--published: RUN/published-MODEL",
    )

    @property
    def by_content(self) -> frozenset[str]:
        """The runs, wherever they are."""
        return frozenset({"run", "behaviour", "stereoset"})

    @property
    def form(self) -> str:
        """Which of the command's runs is meant."""
        if self.published is not None:
            return "crossref published"
        return "crossref items" if self.items else "crossref"

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        by_default = "items" if self.items else "crossref"
        if self.published is not None:
            by_default = f"published-{folder_name(self.published)}"
        return self.out or self.run / by_default

    @property
    def said(self) -> Path:
        """The run that says what the model says; an ``InputError`` if it is not given."""
        if self.behaviour is None:
            raise InputError(
                "give the folder that `tdabias pvf` or `tdabias unqover` wrote after that of the "
                "heads (with --items: that of `tdabias stereoset`), or --published"
            )
        return self.behaviour


def runs(settings: CrossrefSettings) -> Texts:
    """Check that the runs are those the form compares, and pin the content of their tables."""
    refuse_options(settings, *_OTHERS[settings.form])
    said = ("stereoset",) if settings.items else ("pvf", "unqover")
    given = {"run": ("heads",), "behaviour": said, "stereoset": ("stereoset",)}
    records = [
        open_run(folder, *commands).record
        for name, commands in given.items()
        if (folder := getattr(settings, name)) is not None
    ]
    pinned = " ".join(str(content_hash(record)) for record in records)
    return Texts((), DataRecord(source="runs", revision=pinned))


def by_target(settings: CrossrefSettings, _: Texts, work: Work) -> CrossReference:
    """Over targets: what heads do with what the model says of their words."""
    from tda_bias.crossref.crossref import WordScores, cross_reference
    from tda_bias.heads.result import HeadBias
    from tda_bias.plots.behaviour import targets_figure
    from tda_bias.scores.stereoset_scores import StereoSetScores

    scores = StereoSetScores.load(settings.stereoset) if settings.stereoset else None
    result = cross_reference(
        HeadBias.load(settings.run),
        WordScores.load(settings.said),
        stereoset=scores,
        config=part_of(settings, CrossrefConfig),
    )
    return work.saved(
        result,
        figures={"targets": targets_figure(result)},
        heads=str(settings.run),
        behaviour=str(settings.behaviour),
        stereoset=settings.stereoset and str(settings.stereoset),
    )


def by_item(settings: CrossrefSettings, _: Texts, work: Work) -> ItemCrossReference:
    """Over items: what heads do with the preference for the stereotype text."""
    from tda_bias.crossref.item_crossref import cross_reference_items
    from tda_bias.scores.stereoset_scores import StereoSetScores

    result = cross_reference_items(
        open_run(settings.run, "heads"),
        StereoSetScores.load(settings.said),
        config=part_of(settings, ItemCrossrefConfig),
    )
    return work.saved(result, heads=str(settings.run), stereoset=str(settings.behaviour))


def by_published(settings: CrossrefSettings, _: Texts, work: Work) -> PublishedAgreement:
    """Over heads: the run's map against rankings that others published."""
    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.rankings import published_agreement

    result = published_agreement(
        HeadBias.load(settings.run),
        str(settings.published),
        config=part_of(settings, CrossrefConfig),
    )
    return work.saved(result, heads=str(settings.run))
