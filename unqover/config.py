"""The settings of asking a model and of the numbers that follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tda_bias.config import (
    BatchOption,
    ChatOption,
    ConfidenceOption,
    DrawsOption,
    SeedOption,
)
from tda_bias.store.identity import Changes
from tda_bias.types import MAX_RESAMPLES

Ask = Literal["auto", "cloze", "question", "mask", "span"]


class DesignConfig(SeedOption):
    """The part of a class that is asked about; sampling never looks at scores."""

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


class AskConfig(BatchOption):
    """Settings of asking a model."""

    ask: Ask = Field(
        "auto",
        description="cloze: score sentences that name a subject; question: score answers; mask; "
        "span; auto takes what the model was trained for, cloze for causal ones",
    )


class InferenceConfig(ConfidenceOption, DrawsOption):
    """Settings of tests and intervals; none of them needs the model."""

    n_flips: Annotated[int, Changes.TABLES] = Field(
        200, ge=19, le=MAX_RESAMPLES, description="sign flips for the chance level of mu and eta"
    )
    n_bootstrap: Annotated[int, Changes.TABLES] = Field(
        1000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples"
    )


class BBQConfig(BatchOption, ChatOption, ConfidenceOption, DrawsOption):
    """Settings of ``bbq_scores``."""

    ask: Literal["text", "letter"] = Field(
        "text",
        description="text: score the text of each answer; letter: list the options, in their three "
        "rotations, and score (a), (b) and (c)",
    )
