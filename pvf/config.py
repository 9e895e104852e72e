"""The settings of reading preferences and of computing risk."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tda_bias.types import MAX_BATCH, MAX_SEED

Forms = Literal["word", "bare"]
Kind = Literal["gender", "race"]
Quantity = Literal["r", "r_p", "r_v"]


class ScoreConfig(BaseModel):
    """Settings of reading word probabilities from a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="prompts per forward pass")
    forms: Forms = Field(
        "word",
        description="tokens of a word: at the start of a word, or the bare vocabulary entry, as "
        "the published code has it",
    )


class RiskConfig(BaseModel):
    """Settings of risk from preferences; none of them needs the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
