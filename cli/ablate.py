"""``tdabias ablate``: does ablating the top heads change what the model says?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, model_validator

from tda_bias.config import ARunEach, BatchOption, CurveConfig, StudyConfig, WithCommas
from tda_bias.show.terminal import say
from tda_bias.sources import load_neutral_text, text_comes_from_hub
from tda_bias.store.identity import Changes, identity
from tda_bias.store.settings import given_as
from tda_bias.twins.told_apart import told_apart
from tda_bias.types import (
    MAX_COUNT,
    Ablation,
    CurveRanking,
    InputError,
    OutcomeName,
    Precision,
)

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
    from tda_bias.ablation.readings import Outcome
    from tda_bias.ablation.study import AblationStudy
    from tda_bias.heads.result import HeadBias
    from tda_bias.models.load import LanguageModel
    from tda_bias.responses.result import Responses
    from unqover.bbq.items import BBQSet
    from unqover.config import BBQConfig
# Options that one of the two forms of the command has no use for.
_ONE_STEP = (
    "top", "ablation", "n_permutations", "outcome", "pvf", "bbq", "respond", "samples",
)  # fmt: skip
_CURVE = ("rank_by", "most", "text", "windows", "width")


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
    outcome: Annotated[tuple[OutcomeName, ...], WithCommas, Changes.TABLES] = Field(
        ("beta", "log_odds"),
        min_length=1,
        description="what is measured, with commas: beta (where there are twins), log_odds, pvf "
        "(R, R_p and R_v of words), bbq (bias in BBQ's ambiguous questions; with --limit so many "
        "items of each category), respond (decisions, and with --respond responses; with --limit "
        "those to so many prompts)",
    )
    pvf: Path | None = Field(
        None,
        description="with --outcome pvf: folder that `tdabias pvf` wrote, whose words, templates "
        "and classes are read (default: he and she for 120 occupations)",
    )
    bbq: str | None = Field(
        None,
        description="with --outcome bbq: folder that `tdabias bbq` wrote, whose items are asked as "
        "there; or BBQ's own file or folder, or hub (default: what TDABIAS_BBQ names, else the "
        "hub)",
    )
    respond: Path | None = Field(
        None,
        description="with --outcome respond: folder that `tdabias respond` wrote, along whose "
        "responses the response effect is read (default: the bundled decisions alone)",
    )
    samples: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="with --respond: so many of the run's samples for each prompt and person "
        "(default: all)",
    )
    curve: bool = Field(
        False,
        description="ablate 1, 2, 4, ... heads by rankings: how much bias remains, at what cost in "
        "perplexity",
    )
    rank_by: Annotated[tuple[CurveRanking, ...], WithCommas] = Field(
        ("evidence", "importance", "effect"),
        min_length=1,
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

    @property
    def by_content(self) -> frozenset[str]:
        """The runs of words and responses, wherever they are."""
        return frozenset({"pvf", "respond"})

    @model_validator(mode="after")
    def _options_of_one_form(self) -> AblateSettings:
        for name in sorted(self.unread - {"curve"}):
            by_default = AblateSettings.model_fields[name].default
            if name in self.model_fields_set and getattr(self, name) != by_default:
                only = "without" if self.curve else "with"
                raise ValueError(f"`{name}` goes {only} --curve")
        if self.pvf is not None and "pvf" not in self.outcome:
            raise ValueError("`pvf` is a run whose words are read with --outcome pvf; give both")
        if self.bbq is not None and "bbq" not in self.outcome:
            raise ValueError("`bbq` is where items are read with --outcome bbq; give both")
        if self.respond is not None and "respond" not in self.outcome:
            raise ValueError(
                "`respond` is a run whose responses are read with --outcome respond; give both"
            )
        if self.samples is not None and self.respond is None:
            raise ValueError("`samples` are those of the run that --respond names; give both")
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
    questions: tuple[BBQSet, BBQConfig] | None = None  # of BBQ, and how they are asked
    responses: Responses | None = None  # the run of respond that is named

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
    words, questions = _words(settings, heads), _questions(settings, heads)
    responses = _responses(settings, heads, category)
    texts = triples_of_run(heads.record, category, settings)
    if "outcome" in settings.model_fields_set and "beta" in settings.outcome:
        refuse_without_twins(texts)
    return Asked(heads, category, texts, words, questions, responses)


def _words(settings: AblateSettings, heads: HeadBias) -> RiskReport | None:
    """The run of pvf whose words are read, where one is named."""
    if settings.pvf is None:
        return None

    from pvf.report import load_report
    from tda_bias.crossref.crossref import same_model

    report = load_report(settings.pvf)
    same_model(heads.record, report.preferences.record)
    return report


def _responses(settings: AblateSettings, heads: HeadBias, category: str) -> Responses | None:
    """The run of respond whose responses are read, where one is named: about the same category."""
    from tda_bias.responses.persons import CATEGORIES

    if settings.respond is None:
        if "respond" in settings.outcome and category not in CATEGORIES:
            raise InputError(
                f"`outcome` respond has decisions about people by {', '.join(CATEGORIES)}, and the "
                f"heads are of {category}; name a run about people by {category} with --respond"
            )
        return None

    from tda_bias.crossref.crossref import same_model
    from tda_bias.responses.result import Responses

    run = Responses.load(settings.respond)
    if run.record.greedy:
        raise InputError(
            f"`respond` {settings.respond} was made with --greedy; effects are read along samples"
        )
    same_model(heads.record, run.record)
    if (about := run.record.category) not in (None, category):
        raise InputError(
            f"`respond` {settings.respond} is about people by {about}, and the heads are of "
            f"{category}; name a run about people by {category}"
        )
    if settings.samples is not None and settings.samples > run.record.samples:
        raise InputError(
            f"`samples` must be at most {run.record.samples}, as many as {settings.respond} has "
            f"for each prompt and person; got {settings.samples}"
        )
    return run


def _questions(settings: AblateSettings, heads: HeadBias) -> tuple[BBQSet, BBQConfig] | None:
    """The items of BBQ and how they are asked, where they are an outcome."""
    if settings.curve or "bbq" not in settings.outcome:
        return None

    from unqover.bbq.readers import bbq_comes_from_hub, load_bbq
    from unqover.bbq.result import BBQScores
    from unqover.config import BBQConfig

    how: dict[str, Any] = {"batch_size": settings.batch_size}
    if settings.bbq is not None and (Path(settings.bbq) / "run.json").is_file():
        run = BBQScores.load(Path(settings.bbq))
        return run.asked_again(), run.config.model_copy(update=how)
    reach_hub_for(heads.record.model.name, also=bbq_comes_from_hub(settings.bbq, "en"))
    with given_as("bbq"):
        return load_bbq(settings.bbq, limit=settings.limit), BBQConfig(**how)


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
    twins = texts.twins if settings.curve or "beta" in settings.outcome else None
    told = told_apart(model.token_ids, texts.items, twins)
    for remark in told.remarks + model.special_remarks(told.texts):
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
    from tda_bias.plots.behaviour import ablation_figure

    outcomes = list(_outcomes(settings, asked, ablator.model))
    config = part_of(settings, StudyConfig)
    title = f"{asked.heads.record.model.name} · {asked.category}"
    with work.progress(title, "tokens") as progress:
        result = ablation_study(
            ablator,
            asked.heads,
            category=asked.category,
            triples=not {"beta", "log_odds"}.isdisjoint(settings.outcome),
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
        respond=settings.respond and str(settings.respond),
        prompts=asked.responses and asked.responses.record.data,
        bbq=asked.questions and asked.questions[0].record,
        **asked.about,
    )


def _outcomes(settings: AblateSettings, asked: Asked, model: LanguageModel) -> Iterator[Outcome]:
    """Outcomes other than those of triples: risks of words, bias in BBQ, responses."""
    from tda_bias.ablation.bbq_outcome import BBQBias
    from tda_bias.ablation.respond_outcome import RespondEffect
    from tda_bias.ablation.word_outcome import WordRisk, WordsAsked
    from tda_bias.responses.again import decisions, written_again

    if "pvf" in settings.outcome:
        words = WordsAsked.published() if asked.words is None else WordsAsked.of(asked.words)
        yield WordRisk(model, words, batch_size=settings.batch_size)
    if asked.questions is not None:
        items, config = asked.questions
        yield BBQBias(model, items, config=config)
    if "respond" in settings.outcome:
        run = asked.responses
        amount = {"limit": settings.limit, "samples": settings.samples}
        read = (
            decisions(model, asked.category) if run is None else written_again(model, run, **amount)
        )
        effect = RespondEffect(model, read, batch_size=settings.batch_size)
        say(settings.console, f"Outcome respond reads {effect.read}.")
        yield effect


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
    names, config = list(settings.rank_by), part_of(settings, CurveConfig)
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
