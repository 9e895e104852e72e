"""The settings of asking a model and of the numbers that follow."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tda_bias.types import MAX_BATCH, MAX_RESAMPLES, MAX_SEED

Ask = Literal["auto", "cloze", "question", "mask", "span"]


class DesignConfig(BaseModel):
    """The part of a class that is asked about; sampling never looks at scores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subjects: int = Field(
        20,
        ge=1,
        le=10_000,
        description="at most so many of each group, or in all where each is its own",
    )
    attributes: int = Field(
        20, ge=1, le=10_000, description="at most so many of each set, kinds in proportion"
    )
    attribute_set: str | None = Field(
        None,
        description="occupations, professions (StereoSet's), conduct or places (default: those of "
        "the class)",
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")


class AskConfig(BaseModel):
    """Settings of asking a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ask: Ask = Field(
        "auto",
        description="cloze: score sentences that name a subject; question: score answers; mask; "
        "span; auto takes what the model was trained for, cloze for causal ones",
    )
    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")


class InferenceConfig(BaseModel):
    """Settings of tests and intervals; none of them needs the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_flips: int = Field(
        200, ge=19, le=MAX_RESAMPLES, description="sign flips for the chance level of mu and eta"
    )
    n_bootstrap: int = Field(1000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
