"""``tdabias crossref``: do targets that heads single out also show risk in what the model says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tda_bias.config import SeedOption
from tda_bias.show.text import counted
from tda_bias.store.identity import Changes
from tda_bias.store.run import open_run
from tda_bias.types import MAX_RESAMPLES, InputError, RankBy

from .options import Positional, command
from .output import Columns, Output, head_name, interval_of, report_of, rows_table, uncut_table
from .settings import Out, RunSettings, folder_name, refuse_options
from .work import held

if TYPE_CHECKING:
    from tda_bias.crossref.crossref import CrossReference
    from tda_bias.crossref.item_crossref import ItemCrossReference
    from tda_bias.paper.rankings import PublishedAgreement


class CrossrefSettings(SeedOption, RunSettings):
    """Settings of ``tdabias crossref``."""

    run: Annotated[Path, Positional(), Changes.NOTHING] = Field(
        description="Folder that `tdabias heads` wrote."
    )
    behaviour: Annotated[Path | None, Positional()] = Field(
        None,
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote. With --items: that "
        "`tdabias stereoset` wrote. Not with --published.",
    )
    stereoset: Path | None = Field(
        None, description="folder that `tdabias stereoset` wrote: adds its per-target score"
    )
    rank_by: Annotated[RankBy | None, Changes.TABLES] = Field(
        None, description="which combined value of a head is T (default: the run's)"
    )
    items: bool = Field(
        False, description="item by item: heads against the preference of tdabias stereoset"
    )
    scoring: Literal["sum", "mean"] = Field(
        "sum", description="with --items: log-probabilities as sums, or means over tokens"
    )
    published: str | None = Field(
        None,
        description="a model with published rankings of its heads, for example gpt2: compare the "
        "run's map with them",
    )
    n_permutations: Annotated[int, Changes.TABLES] = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="permutations of targets, with --items of items, with --published of heads",
    )
    out: Out = Field(
        None,
        description="folder for the files (default: RUN/crossref); with --items: RUN/items; with "
        "--published: RUN/published-MODEL",
    )

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


@command(CrossrefSettings)
def crossref(settings: CrossrefSettings) -> None:
    """Correlate, over StereoSet's targets, what heads do with what the model says."""
    about = {"heads": str(settings.run), "settings": settings.recorded()}
    if settings.published is not None:
        shown = _by_published(settings, settings.published, about)
    elif settings.items:
        shown = _by_item(settings, about)
    else:
        shown = _by_target(settings, about)
    shown.print(settings)


def _by_target(settings: CrossrefSettings, about: dict[str, Any]) -> Output:
    """Over targets: what heads do with what the model says of their words."""
    from tda_bias.crossref.crossref import WordScores, cross_reference
    from tda_bias.heads.result import HeadBias
    from tda_bias.plots.behaviour import targets_figure
    from tda_bias.scores.stereoset_scores import StereoSetScores

    refuse_options(settings, {"scoring"}, "is read with --items alone")
    with held(settings.folder, "crossref", settings):
        scores = StereoSetScores.load(settings.stereoset) if settings.stereoset else None
        result = cross_reference(
            HeadBias.load(settings.run),
            WordScores.load(settings.said),
            stereoset=scores,
            by=settings.rank_by,
            n_resamples=settings.n_permutations,
            seed=settings.seed,
        )
        about["stereoset"] = settings.stereoset and str(settings.stereoset)
        result = result.with_record(behaviour=str(settings.behaviour), **about)
        result.save(settings.folder, figures={"targets": targets_figure(result)})
    return target_output(result, settings.folder)


def _by_item(settings: CrossrefSettings, about: dict[str, Any]) -> Output:
    """Over items: what heads do with the preference for the stereotype text."""
    from tda_bias.crossref.item_crossref import COMMAND, cross_reference_items
    from tda_bias.scores.stereoset_scores import StereoSetScores

    refuse_options(settings, {"stereoset", "rank_by"}, "is about targets, not --items")
    with held(settings.folder, COMMAND, settings):
        result = cross_reference_items(
            open_run(settings.run, "heads"),
            StereoSetScores.load(settings.said),
            scoring=settings.scoring,
            n_resamples=settings.n_permutations,
            seed=settings.seed,
        )
        result = result.with_record(stereoset=str(settings.behaviour), **about)
        result.save(settings.folder)
    return item_output(result, settings.folder)


