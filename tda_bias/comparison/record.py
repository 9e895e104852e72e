"""A comparison of two models as a finished run: its record and tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from tda_bias.records.files import RECORD
from tda_bias.records.record import ModelRecord, RecordPart, RunRecord, updated
from tda_bias.records.runs import open_run
from tda_bias.records.tables import columns, counts, finite, flags, numbers, shares
from tda_bias.records.tables import texts as text_column
from tda_bias.records.writing import writing_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NotMeasured(RecordPart):
    """A measure that was left out, and why."""

    name: str
    reason: str


class ComparisonRecord(RunRecord):
    """Everything needed to repeat a comparison of two models; ``model`` is the one before.

    Attributes:
        compares: What was compared.
        after: The other model.
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
    preset: str | None = None
    measures: dict[str, dict[str, Any]]
    not_measured: tuple[NotMeasured, ...] = ()
    n_resamples: int
    n_flips: int
    confidence: float
    seed: int


def _maybe_texts() -> Any:
    return text_column(nullable=True)


_TABLE = columns(
    {
        "outcome": text_column(),
        **{name: numbers() for name in ("before", "after", "change", "low", "high")},
        "p": shares(),
        "guard": _maybe_texts(),
        "p_holm": shares(),
        "worst": numbers(),
        "margin": numbers(),
        "allowed": _maybe_texts(),
        "kind": text_column(),
        "unit": text_column(),
        "primary": flags(),
        "neutral": numbers(),
        "about": text_column(),
        "items": counts(),
        "clusters": counts(),
        "over": text_column(),
        "unpaired": counts(),
        "reason": _maybe_texts(),
    }
)
_ITEMS = columns(
    {
        **{name: text_column() for name in ("outcome", "item", "cluster")},
        **{name: finite() for name in ("weight", "before", "after")},
    }
)


@dataclass(frozen=True)
class ModelComparison:
    """What ``compare_models`` found.

    Attributes:
        table: One row per outcome; see ``models.change_table``.
        items: One row per outcome and item that both models have: ``outcome item cluster weight
            before after``.
        record: Everything needed to repeat it.
    """

    table: pd.DataFrame
    items: pd.DataFrame
    record: ComparisonRecord

    def __repr__(self) -> str:
        names = f"{self.record.model.name}, {self.record.after.name}"
        return f"ModelComparison({names}: {len(self.table)} outcomes)"

    def with_record(self, **entries: Any) -> ModelComparison:
        """The same result with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))

    def save(self, folder: str | Path, *, figure: Figure | None = None) -> list[Path]:
        """Write ``compare.csv``, ``items.parquet``, the figure and ``run.json``: all, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            run.table("compare.csv", self.table)
            run.table("items.parquet", self.items)
            if figure is not None:
                run.figure("compare", figure)
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> ModelComparison:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no comparison of models, or a file is not as it was
                written.
        """
        run = open_run(folder, "compare")
        record = run.record_as(ComparisonRecord)
        table = run.table("compare.csv", _TABLE)
        words = ["guard", "allowed", "reason"]
        table[words] = table[words].fillna("")
        return cls(table, run.table("items.parquet", _ITEMS), record)
