"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from tda_bias.config import BatchOption, ConfidenceOption, SeedOption
from tda_bias.triples import comes_from_hub, load_sentence_triples

from .loading import reach_hub_for, triples_asked
from .options import command
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name
from .work import working

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


@command(StereoSetSettings)
def stereoset(settings: StereoSetSettings) -> None:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score."""
    from tda_bias.scores.shown import sentences_shown, shown

    if settings.task == "intrasentence":
        output = sentences_shown(_sentences(settings), settings.folder)
    else:
        output = shown(_triples(settings), settings.folder)
    output.print(settings)


def _triples(settings: StereoSetSettings) -> StereoSetScores:
    """Score the sentences that go on from a context."""
    texts = triples_asked(settings)
    triples, twins, data = texts.items, texts.twins, texts.record
    with working(settings, "stereoset", settings.folder, data=data) as work:
        model = work.model(settings.model)

        from tda_bias.scores.stereoset_scores import stereoset_scores

        with work.progress(f"{model.name} · {settings.category}", "triples") as progress:
            result = stereoset_scores(
                model,
                triples,
                twins=twins,
                progress=progress,
                cache=work.cache,
                batch_size=settings.batch_size,
                confidence=settings.confidence,
                seed=settings.seed,
            )
        result = result.with_record(settings=settings.recorded(), data=data)
        result.save(settings.folder)
    return result


def _sentences(settings: StereoSetSettings) -> SentenceScores:
    """Score the sentences that differ in the words of a blank."""
    source = settings.data
    reach_hub_for(settings.model, also=comes_from_hub(source, "intrasentence"))
    sentences, data = load_sentence_triples(
        source, category=settings.category, groups=settings.group, limit=settings.limit
    )
    with working(settings, "stereoset intrasentence", settings.folder, data=data) as work:
        model = work.model(settings.model)

        from tda_bias.scores.stereoset_scores import sentence_scores

        with work.progress(f"{model.name} · {settings.category}", "sentences") as progress:
            result = sentence_scores(
                model,
                sentences,
                start=settings.start,
                progress=progress,
                cache=work.cache,
                batch_size=settings.batch_size,
                confidence=settings.confidence,
            )
        result = result.with_record(settings=settings.recorded(), data=data)
        result.save(settings.folder)
    return result
