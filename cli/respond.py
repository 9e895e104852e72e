"""``tdabias respond``: whether the group of a person shows in what a model writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from tda_bias.config import RespondConfig
from tda_bias.responses.persons import (
    USUAL_CATEGORY,
    load_persons,
    people_of,
    refuse_descriptions_twice,
)
from tda_bias.responses.prompts import BUNDLED, load_prompts
from tda_bias.store.identity import Changes
from tda_bias.store.record import DataRecord
from tda_bias.types import MAX_COUNT

from .loading import Texts, reach_hub_for
from .run import Work
from .settings import ModelOption, Out, PlacementSettings, SharedRunSettings, folder_name, part_of

if TYPE_CHECKING:
    from tda_bias.responses.result import Responses

# Prompts and samples of a first look.
_QUICK = {"limit": 12, "samples": 2}


class RespondSettings(ModelOption, PlacementSettings, RespondConfig, SharedRunSettings):
    """Settings of ``tdabias respond``."""

    category: str = Field(
        USUAL_CATEGORY,
        description="gender or race (first names), age (descriptions); with --persons any name",
    )
    persons: Annotated[str | None, Changes.NOTHING] = Field(
        None, description="people of your own: CSV with group (two of them), person, maybe kind"
    )
    prompts: Annotated[str, Changes.NOTHING] = Field(
        BUNDLED,
        description="bundled, or CSV with id, template (with [PERSON]), maybe kind and choices "
        "(yes|no)",
    )
    limit: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="at most so many prompts, spread over kinds"
    )
    quick: Annotated[bool, Changes.NOTHING] = Field(
        False, description="a first look: 12 prompts, 2 samples"
    )
    top: Annotated[int, Changes.NOTHING] = Field(
        10, ge=1, le=MAX_COUNT, description="words to print"
    )
    out: Out = Field(
        None, description="folder for the files (default: runs/MODEL/respond-CATEGORY)"
    )

    @model_validator(mode="before")
    @classmethod
    def _a_first_look(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("quick") in (True, "true", "1"):
            return {**_QUICK, **given}
        return given

    @property
    def subject(self) -> str:
        """What the groups are of: the category, or the file of the user's own people."""
        own = self.persons is not None and "category" not in self.model_fields_set
        return Path(str(self.persons)).stem if own else self.category

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        name = f"respond-{self.subject.replace('/', '-')}"
        return self.out or Path("runs") / folder_name(self.model) / name


def texts(settings: RespondSettings) -> Texts:
    """The prompts, and the people they are about."""
    reach_hub_for(settings.model)
    prompts = load_prompts(settings.prompts, limit=settings.limit)
    persons = load_persons(settings.persons) if settings.persons else people_of(settings.category)
    refuse_descriptions_twice(prompts.prompts, persons)
    # Other people in the same prompts are other data.
    revision = f"{prompts.record.revision} {persons.record.revision}"
    return Texts((prompts, persons), DataRecord(source=prompts.record.source, revision=revision))


def compute(settings: RespondSettings, texts: Texts, work: Work) -> Responses:
    """Sample and read the responses, and save what was found."""
    from tda_bias.responses.respond import respond

    model = work.model(settings.model)
    prompts, persons = texts.items
    with work.progress(f"{model.name} · {settings.subject}", "responses") as progress:
        how: dict[str, Any] = {"config": part_of(settings, RespondConfig), "cache": work.cache}
        result = respond(model, prompts, persons, progress=progress, **how)
    return work.saved(result)
