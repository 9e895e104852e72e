"""A comparison as a finished run: its record and tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.debias.protocol import Protocol
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import Recorded, summary_html
from tda_bias.runs.run import open_run
from tda_bias.runs.writing import writing_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS, FRONTIER, TRAININGS, ITEMS, HEADS = (
    "arms.csv", "frontier.csv", "trainings.csv", "items.parquet", "heads.json",
)  # fmt: skip
PROTOCOL = "protocol.json"


class DebiasRecord(RunRecord):
    """Everything needed to repeat a comparison.

    Attributes:
        category: Of the triples.
        protocol: The protocol, as it was fixed before the first step.
        protocol_hash: Its hash, with what it was applied to.
        fixed: When that was written, in UTC.
        folds: Targets that train, stop and test, fold by fold.
        neutral: The neutral text: source, revision, passages of each part.
        matching: Whether random heads were of the same layers as the first ranking's.
        recommended: The arm whose model is saved: chosen on the stop targets, or asked for.
        verdict: What came out, in a sentence.
        broken: Trainings in which numbers became undefined, and at which step.
        twins: How twins came about; None without.
        seconds: How long it took, in this start of the command.
    """

    command: str = "debias"
    category: str
    protocol: Protocol
    protocol_hash: str
    fixed: str
    folds: list[dict[str, Any]]
    neutral: dict[str, Any]
    matching: str
    recommended: str
    verdict: str
    broken: tuple[str, ...] = ()
    twins: dict[str, Any] | None = None
    seconds: float = 0.0


_ARMS = {
        "arm": str, "how": str, "heads": int, "before": float, "beta": float,
        "rms": float, "perplexity": float, "guard": str, "p": float,
    }  # fmt: skip
_FRONTIER = {
        "arm": str, "draw": int, "check": int, "perplexity": float,
        "beta": float, "rms": float,
    }  # fmt: skip


@dataclass(frozen=True)
class DebiasRun(Recorded):
    """A comparison with its record.

    Attributes:
        arms: From ``summary.arms_table``.
        frontier: From ``summary.frontier_table``.
        record: Everything needed to repeat it.
    """

    arms: pd.DataFrame
    frontier: pd.DataFrame
    record: DebiasRecord

    def __repr__(self) -> str:
        about = f"{self.record.category}, {len(self.arms)} arms"
        return f"DebiasRun({self.record.model.name}: {about})"

    def _repr_html_(self) -> str:
        arms = self.arms[list(_ARMS)]
        return summary_html(repr(self), [self.record.verdict], {"arms on unseen targets": arms})

    def save(
        self,
        folder: str | Path,
        *,
        trainings: pd.DataFrame,
        items: pd.DataFrame,
        heads: dict[str, Any],
        figure: Figure | None = None,
    ) -> list[Path]:
        """Write the tables, the heads, a figure and ``run.json``: all of them, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            run.table(ARMS, self.arms)
            run.table(FRONTIER, self.frontier)
            run.table(TRAININGS, trainings)
            run.table(ITEMS, items)
            run.json(HEADS, heads)
            if figure is not None:
                run.figure("frontier", figure)
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> DebiasRun:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "debias")
        arms, frontier = run.table(ARMS, _ARMS), run.table(FRONTIER, _FRONTIER)
        return cls(arms, frontier, run.record_as(DebiasRecord))
