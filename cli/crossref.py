"""``tdabias crossref``: does what heads do go with what the model says, and do they carry it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from tda_bias.config import (
    ARunEach,
    BatchOption,
    CrossrefConfig,
    HeadCrossrefConfig,
    ItemCrossrefConfig,
)
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.store.run import content_hash, open_run
from tda_bias.types import MAX_COUNT, Ablation, InputError

from .loading import Texts, category_of, model_of, refuse_other_weights
from .options import Positional
from .run import Work
from .settings import (
    DeviceOption,
    KeptRunSettings,
    LimitOption,
    ModelName,
    Out,
    folder_name,
    part_of,
    refuse_options,
)

if TYPE_CHECKING:
    from tda_bias.crossref.crossref import CrossReference
    from tda_bias.crossref.head_crossref import HeadCrossReference
    from tda_bias.crossref.item_crossref import ItemCrossReference
    from tda_bias.paper.rankings import PublishedAgreement

_TARGETS, _ITEMS, _HEADS, _PUBLISHED = (
    "crossref", "crossref items", "crossref heads", "crossref published",
)  # fmt: skip
# Forms that read an option; all forms read the others.
_READ_BY = {
    "behaviour": (_TARGETS, _ITEMS, _HEADS),
    "stereoset": (_TARGETS,),
    "scoring": (_ITEMS,),
    "rank_by": (_TARGETS, _HEADS, _PUBLISHED),
    **dict.fromkeys(
        ("top", "ablation", "category", "model", "device", "batch_size", "limit", "resume"),
        (_HEADS,),
    ),
}
_TYPED = {
    _TARGETS: "--by targets", _ITEMS: "--items", _HEADS: "--by heads",
    _PUBLISHED: "--published",
}  # fmt: skip


class CrossrefSettings(
    LimitOption,
    DeviceOption,
    BatchOption,
    HeadCrossrefConfig,
    ItemCrossrefConfig,
    KeptRunSettings,
):
    """Settings of ``tdabias crossref``."""

    run: Annotated[Path, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    behaviour: Annotated[Path | None, Positional()] = Field(
        None,
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote. With --items: that "
        "`tdabias stereoset` wrote; with --by heads: `tdabias pvf`. Not with --published.",
    )
    by: Literal["targets", "items", "heads"] = Field(
        "targets",
        description="over what is correlated: targets, items (the same as --items), or heads: the "
        "effect of every head on R, R_p and R_v against its attention",
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
    category: Annotated[str | None, ARunEach] = Field(
        None,
        description="with --by heads: which category, of a run with several; several with commas, "
        "a run each",
    )
    limit: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="with --by heads: only the first so many words x of the run of pvf",
    )
    ablation: Ablation = Field(
        "zero",
        description="with --by heads: an ablated head writes nothing, or its mean over the prompts",
    )
    model: Annotated[ModelName | None, Changes.NOTHING] = Field(
        None, description="with --by heads: where the run's model is now (default: where it was)"
    )
    out: Out = Field(
        None,
        description="folder for the files (default: RUN/crossref); with --items: RUN/items; with "
        "--by heads: RUN/crossref-heads; with --published: RUN/published-MODEL",
    )

    @model_validator(mode="after")
    def _one_form(self) -> CrossrefSettings:
        chosen = [
            name
            for name, is_chosen in (
                ("--published", self.published is not None),
                ("--items", self.items),
                (f"--by {self.by}", self.by != "targets"),
            )
            if is_chosen
        ]
        if len(chosen) > 1 and chosen != ["--items", "--by items"]:
            raise ValueError(f"{' and '.join(chosen)} do not go together; give one of them")
        return self

    @property
    def by_content(self) -> frozenset[str]:
        """The runs, wherever they are."""
        return frozenset({"run", "behaviour", "stereoset"})

    @property
    def unread(self) -> frozenset[str]:
        """Options of the other forms."""
        return frozenset(name for name, forms in _READ_BY.items() if self.form not in forms)

    @property
    def form(self) -> str:
        """Which of the command's runs is meant."""
        if self.published is not None:
            return _PUBLISHED
        if self.items or self.by == "items":
            return _ITEMS
        return _HEADS if self.by == "heads" else _TARGETS

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        by_default = {_TARGETS: "crossref", _ITEMS: "items", _HEADS: "crossref-heads"}
        if self.published is not None:
            by_default[_PUBLISHED] = f"published-{folder_name(self.published)}"
        return self.out or self.run / by_default[self.form]

    @property
    def said(self) -> Path:
        """The run that says what the model says; an ``InputError`` if it is not given."""
        if self.behaviour is None:
            wanted = {_ITEMS: "stereoset", _HEADS: "pvf"}.get(self.form, "pvf` or `tdabias unqover")
            raise InputError(
                f"give the folder that `tdabias {wanted}` wrote after that of the heads, or "
                "--published"
            )
        return self.behaviour


def runs(settings: CrossrefSettings) -> Texts:
    """The runs that the form compares, each read once, and what pins their content."""
    for name in sorted(settings.unread):
        forms = " or ".join(_TYPED[form] for form in _READ_BY[name])
        refuse_options(settings, {name}, f"goes with {forms}, not with {_TYPED[settings.form]}")
    loaded, pinned = _LOADERS[settings.form](settings)
    return Texts(loaded, DataRecord(source="runs", revision=" ".join(map(str, pinned))))


