"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from tda_bias.config import BatchOption, ConfidenceOption, SeedOption
from tda_bias.triples import comes_from_hub, read_sentence_triples

from .loading import Texts, reach_hub_for
from .run import Work
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name

if TYPE_CHECKING:
    from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores


class StereoSetSettings(
    TriplesSettings, TwinsOption, BatchOption, ConfidenceOption, SeedOption, SharedRunSettings
):
    """Settings of ``tdabias stereoset``."""

    task: Literal["intersentence", "intrasentence"] = Field(
        "intersentence",
        description="intersentence: sentences that go on from a context; intrasentence: sentences "
        "that differ in the words of a blank",
    )
    start: Literal["tokenizer", "bos"] = Field(
        "tokenizer",
        description="with --task intrasentence, of causal models: score the first token only where "
        "the tokenizer adds a start token, or (bos) put the model's start token in front",
    )
    out: Out = Field(
        None, description="folder for the files (default: runs/MODEL/stereoset-CATEGORY)"
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        half = "-intrasentence" if self.task == "intrasentence" else ""
        by_default = Path("runs") / folder_name(self.model) / f"stereoset{half}-{self.category}"
        return self.out or by_default

    @property
    def form(self) -> str:
        """Which of the command's runs is meant."""
        return "stereoset" if self.task == "intersentence" else "stereoset intrasentence"

    @model_validator(mode="after")
    def _options_of_one_task(self) -> StereoSetSettings:
        given = self.model_fields_set
        if self.task == "intersentence" and "start" in given:
            raise ValueError("`start` is about whole sentences: give --task intrasentence with it")
        if self.task == "intrasentence" and "twins" in given and self.twins != "none":
            raise ValueError(
                f"`twins` must be none with --task intrasentence, for whose sentences none are "
                f"made; got {self.twins!r}"
            )
        return self


def sentences(settings: StereoSetSettings) -> Texts:
    """The sentences that differ in the words of a blank."""
    reach_hub_for(settings.model, also=comes_from_hub(settings.data, "intrasentence"))
    source, category = read_sentence_triples(settings.data), settings.category
    items = source.chosen(category=category, groups=settings.group, limit=settings.limit)
    return Texts(items, source.record(category))


def triples_scored(settings: StereoSetSettings, texts: Texts, work: Work) -> StereoSetScores:
    """Score the sentences that go on from a context."""
    model = work.model(settings.model)

    from tda_bias.scores.stereoset_scores import stereoset_scores

    with work.progress(f"{model.name} · {settings.category}", "triples") as progress:
        result = stereoset_scores(
            model,
            texts.items,
            twins=texts.twins,
            batch_size=settings.batch_size,
            confidence=settings.confidence,
            seed=settings.seed,
            progress=progress,
            cache=work.cache,
        )
    return work.saved(result)


def sentences_scored(settings: StereoSetSettings, texts: Texts, work: Work) -> SentenceScores:
    """Score the sentences that differ in the words of a blank."""
    model = work.model(settings.model)

    from tda_bias.scores.stereoset_scores import sentence_scores

    with work.progress(f"{model.name} · {settings.category}", "sentences") as progress:
        result = sentence_scores(
            model,
            texts.items,
            start=settings.start,
            batch_size=settings.batch_size,
            confidence=settings.confidence,
            progress=progress,
            cache=work.cache,
        )
    return work.saved(result)
