"""Neutral text as outcomes: how well it is predicted, and how far predictions have moved."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.comparison.outcome import Guard, Outcome, item_rows
from tda_bias.progress import Progress
from tda_bias.scores.perplexity import (
    PerToken,
    Windows,
    divergence,
    log_perplexity,
    text_windows,
)

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs.neutral import NeutralText

_TWO_PER_CENT = Guard(math.log(1.02), 1, "2 % perplexity")


@dataclass(frozen=True)
class _OfText:
    """Neutral text, as perplexity and divergence read it.

    Attributes:
        text: The neutral text.
        width: Tokens of a window; the model's default if None.
        stride: Tokens from one window to the next; half the width if None.
        sample: So many windows, drawn; all if None.
        seed: Of the draw.
    """

    text: NeutralText
    width: int | None = None
    stride: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {
            "source": self.text.source,
            "revision": self.text.revision,
            "width": self.width,
            "stride": self.stride,
            "sample": self.sample,
            "seed": self.seed,
        }

    def windows(self, model: LanguageModel) -> Windows:
        """The pieces of the text that a model reads; narrower where it takes fewer tokens."""
        limits = [limit for limit in (self.width, model.max_tokens) if limit is not None]
        width = min(limits) if self.width is not None else None
        return text_windows(
            model, self.text.text, width=width, stride=self.stride, sample=self.sample,
            seed=self.seed,
        )  # fmt: skip


@dataclass(frozen=True)
class PerplexityMeasure(_OfText):
    """Log-perplexity of a neutral text."""

    name: str = "perplexity"

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One, which may rise by 2 %."""
        about = "negative log-probability of a token of neutral text"
        return [
            Outcome(
                "log_perplexity",
                "quality",
                "nats per token",
                about,
                guard=_TWO_PER_CENT,
                cluster="window",
            )
        ]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``; an item is a window, named by its tokens."""
        windows = self.windows(model)
        per_token = log_perplexity(model, windows, batch_size=_few(batch_size), progress=progress)
        return _rows("log_perplexity", windows, per_token)


@dataclass(frozen=True)
class DivergenceMeasure(_OfText):
    """KL(before || after) of the predictions of every token of a neutral text."""

    name: str = "divergence"

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One, 0 where nothing has changed."""
        about = "KL(before || after) of predictions on neutral text"
        unit = "KL, nats per token"
        return [Outcome("kl_divergence", "quality", unit, about, cluster="window")]

    def between(
        self,
        before: LanguageModel,
        after: LanguageModel,
        *,
        batch_size: int,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """As in ``Distance``."""
        windows = self.windows(before)
        per_token = divergence(
            before, after, windows, batch_size=_few(batch_size), progress=progress
        )
        return _rows("kl_divergence", windows, per_token)


def _few(batch_size: int) -> int:
    """A window is as long as some eight sentences."""
    return max(1, batch_size // 8)


def _rows(outcome: str, windows: Windows, per_token: PerToken) -> pd.DataFrame:
    seen: Counter[str] = Counter()
    names = []
    for ids, first in zip(windows.ids, windows.first, strict=True):
        name = _name(ids, first)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    value = per_token.total / per_token.n_tokens
    return item_rows(outcome, item=names, cluster=names, value=value, weight=per_token.n_tokens)


def _name(ids: Sequence[int], first: int) -> str:
    """Name of a window whichever model reads it: its tokens, and which of them are scored."""
    tokens = json.dumps([list(ids), first])
    return hashlib.blake2b(tokens.encode(), digest_size=8).hexdigest()
