"""The small frozen things that cross modules: heads, triples, and the error a person can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

# StereoSet's categories, in their usual order; a user's own texts may have others.
CATEGORIES = ("gender", "profession", "race", "religion")

Role = Literal["stereotype", "anti-stereotype", "unrelated"]
ROLES: tuple[Role, ...] = ("stereotype", "anti-stereotype", "unrelated")

Attention = Literal["causal", "bidirectional"]
Edges = Literal["attention", "output"]
GraphSummary = Literal["graph", "graph-exact"]
Summary = Literal["graph", "graph-exact", "flag", "flag-wasserstein", "attention"]
Ablation = Literal["mean", "zero"]
# Of matrix products.
Precision = Literal["float32", "bfloat16"]
# What is measured of a model with heads ablated: of triples, risks of words, answers to questions.
OutcomeName = Literal["beta", "log_odds", "pvf", "bbq", "respond"]
PValue = Literal["paired", "label", "paper"]
Adjust = Literal["none", "length"]
RankBy = Literal["evidence", "location", "relative", "metric", "statistic"]
# Rankings that are z-values of a test, and the test.
TESTS = {"evidence": "dispersion test", "location": "location test"}
# What orders heads for a curve: the maps of a run, and gradients.
CurveRanking = Literal[RankBy, "importance", "effect"]

# Called with what is done and with all there is.
Progress = Callable[[int, int], None]

# Limits of settings, so that a slip of the finger does not ask for hundreds of gigabytes or days.
# Random draws: a hundred thousand give p-values to five decimals and limits of intervals to three;
# time, and memory where draws are kept, grow with them.
MAX_RESAMPLES = 100_000
# Texts of one forward pass: all of StereoSet would be about half of that.
MAX_BATCH = 16_384
# What every random generator takes.
MAX_SEED = 2**32 - 1
# Rows to print, texts of a group, sentences of a template: more than there are.
MAX_COUNT = 1_000_000

# What is printed with every number that comes from the bundled triples.
STARTER_CAUTION = "The starter triples demonstrate the tool; they do not measure a model."


class InputError(ValueError):
    """Input that cannot be used; one line says what is allowed and what to do."""


class ShareDone(Exception):  # noqa: N818  (nothing went wrong)
    """This process has done its share of the work; another one gathers."""


def in_order(categories: Iterable[str]) -> list[str]:
    """Each category once: StereoSet's in their usual order, then others as they come."""
    present = dict.fromkeys(categories)
    usual = [category for category in CATEGORIES if category in present]
    return [*usual, *(category for category in present if category not in usual)]


@dataclass(frozen=True, order=True, slots=True)
class HeadId:
    """One attention head, both numbers counted from 0; prints as ``L5H3``."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def of(cls, name: str) -> HeadId:
        """The head of a name, as it prints.

        Raises:
            ValueError: if it is no name of a head.
        """
        match = re.fullmatch(r"L(\d{1,4})H(\d{1,4})", name, re.IGNORECASE)
        if match is None:
            raise ValueError(f"must look like L5H3 (layer 5, head 3, from 0); got {name!r}")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class Triple:
    """One context with its three continuations; or two texts that make a pair.

    Attributes:
        group: The StereoSet target, for example ``sister``, or what a pair is about.
        category: StereoSet's bias type, or a domain of the user's own; of a pair, the set's name.
        context: The sentence all three texts begin with; empty for pairs of whole texts.
        stereotype: Its stereotypical continuation.
        anti_stereotype: Its anti-stereotypical continuation.
        unrelated: A continuation that has nothing to do with the context; empty for pairs.
        source: Where the triple stands (file and line, or the data set's identifier), for messages.
    """

    group: str
    category: str
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str
    source: str = ""

    @property
    def is_pair(self) -> bool:
        """Tell whether there is no unrelated text."""
        return not self.unrelated

    def texts(self) -> tuple[str, str, str]:
        """The three full texts in the order of ``ROLES``: context, one space, continuation."""
        before = f"{self.context.strip()} " if self.context else ""
        continuations = (self.stereotype, self.anti_stereotype, self.unrelated)
        stereotype, anti_stereotype, unrelated = (f"{before}{c.strip()}" for c in continuations)
        return stereotype, anti_stereotype, unrelated
