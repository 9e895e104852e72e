"""``tdabias ablate``: does ablating the top heads change what the model says?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, Field, field_validator, model_validator

from tda_bias.config import ARunEach, BatchOption, CurveConfig, StudyConfig
from tda_bias.show.terminal import say
from tda_bias.sources import load_neutral_text, text_comes_from_hub
from tda_bias.store.identity import Changes, identity
from tda_bias.store.settings import given_as
from tda_bias.twins.told_apart import told_apart
from tda_bias.types import MAX_COUNT, Ablation, InputError, OutcomeName, Precision, RankBy

from .loading import (
    Texts,
    category_of,
    model_of,
    reach_hub_for,
    refuse_other_weights,
    triples_of_run,
)
from .options import Positional
from .run import Work
from .settings import (
    DeviceOption,
    LimitOption,
    ModelName,
    Out,
    SharedRunSettings,
    TextOption,
    TwinsOption,
    part_of,
)

if TYPE_CHECKING:
    from pvf.report import RiskReport
    from tda_bias.ablation.ablator import Ablator
    from tda_bias.ablation.prune_curve import PruneCurve
    from tda_bias.ablation.study import AblationStudy
    from tda_bias.heads.result import HeadBias
# Options that one of the two forms of the command has no use for.
_ONE_STEP = ("top", "ablation", "n_permutations", "outcome", "pvf")
_CURVE = ("rank_by", "most", "text", "windows", "width")
_RANKINGS = (*get_args(RankBy), "importance", "effect")
_OUTCOMES = get_args(OutcomeName)


class AblateSettings(
    LimitOption,
    TwinsOption,
    TextOption,
    DeviceOption,
    BatchOption,
    StudyConfig,
    CurveConfig,
    SharedRunSettings,
):
    """Settings of ``tdabias ablate``."""

    run: Annotated[Path, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    model: Annotated[ModelName | None, Changes.NOTHING] = Field(
        None, description="where the run's model is now (default: where it was)"
    )
    category: Annotated[str | None, ARunEach] = Field(
        None, description="which category, of a run with several; several with commas, a run each"
    )
    ablation: Ablation = Field("mean", description="an ablated head writes its mean, or nothing")
    outcome: Annotated[str, Changes.TABLES] = Field(
        "beta,log_odds",
        description="what is measured, with commas: beta (where there are twins), log_odds, pvf "
        "(R, R_p and R_v of words)",
    )
    pvf: Path | None = Field(
        None,
        description="with --outcome pvf: folder that `tdabias pvf` wrote, whose words, templates "
        "and classes are read (default: he and she for 120 occupations)",
    )
    curve: bool = Field(
        False,
        description="ablate 1, 2, 4, ... heads by rankings: how much bias remains, at what cost in "
        "perplexity",
    )
    rank_by: str = Field(
        "evidence,importance,effect",
        description="with --curve: rankings, with commas: maps of the run (evidence, location, "
        "relative, metric, statistic), importance, effect; random orders are always drawn",
    )
    windows: int = Field(
        8, ge=1, le=MAX_COUNT, description="with --curve: windows of the neutral text, drawn"
    )
    width: int = Field(
        256,
        ge=8,
        le=4096,
        description="with --curve: tokens of a window; the stride is half",
    )
    precision: Precision = Field(
        "float32",
        description="precision of matrix products while heads are ablated: float32, or bfloat16, "
        "faster on processors with instructions for it, and rounded",
    )
    data: str | None = Field(None, description="source of triples (default: the run's)")
    out: Out = Field(
        None, description="folder for the files (default: RUN/ablate, RUN/ablate-curve)"
    )

    @field_validator("rank_by")
    @classmethod
    def _known(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if set(names) - {*_RANKINGS}:
            raise ValueError(f"must name rankings among {', '.join(_RANKINGS)}; got {value!r}")
        return ",".join(names)

    @field_validator("outcome")
    @classmethod
    def _known_outcomes(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",")]
        if set(names) - {*_OUTCOMES}:
            raise ValueError(f"must name outcomes among {', '.join(_OUTCOMES)}; got {value!r}")
        return ",".join(dict.fromkeys(names))

    @property
    def outcomes(self) -> frozenset[str]:
        """The outcomes, each once."""
        return frozenset(self.outcome.split(","))

    @property
    def by_content(self) -> frozenset[str]:
        """The run of words, wherever it is."""
        return frozenset({"pvf"})

    @model_validator(mode="after")
    def _options_of_one_form(self) -> AblateSettings:
        for name in sorted(self.unread - {"curve"}):
            by_default = AblateSettings.model_fields[name].default
            if name in self.model_fields_set and getattr(self, name) != by_default:
                only = "without" if self.curve else "with"
                raise ValueError(f"`{name}` goes {only} --curve")
        if self.pvf is not None and "pvf" not in self.outcomes:
            raise ValueError("`pvf` is a run whose words are read with --outcome pvf; give both")
        if not self.curve and self.n_random < 20:
            raise ValueError(f"`n_random` must be at least 20; got {self.n_random}")
        return self

    @property
    def unread(self) -> frozenset[str]:
        """Options of the other form."""
        return frozenset(_ONE_STEP if self.curve else ("curve", *_CURVE))

    @property
    def form(self) -> str:
        """Which of the command's runs is meant."""
        return "ablate curve" if self.curve else "ablate"

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return self.out or self.run / self.form.replace(" ", "-")


