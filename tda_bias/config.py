"""Settings of analyses, validated once; those that several have are declared once, here.

A command's options are the fields of its configuration and of the classes here: name, type, limits,
default and description stand there alone.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from tda_bias.store.identity import Changes
from tda_bias.types import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_RESAMPLES,
    MAX_SEED,
    Adjust,
    Edges,
    HeadId,
    PValue,
    RankBy,
    Summary,
)


def _split(value: Any) -> Any:
    """Names or numbers with commas between them, or ``none``."""
    return () if value in ("none", ["none"], ("none",)) else _each_once(value)


def _each_once(value: Any) -> Any:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        return value
    parts = [item.split(",") if isinstance(item, str) else [item] for item in several]
    flat = [item.strip() if isinstance(item, str) else item for part in parts for item in part]
    if len(set(flat)) < len(flat):
        raise ValueError(f"must name nothing twice; got {value!r}")
    return tuple(flat)


def _in_one_text(value: Any) -> Any:
    """Several names as one text, with commas between them."""
    names = _each_once(value)
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        return value
    if len(names) > 1 and "" in names:
        raise ValueError(f"must have a name before and after each comma; got {value!r}")
    return ",".join(names)


WithCommas = BeforeValidator(_split)
# Several that are read in one run; of a setting that a run has one of, several are a run each.
InOneRun = BeforeValidator(_each_once)
ARunEach = BeforeValidator(_in_one_text)


class Config(BaseModel):
    """Settings, checked once and fixed from there on; what a change changes stands at each."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BatchOption(Config):
    """Number of texts read at once."""

    batch_size: Annotated[int, Changes.NOTHING] = Field(
        32, ge=1, le=MAX_BATCH, description="texts per forward pass"
    )


class SeedOption(Config):
    """Seed of random draws."""

    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")


class DrawsOption(Config):
    """Seed of draws of tests alone: what a model is asked does not depend on it."""

    seed: Annotated[int, Changes.TABLES] = Field(
        0, ge=0, le=MAX_SEED, description="fixes every random draw"
    )


class ConfidenceOption(Config):
    """Coverage of intervals."""

    confidence: Annotated[float, Changes.TABLES] = Field(
        0.95, gt=0.5, lt=1, description="coverage of the intervals"
    )


def _known_summary(name: str) -> str:
    """One of the summaries, or a function by its module."""
    if name not in get_args(Summary) and not re.fullmatch(r"[\w.]+:\w+", name):
        allowed = ", ".join(get_args(Summary))
        raise ValueError(f"must be one of {allowed}, or module:function; got {name!r}")
    return name


