"""Outcomes of a model, item by item.

An outcome is a weighted mean over items: of log-odds over pairs, of wins over terms, of the risk of
words, of negative log-probabilities over windows. So the same test serves for all of them: every
item has a value before and one after, and items of a cluster (a target, an occupation) change
places together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from tda_bias.progress import Progress
from tda_bias.runs.record import RecordPart

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

Kind = Literal["bias", "quality", "knowledge"]
COLUMNS = ("outcome", "item", "cluster", "weight", "value")


@dataclass(frozen=True)
class Guard:
    """A limit to how much worse an outcome may get.

    Attributes:
        margin: The largest loss allowed, in the outcome's unit.
        worse: The sign of a change for the worse.
        allowed: The margin in words.
        wins: Wins and losses that an item counts, where the outcome is their percentage; 0 where it
            is no percentage.
    """

    margin: float
    worse: Literal[1, -1]
    allowed: str
    wins: int = 0


@dataclass(frozen=True)
class Outcome:
    """A number of a model.

    Attributes:
        name: Without spaces.
        kind: Of a bias, of the model's language, or of what it must go on knowing.
        unit: Of its values.
        about: What it is, in a few words.
        neutral: Its value without any preference, where it has one.
        primary: Whether it is one of the outcomes that a comparison is about.
        guard: How much worse it may get; None where nothing is at stake.
        cluster: What items share that are no independent draws.
    """

    name: str
    kind: Kind
    unit: str
    about: str
    neutral: float | None = None
    primary: bool = False
    guard: Guard | None = None
    cluster: str = "target"


class NotMeasured(RecordPart):
    """A measure that was left out, and why."""

    name: str
    reason: str


class Measure(Protocol):
    """Something that is asked of a model, which gives the items of one or several outcomes."""

    @property
    def name(self) -> str:
        """Of the measure, without spaces."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcomes its items belong to."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings: everything that values depend on beside the weights."""

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """One row per outcome and item: ``outcome item cluster weight value``.

        Args:
            model: The model.
            batch_size: Texts per forward pass.
            progress: Called with what is finished and all.
        """


@runtime_checkable
class Distance(Protocol):
    """Something that needs both models at once: how far the one is from the other, per item."""

    @property
    def name(self) -> str:
        """Of the measure, without spaces."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcomes its items belong to."""

    @property
    def about(self) -> Mapping[str, Any]:
        """As in ``Measure``."""

    def between(
        self,
        before: LanguageModel,
        after: LanguageModel,
        *,
        batch_size: int,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """As ``Measure.items``; the distance of a model from itself is 0."""


def item_rows(
    outcome: str,
    *,
    item: Sequence[Any] | pd.Series[Any],
    cluster: Sequence[Any] | pd.Series[Any],
    value: Any,
    weight: Any = 1.0,
) -> pd.DataFrame:
    """The rows of one outcome.

    Args:
        outcome: Its name.
        item: Names of the items, each once.
        cluster: What each belongs to.
        value: Of each.
        weight: Of each, or of all.
    """
    return pd.DataFrame(
        {
            "outcome": outcome,
            "item": [str(name) for name in item],
            "cluster": [str(name) for name in cluster],
            "weight": np.broadcast_to(np.asarray(weight, float), (len(item),)),
            "value": np.asarray(value, float),
        },
        columns=list(COLUMNS),
    )


def equal_weights(groups: pd.Series[Any]) -> np.ndarray:
    """Weights with which a mean over items is the mean over groups of their means."""
    sizes = groups.map(groups.value_counts())
    return np.asarray(1.0 / sizes.to_numpy(float))
