"""StereoSet's intrasentence scores as a finished run: record and tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tda_bias.behaviour.intrasentence import SentenceScores
from tda_bias.behaviour.stereoset_record import SCORE_COLUMNS, SPLIT_COLUMNS, ScoredTextsRecord
from tda_bias.records.files import RECORD
from tda_bias.records.record import RunRecord, updated
from tda_bias.records.runs import open_run
from tda_bias.records.tables import columns, counts, numbers, texts
from tda_bias.records.writing import writing_run

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


_HOW = {"reading": texts(), "scored": texts()}
_ITEMS = columns(
    {
        **_HOW,
        **{name: texts() for name in ("id", "category", "group")},
        **{f"log_prob_{role}": numbers() for role in ("s", "a", "u")},
        **{f"tokens_{role}": counts() for role in ("s", "a", "u")},
    }
)
# Attribute of ``SentenceRun``, file and columns.
_TABLES = (
    ("items", "items.parquet", _ITEMS),
    ("scores", "scores.csv", SCORE_COLUMNS.add_columns({**_HOW, "undefined": counts()})),
    ("length_split", "length_split.csv", SPLIT_COLUMNS.add_columns(_HOW)),
)


@dataclass(frozen=True)
class SentenceRun:
    """Intrasentence scores with their record.

    Attributes:
        items: As in ``SentenceScores``.
        scores: As there.
        length_split: As there.
        record: Everything needed to repeat the run.
    """

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    record: SentenceRecord

    def __repr__(self) -> str:
        return f"SentenceRun({self.record.model.name}: {self.record.texts.triples} items)"

    @classmethod
    def of(cls, found: SentenceScores, **about: Any) -> SentenceRun:
        """Scores and what is known of how they came about."""
        n = int(found.items.groupby(["reading", "scored"]).size().iloc[0])
        record = SentenceRecord(texts=ScoredTextsRecord(triples=n, hash=found.texts_hash), **about)
        return cls(found.items, found.scores, found.length_split, record)

    def with_record(self, **entries: Any) -> SentenceRun:
        """The same run with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))

    def save(self, folder: str | Path) -> list[Path]:
        """Write the tables and ``run.json``: all of them, or none.

        Returns:
            The files, ``run.json`` last: where it is, the others are.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            for attribute, name, _ in _TABLES:
                run.table(name, getattr(self, attribute))
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> SentenceRun:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, COMMAND)
        tables = {name: run.table(file, schema) for name, file, schema in _TABLES}
        return cls(**tables, record=run.record_as(SentenceRecord))