class HeadBiasConfig(BatchOption, SeedOption):
    """Settings of ``head_bias``; every value is written to the run record."""

    pvalue: Annotated[PValue, Changes.TABLES] = Field(
        "paired",
        description="p-value within groups that heads.csv corrects: flips within contexts, "
        "relabelling of all texts, or the published one (not calibrated)",
    )
    n_permutations: Annotated[int, Changes.TABLES] = Field(
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
    summary: Annotated[str, AfterValidator(_known_summary)] = Field(
        "graph",
        description="what is compared of a pattern: graph (births and deaths of its graph "
        "filtration, smoothed to one number of steps, as published), graph-exact (the same sets by "
        "their exact 2-Wasserstein distances), flag (persistence landscapes of its flag complex), "
        "flag-wasserstein (Wasserstein distances of these diagrams, for the heads that --heads "
        "names), attention (what the continuation pays to the target and to its context), or "
        "module:function of your own",
    )
    heads: Annotated[tuple[str, ...], WithCommas] = Field(
        (), description="with --summary flag-wasserstein: the heads to compare, as L5H3,L7H0"
    )
    adjust: Adjust = Field(
        "none",
        description="remove a linear effect of text length from the statistic of dispersion "
        "without twins before testing",
    )
    rank_by: Annotated[RankBy, Changes.TABLES] = Field(
        "evidence",
        description="the map that ranks heads: evidence (z of the dispersion test, "
        "with twins where there are any), location (z of the location test), or a published map, "
        "which ranks heads by their noise",
    )

    @field_validator("heads")
    @classmethod
    def _look_like_heads(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(HeadId.of(name)) for name in names)

    @model_validator(mode="after")
    def _fits_the_summary(self) -> HeadBiasConfig:
        if self.heads and self.summary != "flag-wasserstein":
            raise ValueError(
                f"`heads` is for the summary flag-wasserstein; {self.summary} reads all heads"
            )
        if self.edges == "output" and self.summary.startswith("flag"):
            raise ValueError(
                f"`summary` {self.summary} needs weights from 0 to 1, which output edges have not; "
                "use graph, graph-exact, or edges attention"
            )
        return self


class StartOption(Config):
    """Whether a text's first token is scored."""

    start: Literal["tokenizer", "bos"] = Field(
        "tokenizer",
        description="of whole texts and causal models: score the first token only where the "
        "tokenizer adds a start token, or (bos) put the model's start token in front",
    )


class ChatOption(Config):
    """Whether a chat model is asked through its template."""

    chat: Literal["auto", "template", "text"] = Field(
        "auto",
        description="template: ask by the tokenizer's chat template; text: in plain text; auto: by "
        "the template where there is one",
    )
    system: str | None = Field(
        None,
        min_length=1,
        description="system prompt, for the chat template (default: the template's own)",
    )


class StereoSetConfig(BatchOption, ConfidenceOption, DrawsOption):
    """Settings of ``stereoset_scores``."""


class SentenceConfig(BatchOption, ConfidenceOption, StartOption):
    """Settings of ``sentence_scores``."""


class PairsConfig(BatchOption, ConfidenceOption, StartOption):
    """Settings of ``pair_set_scores``."""


class RandomHeadsOption(SeedOption):
    """Number of random sets, or orders, of heads."""

    n_random: int = Field(
        20,
        ge=19,
        le=1000,
        description="random sets of as many heads of the same layers; with --curve random orders "
        "of all heads",
    )


class StudyConfig(RandomHeadsOption):
    """Settings of ``ablation_study``."""

    top: int = Field(
        10, ge=1, le=MAX_COUNT, description="how many heads are taken from each end of the ranking"
    )
    n_permutations: Annotated[int, Changes.TABLES] = Field(
        9999, ge=99, le=MAX_RESAMPLES, description="without --curve: permutations of heads"
    )


class CurveConfig(RandomHeadsOption):
    """Settings of ``prune_curve``."""

    most: int = Field(64, ge=1, le=4096, description="with --curve: heads ablated at most")


class RespondConfig(ChatOption, BatchOption, ConfidenceOption, SeedOption):
    """Settings of ``respond``."""

    samples: int = Field(
        4, ge=1, le=1000, description="responses that are sampled for each prompt and person"
    )
    tokens: int = Field(60, ge=1, le=4096, description="tokens of a response at most")
    greedy: bool = Field(
        False,
        description="the likeliest response in the place of samples: a look at one response, not a "
        "divergence",
    )
    thinking: Literal["off", "on"] = Field(
        "off", description="whether the model thinks first, where its chat template knows that"
    )
    n_permutations: Annotated[int, Changes.TABLES] = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="random ways to part the people of every prompt, for p",
    )


class CompareConfig(BatchOption, ConfidenceOption, SeedOption):
    """Settings of ``compare_models``."""

    n_flips: Annotated[int, Changes.TABLES] = Field(
        9999, ge=99, le=MAX_RESAMPLES, description="exchanges of before and after, by clusters"
    )


class ConfirmConfig(SeedOption):
    """Settings of ``confirmation``."""

    rank_by: Literal["evidence", "location"] = Field(
        "evidence",
        description="the ranking: evidence (z of the dispersion test) or location (z of the "
        "location test)",
    )
    top: int = Field(10, ge=1, le=MAX_COUNT, description="how many heads are chosen")
    n_splits: int = Field(
        200,
        ge=1,
        le=10_000,
        description="how many splits of the targets are drawn; all where there are no more",
    )
    n_permutations: int = Field(
        999, ge=99, le=9999, description="how often labels are exchanged, for the chance level"
    )


class TargetPermutations(DrawsOption):
    """Permutations of a cross-reference."""

    n_permutations: Annotated[int, Changes.TABLES] = Field(
        9999,
        ge=99,
        le=MAX_RESAMPLES,
        description="permutations of targets, with --items of items, with --published and --by "
        "heads of heads",
    )


class CrossrefConfig(TargetPermutations):
    """Settings of ``cross_reference`` and ``published_agreement``."""

    rank_by: Annotated[RankBy | None, Changes.TABLES] = Field(
        None, description="which combined value of a head is T (default: the run's)"
    )


class HeadCrossrefConfig(CrossrefConfig):
    """Settings of ``cross_reference_heads``."""

    top: int = Field(
        10,
        ge=1,
        le=MAX_COUNT,
        description="with --by heads: heads whose effect is measured and not only estimated: those "
        "with the largest estimates, and as many random ones",
    )


class ItemCrossrefConfig(TargetPermutations):
    """Settings of ``cross_reference_items``."""

    scoring: Literal["sum", "mean"] = Field(
        "sum", description="with --items: log-probabilities as sums, or means over tokens"
    )
