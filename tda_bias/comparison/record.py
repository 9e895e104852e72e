"""A comparison of two models as a finished run: its record and tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from tda_bias.runs.record import ModelRecord, RecordPart, RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.run import Run
from tda_bias.runs.text import counted


class NotMeasured(RecordPart):
    """A measure that was left out, and why."""

    name: str
    reason: str


class ComparisonRecord(RunRecord):
    """Everything needed to repeat a comparison of two models; ``model`` is the one before.

    Attributes:
        compares: What was compared.
        after: The other model.
        replicates: The other model as the same training with other seeds left it.
        preset: How much was measured.
        measures: By name, texts and settings of everything that was measured.
        not_measured: What was left out, and why.
        n_resamples: Bootstrap resamples.
        n_flips: Sign flips.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = "compare"
    compares: Literal["models"] = "models"
    after: ModelRecord
    replicates: tuple[ModelRecord, ...] = ()
    preset: str | None = None
    measures: dict[str, dict[str, Any]]
    not_measured: tuple[NotMeasured, ...] = ()
    n_resamples: int
    n_flips: int
    confidence: float
    seed: int


def _maybe_texts() -> Any:
    return str


_TABLE = {
    "outcome": str,
    **{name: float for name in ("before", "after", "change", "low", "high")},
    "p": float,
    "guard": str,
    "p_holm": float,
    "worst": float,
    "margin": float,
    "allowed": str,
    "kind": str,
    "unit": str,
    "primary": bool,
    "neutral": float,
    "about": str,
    "items": int,
    "clusters": int,
    "over": str,
    "unpaired": int,
    "reason": str,
}
_ITEMS = {
    **{name: str for name in ("outcome", "item", "cluster")},
    **{name: float for name in ("weight", "before", "after")},
}


@dataclass(frozen=True)
class ModelComparison(SavedResult):
    """What ``compare_models`` found.

    Attributes:
        table: One row per outcome; see ``models.change_table``.
        items: One row per outcome and item that both models have: ``outcome item cluster weight
            before after``, and ``after_2``, ``after_3``, ... of replicates.
        record: Everything needed to repeat it.
    """

    COMMAND = "compare"
    RECORD = ComparisonRecord
    TABLES = (("table", "compare.csv", _TABLE), ("items", "items.parquet", _ITEMS))
    SHOWN = (("before and after", "table"),)

    table: pd.DataFrame
    items: pd.DataFrame
    record: ComparisonRecord

    def __repr__(self) -> str:
        names = f"{self.record.model.name}, {self.record.after.name}"
        return f"ModelComparison({names}: {counted(len(self.table), 'outcome')})"

    @classmethod
    def _read(cls, run: Run) -> dict[str, pd.DataFrame]:
        tables = super()._read(run)
        words = ["guard", "allowed", "reason"]
        tables["table"][words] = tables["table"][words].fillna("")
        return tables
