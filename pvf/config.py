"""The settings of reading preferences and of computing risk, validated once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pvf.risk import Scale, norm_order
from tda_bias.types import MAX_BATCH, MAX_RESAMPLES, MAX_SEED, InputError

Aggregate = Literal["sum", "mean"]
Forms = Literal["word", "capitals", "bare"]
Kind = Literal["gender", "race"]
Quantity = Literal["r", "r_p", "r_v"]


def _known_norm(criterion: str) -> str:
    try:
        norm_order(criterion)
    except InputError as error:
        raise ValueError(str(error).removeprefix("`criterion` ")) from None
    return criterion


Criterion = Annotated[str, AfterValidator(_known_norm)]


class ScoreConfig(BaseModel):
    """How word probabilities are read from a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="prompts per forward pass")
    forms: Forms = Field(
        "word",
        description="tokens of a word: at the start of a word; the same and capitalised, added; or "
        "the bare vocabulary entry, as the published code has it",
    )
    bos: Literal["auto", "always", "never"] = Field(
        "auto",
        description="causal models: token for the beginning of the text, as the tokenizer does it, "
        "or always, or never",
    )
    mask_end: Literal["none", "period"] = Field(
        "none", description="masked models: what stands behind the mask of a template that ends"
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
    """How preferences become risk; none of it needs the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    aggregate: Aggregate = Field("sum", description="of the words of a class")
    criterion: Criterion = Field(
        "linf", description="norm of the positive stereotype: linf, l1, l2, ..."
    )
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
    n_resamples: int = Field(2000, ge=100, le=MAX_RESAMPLES, description="bootstrap resamples")
    interval: Literal["BCa", "percentile"] = Field("BCa", description="bootstrap interval")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="its coverage")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