@dataclass(frozen=True)
class Asked:
    """The run whose heads are ablated, one of its categories, and the texts."""

    heads: HeadBias
    category: str
    texts: Texts
    words: RiskReport | None = None  # of the run of pvf that is named

    def identity(self, settings: AblateSettings, config: BaseModel) -> dict[str, Any]:
        """The settings that must be unchanged for parts on disk to be reused."""
        how = settings.model_dump(include={"ablation", "precision", "batch_size"})
        weights = self.heads.record.model.weights
        run = {"weights": weights, "category": self.category, "rank_by": self.heads.rank_by}
        return {**run, **how, **identity(config)}

    @property
    def about(self) -> dict[str, Any]:
        """The twins, for the record of the run; None if there are none."""
        twins = self.texts.twins
        return {"twins": None if twins is None else twins.record()}


def asked(settings: AblateSettings) -> Asked:
    """The run, and the texts that it read or that are given."""
    from tda_bias.heads.result import HeadBias

    heads = HeadBias.load(settings.run)
    category = category_of(heads, settings.category)
    if settings.curve:
        reach_hub_for(heads.record.model.name, also=text_comes_from_hub(settings.text))
    words = _words(settings, heads)
    texts = triples_of_run(heads.record, category, settings)
    if "outcome" in settings.model_fields_set and "beta" in settings.outcomes:
        refuse_without_twins(texts)
    return Asked(heads, category, texts, words)


def _words(settings: AblateSettings, heads: HeadBias) -> RiskReport | None:
    """The run of pvf whose words are read, where one is named."""
    if settings.pvf is None:
        return None

    from pvf.report import load_report
    from tda_bias.crossref.crossref import same_model

    report = load_report(settings.pvf)
    same_model(heads.record, report.preferences.record)
    return report


def refuse_without_twins(texts: Texts) -> None:
    """Refuse to measure beta where nothing has a twin."""
    if texts.twins is None:
        raise InputError(
            "`outcome` beta compares texts with their twins, and these have none; leave beta out"
        )


def _ablator(settings: AblateSettings, asked: Asked, work: Work) -> Ablator:
    """The run's model on the triples and their twins."""
    from tda_bias.ablation.ablator import Ablator

    # Without hooks on every part it is faster, and heads are ablated at the projections anyway.
    record, texts = asked.heads.record, asked.texts
    model = work.model(model_of(record, settings.model), dtype=record.model.dtype)
    refuse_other_weights(model, record)
    twins = texts.twins if settings.curve or "beta" in settings.outcomes else None
    told = told_apart(model.token_ids, texts.items, twins)
    read = [text for triple in told.triples for text in triple.texts()]
    for remark in told.remarks + model.special_remarks(read):
        say(settings.console, remark)
    return Ablator(
        model,
        told.triples,
        twins=[told.twins.of(triple) for triple in told.triples] if told.twins is not None else (),
        ablation=settings.ablation,
        batch_size=settings.batch_size,
        precision=settings.precision,
    )


def study(settings: AblateSettings, asked: Asked, work: Work) -> AblationStudy:
    """Remove the top heads one by one and together, and random ones."""
    ablator = _ablator(settings, asked, work)

    from tda_bias.ablation.study import ablation_study
    from tda_bias.ablation.word_outcome import WordRisk, WordsAsked
    from tda_bias.plots.behaviour import ablation_figure

    outcomes = []
    if "pvf" in settings.outcomes:
        words = WordsAsked.published() if asked.words is None else WordsAsked.of(asked.words)
        outcomes = [WordRisk(ablator.model, words, batch_size=settings.batch_size)]
    config = part_of(settings, StudyConfig)
    title = f"{asked.heads.record.model.name} · {asked.category}"
    with work.progress(title, "tokens") as progress:
        result = ablation_study(
            ablator,
            asked.heads,
            category=asked.category,
            triples=bool(settings.outcomes & {"beta", "log_odds"}),
            outcomes=outcomes,
            config=config,
            cache=work.cache(asked.identity(settings, config)),
            progress=progress,
        )
    figures = {"effects": ablation_figure(result)}
    return work.saved(
        result,
        figures=figures,
        run=str(settings.run),
        pvf=settings.pvf and str(settings.pvf),
        **asked.about,
    )


def curve(settings: AblateSettings, asked: Asked, work: Work) -> PruneCurve:
    """Remove more and more heads by rankings, and by random orders."""
    import numpy as np

    from tda_bias.ablation.prune_curve import named_rankings, prune_curve, split_targets
    from tda_bias.plots.behaviour import plot_prune_curve
    from tda_bias.scores.perplexity import text_windows
    from tda_bias.show.figures import print_style

    with given_as("text"):
        text = load_neutral_text(settings.text)
    _, targets = split_targets(asked.texts.items, seed=settings.seed)
    ablator = _ablator(settings, asked, work)
    choosing = np.array([triple.group in targets for triple in ablator.triples])
    model, category = ablator.model, asked.category
    windows = text_windows(
        model, text.text, width=settings.width, sample=settings.windows, seed=settings.seed
    )
    names, config = settings.rank_by.split(","), part_of(settings, CurveConfig)
    neutral = {"rankings": names, "windows": settings.windows, "width": settings.width}
    with work.progress(f"{model.name} · {category}", "tokens") as progress:
        result = prune_curve(
            ablator,
            named_rankings(names, asked.heads, category, ablator, choosing),
            windows,
            choosing=choosing,
            config=config,
            cache=work.cache({**asked.identity(settings, config), **neutral}),
            progress=progress,
        )
    of_text = {"source": text.source, "revision": text.revision}
    with print_style():
        return work.saved(
            result,
            figures={"prune_curve": plot_prune_curve(result.curve)},
            run=str(settings.run),
            category=category,
            windows=result.record.windows | of_text,
            **asked.about,
        )
