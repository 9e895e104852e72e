"""The patterns of a few heads on a few texts, kept in half precision for people to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from tda_bias.runs.run import Run
    from tda_bias.runs.writing import RunWriter

TABLE, ARRAYS = "patterns.parquet", "patterns.npz"
# A text of more tokens makes a picture that nobody can read, and a file of a megabyte.
MAX_TOKENS = 64
ROLES = ("stereotype", "anti-stereotype", "twin stereotype", "twin anti-stereotype")
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("category", "id", "role", "text", "tokens"), str),
    **dict.fromkeys(("layer", "head", "length"), int),
}


@dataclass(frozen=True)
class PatternText:
    """A text whose pattern is wanted, and of which head.

    Attributes:
        category: Of the ranking that the head stands in.
        head: The head.
        id: What names the item; see ``triples.triple_ids``.
        role: Which of the item's texts, one of ``ROLES``.
        text: The text.
    """

    category: str
    head: HeadId
    id: str
    role: str
    text: str


@dataclass(frozen=True)
class KeptPatterns:
    """Patterns, one per row of a table.

    Attributes:
        table: ``category layer head id role text tokens length``; tokens as a JSON list.
        patterns: Of every row ``(query, key)``, half precision, as the run read them.
    """

    table: pd.DataFrame
    patterns: Sequence[np.ndarray]

    @classmethod
    def of(
        cls,
        wanted: Sequence[PatternText],
        tokens: Sequence[Sequence[str]],
        patterns: Sequence[np.ndarray],
    ) -> KeptPatterns:
        """From texts, their tokens as they are read, and their patterns."""
        rows = [
            {
                "category": text.category,
                "layer": text.head.layer,
                "head": text.head.head,
                "id": text.id,
                "role": text.role,
                "text": text.text,
                "tokens": json.dumps(list(read)),
                "length": len(read),
            }
            for text, read in zip(wanted, tokens, strict=True)
        ]
        # Without a row no column knows its kind.
        table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
        return cls(table, [np.asarray(pattern, dtype=np.float16) for pattern in patterns])

    def write(self, run: RunWriter) -> None:
        """Add the table and the patterns, end to end, to a run that is being written."""
        flat = [pattern.ravel() for pattern in self.patterns]
        run.table(TABLE, self.table)
        run.arrays(ARRAYS, {"patterns": np.concatenate(flat or [np.zeros(0, np.float16)])})

    @classmethod
    def read(cls, run: Run) -> KeptPatterns:
        """What ``write`` wrote.

        Raises:
            InputError: if the run has none, or a file is not as it was written.
        """
        table, flat = run.table(TABLE, COLUMNS), run.arrays(ARRAYS)["patterns"]
        length = table["length"].to_numpy(int)
        ends = np.cumsum(length**2)
        if len(flat) != (ends[-1] if len(ends) else 0):
            raise InputError(
                f"{run.folder / ARRAYS} does not hold the patterns of {TABLE}; {run.again}"
            )
        parts = np.split(flat, ends[:-1]) if len(ends) else []
        patterns = [part.reshape(n, n) for part, n in zip(parts, length, strict=True)]
        return cls(table, patterns)
