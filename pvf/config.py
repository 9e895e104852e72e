"""The settings of reading preferences and of computing risk."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tda_bias.config import BatchOption, ConfidenceOption, DrawsOption

Forms = Literal["word", "bare"]
Kind = Literal["gender", "race"]
Quantity = Literal["r", "r_p", "r_v"]


class ScoreConfig(BatchOption):
    """Settings of reading word probabilities from a model."""

    forms: Forms = Field(
        "word",
        description="tokens of a word: at the start of a word, or the bare vocabulary entry, as "
        "the published code has it",
    )


class RiskConfig(ConfidenceOption, DrawsOption):
    """Settings of risk from preferences; none of them needs the model."""
