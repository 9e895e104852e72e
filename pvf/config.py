"""The settings of reading preferences and of computing risk."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tda_bias.types import MAX_BATCH, MAX_SEED

Aggregate = Literal["sum", "mean"]
Criterion = Literal["linf", "l2", "l1"]
Forms = Literal["word", "bare"]
Kind = Literal["gender", "race"]
Quantity = Literal["r", "r_p", "r_v"]
# "pcf": s = (K p - 1) / (K - 1), at most 1 and 1 for certainty; the published tables use it.
# "bvf": s = K p - 1, K - 1 times the other.
Scale = Literal["pcf", "bvf"]


class ScoreConfig(BaseModel):
    """Settings of reading word probabilities from a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="prompts per forward pass")
    forms: Forms = Field(
        "word",
        description="tokens of a word: at the start of a word, or the bare vocabulary entry, as "
        "the published code has it",
    )
    masked_words: Literal["one_token", "left_to_right"] = Field(
        "one_token",
        description="masked models: leave out words of several tokens, or read them with as many "
        "masks from left to right",
    )
    share_prefix: Literal["auto", "never"] = Field(
        "auto", description="run what prompts and words share once, where that is exact"
    )


class RiskConfig(BaseModel):
    """Settings of risk from preferences; none of them needs the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    aggregate: Aggregate = Field("sum", description="of the words of a class")
    criterion: Criterion = Field("linf", description="norm of the positive stereotype")
    scale: Scale = Field("pcf", description="stereotypes up to 1 (pcf) or to K - 1 (bvf)")
    definition: Literal["paper", "one_sided"] = Field(
        "paper", description="risk as the papers define it, or as the published code computes it"
    )
    template_weights: Literal["counts", "uniform"] = Field(
        "counts", description="weights of the templates"
    )
    min_mass: float = Field(
        0.0, ge=0, lt=1, description="leave out prompts that give the words less probability"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="coverage of the intervals")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
