"""Settings of ``tdabias stereoset``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tda_bias.types import MAX_BATCH, MAX_RESAMPLES, MAX_SEED, InputError

from .settings import FilePath, SharedRunSettings, TriplesSettings, TwinsOption, folder_name


class StereoSetSettings(TriplesSettings, TwinsOption, SharedRunSettings):
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
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    share_prefix: Literal["auto", "never"] = Field(
        "auto", description="run the context of a triple once, where that is exact"
    )
    n_resamples: int = Field(
        2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples of items"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    resume: bool = Field(True, description="reuse triples that an earlier run finished")
    out: FilePath | None = Field(
        None, description="folder for the files (default: runs/MODEL/stereoset-CATEGORY)"
    )

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        half = "-intrasentence" if self.task == "intrasentence" else ""
        by_default = Path("runs") / folder_name(self.model) / f"stereoset{half}-{self.category}"
        return self.out or by_default

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run."""
        names = {"category", "group", "limit", "n_resamples", "confidence", "seed"}
        of_task = "twins" if self.task == "intersentence" else "start"
        return self.model_dump(include={*names, of_task})

    def refuse_options_of_other_task(self) -> None:
        """Refuse what the task has no use for.

        Raises:
            InputError: naming the option.
        """
        given = self.model_fields_set
        if self.task == "intersentence" and "start" in given:
            raise InputError("`start` is about whole sentences: give --task intrasentence with it")
        if self.task == "intrasentence" and "twins" in given and self.twins != "none":
            raise InputError(
                f"`twins` must be none with --task intrasentence, for whose sentences none are "
                f"made; got {self.twins!r}"
            )