def _by_published(settings: CrossrefSettings, model: str, about: dict[str, Any]) -> Output:
    """Over heads: the run's map against rankings that others published."""
    from tda_bias.heads.result import HeadBias
    from tda_bias.paper.rankings import COMMAND, published_agreement

    others = {"behaviour", "stereoset", "items", "scoring"}
    refuse_options(settings, others, "is not read with --published")
    with held(settings.folder, COMMAND, settings):
        result = published_agreement(
            HeadBias.load(settings.run),
            model,
            by=settings.rank_by,
            n_resamples=settings.n_permutations,
            seed=settings.seed,
        )
        result = result.with_record(**about)
        result.save(settings.folder)
    return published_output(result, settings.folder)


# -- what is printed -------------------------------------------------------------------------------

_WAYS = {"raw": "as they are", "length": "less length", "twins": "less twins"}
_SETS = {0: "births", 1: "deaths"}


def target_output(result: CrossReference, folder: Path) -> Output:
    """The correlations with the smallest p, what survives, and what could have been found."""
    from tda_bias.crossref.crossref import match_counts, target_finding

    about = f"{counted(len(result.targets), 'target')} ({match_counts(result.targets)})"
    columns: Columns = [
        ("quantity", "{quantity}"),
        ("with", "{summary}"),
        ("Spearman", "{spearman:.2f}"),
        ("p", "{p:p}"),
        ("95 % interval", interval_of("low", "high")),
        ("partial p", "{p_partial:p}"),
        ("q", "{q:p}"),
    ]
    first = result.correlations.sort_values("p", kind="stable").head(8)
    title = f"{result.record.model.name} · {about}"
    return Output(
        finding=target_finding(result).then(report_of(folder)),
        shown=[rows_table(title, first, columns, left=2)],
        values={
            "model": result.record.model,
            "targets": result.targets,
            "correlations": result.correlations,
        },
        rows=result.correlations,
        folder=folder,
        files="targets.csv, correlations.csv, head_map.csv, targets.png, ...",
    )


def item_output(result: ItemCrossReference, folder: Path) -> Output:
    """Number of heads that go with the preference, for each way to compare."""
    from tda_bias.crossref.item_crossref import item_finding

    columns: Columns = [
        ("compared", lambda row: _WAYS[row["way"]]),
        ("of heads", lambda row: f"{row['measure']} of {_SETS[row['dim']]}"),
        ("items", "{n}"),
        ("p < .05\n(by chance)", "{p05} ({expected:.1f})"),
        ("family-\nwise", "{family_wise}"),
        ("rho", "{largest:n2}"),
        ("at", lambda row: head_name(row) if row["heads"] else ""),
    ]
    tables = []
    for category, own in result.summary.groupby("category", sort=False):
        title = (
            f"{result.record.model.name} · {category} · {own['heads'].max()} heads against "
            "log-odds or beta, item by item · largest rho and its head"
        )
        tables.append(uncut_table(title, own, columns, left=2))
    return Output(
        finding=item_finding(result).then(report_of(folder)),
        shown=tables,
        values={"model": result.record.model, "summary": result.summary},
        rows=result.summary,
        folder=folder,
        files="heads.csv, summary.csv, run.json",
    )


def published_output(result: PublishedAgreement, folder: Path) -> Output:
    """Spearman over heads and the heads that two tops share, ranking by ranking, with chance."""
    from tda_bias.paper.rankings import published_finding

    record = result.record
    columns: Columns = [
        ("category", "{category}"),
        ("published", "{second}"),
        ("Spearman", "{spearman:n2}"),
        ("p", "{p:p}"),
        ("p within layers", "{p_within_layers:p}"),
        (f"of top {record.top} (chance)", "{overlap} ({chance:.1f})"),
        ("p", "{p_overlap:p}"),
    ]
    title = f"{record.model.name} · {record.by} beside published rankings of {record.published}"
    return Output(
        finding=published_finding(result).then(report_of(folder)),
        shown=[uncut_table(title, result.agreement, columns, left=2)],
        values={
            "model": record.model,
            "published": record.published,
            "agreement": result.agreement,
        },
        rows=result.agreement,
        folder=folder,
        files="published.csv",
    )
