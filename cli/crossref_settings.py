"""What ``tdabias crossref`` can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tda_bias.types import MAX_RESAMPLES, MAX_SEED, InputError, RankBy

from .options import Positional
from .settings import FilePath, Name, RunSettings, folder_name


class CrossrefSettings(RunSettings):
    """Everything ``tdabias crossref`` can be told."""

    run: Annotated[FilePath, Positional()] = Field(description="Folder that `tdabias heads` wrote.")
    behaviour: Annotated[FilePath | None, Positional()] = Field(
        None,
        description="Folder that `tdabias pvf` or `tdabias unqover` wrote. With --items: that "
        "`tdabias stereoset` wrote. Not with --published.",
    )
    stereoset: FilePath | None = Field(
        None, description="folder that `tdabias stereoset` wrote: adds its per-target score"
    )
    by: RankBy | None = Field(
        None, description="which combined value of a head is T (default: the run's)"
    )
    match: Literal["exact", "near", "weak"] = Field(
        "exact", description="how loosely an occupation may stand for a target"
    )
    items: bool = Field(
        False, description="item by item: heads against the preference of tdabias stereoset"
    )
    scoring: Literal["sum", "mean"] = Field(
        "sum", description="with --items: log-probabilities as sums, or means over tokens"
    )
    published: Name | None = Field(
        None,
        description="a model whose heads others have ranked, for example gpt2: the run's map "
        "beside their rankings",
    )
    n_resamples: int = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="permutations of targets, with --items of items, with --published of heads",
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
    out: FilePath | None = Field(
        None,
        description="folder for the files (default: RUN/crossref); with --items: RUN/items; with "
        "--published: RUN/published-MODEL",
    )

    @property
    def folder(self) -> Path:
        """Where the files go."""
        by_default = "items" if self.items else "crossref"
        if self.published is not None:
            by_default = f"published-{folder_name(self.published)}"
        return self.out or self.run / by_default

    @property
    def said(self) -> Path:
        """The run that says what the model says.

        Raises:
            InputError: if it is not given.
        """
        if self.behaviour is None:
            raise InputError(
                "give the folder that `tdabias pvf` or `tdabias unqover` wrote behind that of the "
                "heads (with --items: that of `tdabias stereoset`), or --published"
            )
        return self.behaviour

    def numbers_depend_on(self) -> dict[str, Any]:
        """Settings that change a number of the run, and the runs that are compared."""
        files = {"behaviour", "stereoset", "published"}
        names = {"by", "match", "scoring", "n_resamples", "seed", *files}
        return self.model_dump(mode="json", include=names)
