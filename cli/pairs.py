"""``tdabias pairs``: which text of a minimal pair does the model prefer?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from tda_bias.config import PairsConfig
from tda_bias.pairs import SETS
from tda_bias.store.identity import Changes
from tda_bias.types import InputError

from .loading import Texts, pairs_of
from .settings import (
    DtypeOption,
    LimitOption,
    ModelOption,
    Out,
    Several,
    SharedRunSettings,
    folder_name,
)


class PairsSettings(ModelOption, DtypeOption, LimitOption, PairsConfig, SharedRunSettings):
    """Settings of ``tdabias pairs``."""

    pairs: Annotated[str, Changes.NOTHING] = Field(
        description="crows, winobias, winogender, blimp, crows-fr, crows-nl, crows-en-revised, or "
        "a file of your pairs (JSON Lines, CSV or TSV: id, group, more, less)",
    )
    data: Annotated[str | None, Changes.NOTHING] = Field(
        None,
        description="where a named set is read: packaged, hub, or its own file or folder (default: "
        "what ships, else the folder that TDABIAS_PAIRS names, else the hub)",
    )
    group: Annotated[tuple[str, ...], Several] = Field(
        (), description="only this occupation, bias type or paradigm; may be given several times"
    )
    out: Out = Field(None, description="folder for the files (default: runs/MODEL/pairs-SET)")

    @model_validator(mode="before")
    @classmethod
    def _own_pairs_are_a_set(cls, values: Any) -> Any:
        if values.get("pairs") is None and values.get("data") is not None:
            raise ValueError(
                "`data` says where a named set is read, and `pairs` is missing; give a file of "
                f"your own pairs to --pairs; got --data {values['data']}"
            )
        return values

    @property
    def subject(self) -> str:
        """The name of the set of pairs, or of its file."""
        return self.pairs if self.pairs in SETS else Path(self.pairs).stem

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        by_default = Path("runs") / folder_name(self.model) / f"pairs-{Path(self.pairs).stem}"
        return self.out or by_default


def texts(settings: PairsSettings) -> Texts:
    """The pairs that are asked for."""
    if settings.pairs not in SETS and not Path(settings.pairs).is_file():
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)}, or a readable file; got {settings.pairs!r}"
        )
    read = pairs_of(settings, settings.pairs, settings.data)
    return Texts(read, read.record)
