"""StereoSet's intrasentence scores as a finished run: record and tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import counted
from tda_bias.scores.intrasentence import SentenceScores
from tda_bias.scores.stereoset_record import SCORE_COLUMNS, SPLIT_COLUMNS, ScoredTextsRecord

COMMAND = "stereoset intrasentence"


class SentenceRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        start: What stands in front of a causal model's texts.
        n_resamples: Of the bootstrap.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = COMMAND
    kind: str
    texts: ScoredTextsRecord
    start: str
    n_resamples: int
    confidence: float
    seed: int


_HOW = {"reading": str, "scored": str}
_ITEMS = {
    **_HOW,
    **{name: str for name in ("id", "category", "group")},
    **{f"log_prob_{role}": float for role in ("s", "a", "u")},
    **{f"tokens_{role}": int for role in ("s", "a", "u")},
}
# Attribute of ``SentenceRun``, file and columns.
_TABLES = (
    ("items", "items.parquet", _ITEMS),
    ("scores", "scores.csv", {**SCORE_COLUMNS, **_HOW, "undefined": int}),
    ("length_split", "length_split.csv", {**SPLIT_COLUMNS, **_HOW}),
)


@dataclass(frozen=True)
class SentenceRun(SavedResult):
    """Intrasentence scores with their record.

    Attributes:
        items: As in ``SentenceScores``.
        scores: As there.
        length_split: As there.
        record: Everything needed to repeat the run.
    """

    COMMAND = COMMAND
    RECORD = SentenceRecord
    TABLES = _TABLES
    SHOWN = (("scores, with intervals", "scores"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    record: SentenceRecord

    def __repr__(self) -> str:
        return (
            f"SentenceRun({self.record.model.name}: {counted(self.record.texts.triples, 'item')})"
        )

    @classmethod
    def of(cls, scored: SentenceScores, **about: Any) -> SentenceRun:
        """Scores and what is known of how they came about."""
        n = int(scored.items.groupby(["reading", "scored"]).size().iloc[0])
        record = SentenceRecord(texts=ScoredTextsRecord(triples=n, hash=scored.texts_hash), **about)
        return cls(scored.items, scored.scores, scored.length_split, record)
