"""The settings of reading preferences and of computing risk."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tda_bias.config import BatchOption, ConfidenceOption, DrawsOption
from tda_bias.store.identity import Changes
from tda_bias.types import InputError

Forms = Literal["word", "bare"]
Kind = Literal["gender", "race"]
Quantity = Literal["r", "r_p", "r_v"]
_NORM = re.compile(r"l(inf|[1-9]\d{0,5})")


def norm_order(criterion: str) -> float:
    """The k of the norm l^k that a criterion names: ``l1``, ``l2``, ... up to ``linf``.

    Raises:
        InputError: if it names none.

    Examples:
        >>> norm_order("l3"), norm_order("linf")
        (3.0, inf)
    """
    match = _NORM.fullmatch(criterion) if isinstance(criterion, str) else None
    if match is None:
        raise InputError(
            f"`criterion` must be l1, l2, l3, ... (k at most 999999) or linf; got {criterion!r}"
        )
    return math.inf if match[1] == "inf" else float(match[1])


def _named_norm(criterion: str) -> str:
    norm_order(criterion)
    return criterion


Criterion = Annotated[str, AfterValidator(_named_norm)]


class ScoreConfig(BatchOption):
    """Settings of reading word probabilities from a model."""

    forms: Forms = Field(
        "word",
        description="tokens of a word: at the start of a word, or the bare vocabulary entry, as "
        "the published code has it",
    )


class RiskConfig(ConfidenceOption, DrawsOption):
    """Settings of risk from preferences; none of them needs the model."""

    criterion: Annotated[Criterion, Changes.TABLES] = Field(
        "linf",
        description="size of a stereotype over classes: the norm l1, l2, l3, ... or linf, the "
        "largest; a larger k counts more of what is worst alone",
    )
