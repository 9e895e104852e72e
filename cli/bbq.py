"""``tdabias bbq``: BBQ's questions, put to a model or answered in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from tda_bias.config import InOneRun
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.types import MAX_COUNT
from unqover.bbq.answers import read_answers
from unqover.bbq.forms import Language
from unqover.bbq.readers import bbq_comes_from_hub, load_bbq
from unqover.config import BBQConfig

from .loading import Texts, reach_hub_for
from .run import Work
from .settings import ModelName, Out, PlacementSettings, SharedRunSettings, folder_name, part_of

if TYPE_CHECKING:
    from unqover.bbq.result import BBQScores


class BBQSettings(PlacementSettings, BBQConfig, SharedRunSettings):
    """Settings of ``tdabias bbq``."""

    model: Annotated[ModelName | None, Changes.NOTHING] = Field(
        None,
        min_length=1,
        description="hub name, local folder, or smollm2-135m (needs no hub); or give --answers",
    )
    answers: Annotated[str | None, Changes.NOTHING] = Field(
        None,
        description="score the answers of this file, without a model: JSON Lines of category, "
        "example_id and answer (0, 1, 2 or a text), or samples that lm_eval logged",
    )
    category: Annotated[tuple[str, ...], InOneRun] = Field(
        (), description="only this category, as religion; several with commas, in one run"
    )
    language: Language = Field(
        "en", description="of the items: en (BBQ), es (EsBBQ), ca (CaBBQ), ko (KoBBQ), nl or tr"
    )
    data: Annotated[str | None, Changes.NOTHING] = Field(
        None,
        description="file or folder of the items, or hub (BBQ in English; default: what "
        "TDABIAS_BBQ, TDABIAS_ESBBQ or TDABIAS_KOBBQ names, else the hub)",
    )
    limit: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="at most so many items of each category, spread over templates",
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/bbq-CATEGORY)")

    @model_validator(mode="after")
    def _one_source_of_answers(self) -> BBQSettings:
        if (self.model is None) == (self.answers is None):
            said = "both are given" if self.model else "neither is given"
            raise ValueError(f"give --model, which is asked, or --answers, a file; {said}")
        return self

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        language = () if self.language == "en" else (self.language,)
        name = "-".join(["bbq", *map(str.lower, self.category), *language])
        source = folder_name(self.model) if self.model else Path(str(self.answers)).stem
        return self.out or Path("runs") / source / name


def texts(settings: BBQSettings) -> Texts:
    """The items, and the answers where these are given."""
    from_hub = bbq_comes_from_hub(settings.data, settings.language)
    reach_hub_for(settings.model or "smollm2-135m", also=from_hub)
    how: dict[str, Any] = {"language": settings.language, "limit": settings.limit}
    asked = load_bbq(settings.data, categories=settings.category, **how)
    if settings.answers is None:
        return Texts((asked, None), asked.record)
    given = read_answers(settings.answers, asked)
    # Other answers to the same items are other data.
    revision = " ".join(filter(None, (asked.revision, given.revision)))
    return Texts((asked, given), DataRecord(source=asked.source, revision=revision))


def compute(settings: BBQSettings, texts: Texts, work: Work) -> BBQScores:
    """Ask the model, or take the answers as they are, and save the scores."""
    asked, given = texts.items
    config = part_of(settings, BBQConfig)
    if settings.model is None:
        from unqover.bbq.result import answer_scores

        return work.saved(answer_scores(asked, given, config=config))
    model = work.model(settings.model, head="as_trained")

    from unqover.bbq.asking import bbq_scores

    with work.progress(f"{settings.model} · BBQ", "texts") as progress:
        how: dict[str, Any] = {"config": config, "cache": work.cache, "progress": progress}
        result = bbq_scores(model, asked, **how)
    return work.saved(result)
