"""``tdabias stereoset``: does the model prefer stereotypes, and language to nonsense?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tda_bias.config import SentenceConfig, StereoSetConfig
from tda_bias.triples import comes_from_hub, read_sentence_triples

from .loading import Texts, reach_hub_for
from .settings import Out, SharedRunSettings, TriplesSettings, TwinsOption, folder_name


class StereoSetSettings(
    TriplesSettings, TwinsOption, StereoSetConfig, SentenceConfig, SharedRunSettings
):
    """Settings of ``tdabias stereoset``."""

    task: Literal["intersentence", "intrasentence"] = Field(
        "intersentence",
        description="intersentence: sentences that go on from a context; intrasentence: sentences "
        "that differ in the words of a blank",
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
    def subject(self) -> str:
        """The category."""
        return self.category

    @property
    def unread(self) -> frozenset[str]:
        """Options of the other half."""
        return frozenset({"start"} if self.task == "intersentence" else {"twins", "seed"})

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
    whole = len(source.chosen(category=category))
    return Texts(items, source.record(category), whole=whole)