# -- over targets ----------------------------------------------------------------------------------


def _of_targets(settings: CrossrefSettings) -> tuple[Any, list[str | None]]:
    from tda_bias.crossref.crossref import WordScores
    from tda_bias.heads.result import HeadBias
    from tda_bias.scores.stereoset_scores import StereoSetScores

    heads, said = HeadBias.load(settings.run), WordScores.load(settings.said)
    scores = StereoSetScores.load(settings.stereoset) if settings.stereoset else None
    records = [one.record for one in (heads, said, scores) if one is not None]
    return (heads, said, scores), [content_hash(record) for record in records]


def by_target(settings: CrossrefSettings, runs: Texts, work: Work) -> CrossReference:
    """Over targets: what heads do with what the model says of their words."""
    from tda_bias.crossref.crossref import cross_reference
    from tda_bias.plots.behaviour import targets_figure

    heads, said, scores = runs.items
    config = part_of(settings, CrossrefConfig)
    result = cross_reference(heads, said, stereoset=scores, config=config)
    return work.saved(
        result,
        figures={"targets": targets_figure(result)},
        heads=str(settings.run),
        behaviour=str(settings.behaviour),
        stereoset=settings.stereoset and str(settings.stereoset),
    )


# -- over items ------------------------------------------------------------------------------------


def _of_items(settings: CrossrefSettings) -> tuple[Any, list[str | None]]:
    from tda_bias.scores.stereoset_scores import StereoSetScores

    heads, scores = open_run(settings.run, "heads"), StereoSetScores.load(settings.said)
    return (heads, scores), [content_hash(one.record) for one in (heads, scores)]


def by_item(settings: CrossrefSettings, runs: Texts, work: Work) -> ItemCrossReference:
    """Over items: what heads do with the preference for the stereotype text."""
    from tda_bias.crossref.item_crossref import cross_reference_items

    heads, scores = runs.items
    result = cross_reference_items(heads, scores, config=part_of(settings, ItemCrossrefConfig))
    return work.saved(result, heads=str(settings.run), stereoset=str(settings.behaviour))


# -- over heads ------------------------------------------------------------------------------------


def _of_heads(settings: CrossrefSettings) -> tuple[Any, list[str | None]]:
    from pvf.report import load_report, risk_hash
    from tda_bias.crossref.crossref import same_model
    from tda_bias.crossref.head_crossref import require_enough_heads
    from tda_bias.heads.result import HeadBias

    heads, report = HeadBias.load(settings.run), load_report(settings.said)
    record = report.preferences.record
    same_model(heads.record, record)
    require_enough_heads(heads, category_of(heads, settings.category), settings.top)
    return (heads, report), [content_hash(heads.record), content_hash(record), risk_hash(report)]


def by_head(settings: CrossrefSettings, runs: Texts, work: Work) -> HeadCrossReference:
    """Over heads: the effect of each on the risks of words with what its attention shows."""
    heads, report = runs.items
    record, category = heads.record, category_of(heads, settings.category)
    model = work.model(model_of(record, settings.model), dtype=record.model.dtype)
    refuse_other_weights(model, record)

    from tda_bias.ablation.effects import HeadEffects
    from tda_bias.ablation.word_outcome import WordRisk, WordsAsked
    from tda_bias.crossref.head_crossref import cross_reference_heads
    from tda_bias.plots.head_effects import head_effects_figure

    how: dict[str, Any] = settings.model_dump(include={"ablation", "batch_size"})
    outcome = WordRisk(
        model, WordsAsked.of(report).first(settings.limit), batch_size=settings.batch_size
    )
    effects = HeadEffects(model, outcome.texts, **how)
    identity = {"format": 1, "weights": record.model.weights, "dtype": model.dtype_name, **how}
    with work.progress(f"{model.name} · {category}", "tokens") as progress:
        result = cross_reference_heads(
            effects,
            heads,
            outcome,
            category=category,
            pvf=report.preferences.record,
            config=part_of(settings, HeadCrossrefConfig),
            cache=work.cache(identity),
            progress=progress,
        )
    return work.saved(
        result,
        figures={"effects": head_effects_figure(result)},
        heads=str(settings.run),
        pvf=str(settings.behaviour),
        against=report.against,
    )


# -- published rankings ----------------------------------------------------------------------------


def _of_published(settings: CrossrefSettings) -> tuple[Any, list[str | None]]:
    from tda_bias.heads.result import HeadBias

    heads = HeadBias.load(settings.run)
    return heads, [content_hash(heads.record)]


def by_published(settings: CrossrefSettings, runs: Texts, work: Work) -> PublishedAgreement:
    """Over heads: the run's map against rankings that others published."""
    from tda_bias.paper.rankings import published_agreement

    config = part_of(settings, CrossrefConfig)
    result = published_agreement(runs.items, str(settings.published), config=config)
    return work.saved(result, heads=str(settings.run))


_LOADERS = {
    _TARGETS: _of_targets, _ITEMS: _of_items, _HEADS: _of_heads, _PUBLISHED: _of_published,
}  # fmt: skip
