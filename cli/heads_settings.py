"""Settings of ``tdabias heads``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tda_bias.config import HeadBiasConfig
from tda_bias.types import MAX_COUNT

from .options import part_of
from .settings import FilePath, Name, SharedRunSettings, TriplesSettings, TwinsOption, folder_name

# Folder of the same run with random weights, inside a run.
UNTRAINED = "untrained"


class HeadsSettings(TriplesSettings, TwinsOption, SharedRunSettings, HeadBiasConfig):
    """Every setting of ``tdabias heads``."""

    category: Literal["gender", "profession", "race", "religion", "all"] | None = Field(  # type: ignore[assignment]
        None, description="gender, profession, race, religion or all; required without --pairs"
    )
    pairs: Name | None = Field(
        None,
        description="pairs instead of triples: crows, winobias, winogender, blimp, or a file of "
        "yours (JSON Lines: id, group, more, less); --data says where a named set is read",
    )
    top: int = Field(10, ge=1, le=MAX_COUNT, description="heads to print")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/CATEGORY)"
    )
    untrained: bool = Field(
        False,
        description="also run the same architecture with random weights: what tokens and their "
        "places alone show",
    )
    keep_patterns: int = Field(
        8,
        ge=0,
        le=MAX_COUNT,
        description="heads of each category whose patterns on the texts that carry them most are "
        "kept for `tdabias report`; 0 for none",
    )
    resume: bool = Field(True, description="reuse groups that an earlier run finished")
    dry_run: bool = Field(
        False, description="only count triples, twins, texts and tokens per group; saves nothing"
    )

    @model_validator(mode="after")
    def _texts_of_one_kind(self) -> HeadsSettings:
        if self.pairs is None and self.category is None:
            raise ValueError("`category` is missing; give --category, or --pairs")
        if self.pairs is not None and self.category is not None:
            raise ValueError("`category` is about triples; leave --category out, or --pairs")
        if self.pairs is not None and "twins" in self.model_fields_set and self.twins != "none":
            raise ValueError("`twins` are made of triples; leave --twins out, or --pairs")
        return self

    @property
    def named(self) -> str:
        """The category, or the set of pairs."""
        return self.category or f"pairs-{folder_name(str(self.pairs))}"

    @property
    def folder(self) -> Path:
        """The folder for the files."""
        if self.out is not None:
            return self.out
        return Path("runs") / folder_name(self.model) / self.named

    def analysis(self) -> HeadBiasConfig:
        """The part that the library needs."""
        return part_of(self, HeadBiasConfig)

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        how = set(HeadBiasConfig.model_fields) - {"batch_size", "share_prefix"}
        texts = {"category", "pairs", "group", "limit", "twins"}
        return self.model_dump(include={*texts, *how})
