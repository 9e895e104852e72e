"""The settings of one analysis, validated once, and their errors in one line."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tda_bias.types import (
    MAX_BATCH,
    MAX_RESAMPLES,
    MAX_SEED,
    Adjust,
    Edges,
    PValue,
    RankBy,
)


class HeadBiasConfig(BaseModel):
    """Settings of ``head_bias``; every value is written to the run record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(32, ge=1, le=MAX_BATCH, description="texts per forward pass")
    pvalue: PValue = Field(
        "paired",
        description="p-value within groups that heads.csv corrects: flips within contexts, "
        "relabelling of all texts, or the published one (not calibrated)",
    )
    n_permutations: int = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="permutations (flips within contexts, or relabellings) of every test",
    )
    edges: Edges = Field(
        "attention",
        description="weight of an edge: the attention, or the norm of what the head writes from "
        "that token (attention times the norm of its value through the output matrix)",
    )
    adjust: Adjust = Field(
        "none",
        description="remove a linear effect of text length from the statistic of dispersion "
        "without twins before testing",
    )
    rank_by: RankBy = Field(
        "evidence",
        description="the map that ranks heads: evidence (z of the dispersion test, "
        "with twins where there are any), location (z of the location test), or a published map, "
        "which ranks heads by their noise",
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")
