"""A prune curve as a finished run: its record, its tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.behaviour.prune_curve import PruneCurve
from tda_bias.records.files import RECORD
from tda_bias.records.record import RunRecord, updated
from tda_bias.records.runs import open_run
from tda_bias.records.tables import columns, counts, finite, numbers, shares, texts
from tda_bias.records.writing import writing_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PruneCurveRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        run: Folder of the run whose heads are ranked.
        category: Its category.
        quantity: What was brought to 0: ``beta`` or ``log_odds``.
        choosing: Targets on which the number of heads was chosen.
        windows: Of the neutral text: how many of how many, their width and stride.
        twins: How twins came about; None without.
    """

    command: str = "prune-curve"
    run: str
    category: str
    quantity: str
    choosing: tuple[str, ...]
    windows: dict[str, Any]
    twins: dict[str, Any] | None = None


_CURVE = columns(
    {
        "ranking": texts(),
        "draw": counts(),
        "k": counts(),
        "log_ppl": finite(),
        "log_odds_choose": numbers(),
        "log_odds_test": numbers(),
        "log_odds_test_low": numbers(),
        "log_odds_test_high": numbers(),
    }
)
_CHOSEN = columns(
    {
        "ranking": texts(),
        "k": counts(),
        "choose": numbers(),
        "test": numbers(),
        "d_log_ppl": finite(),
        "p_random": shares(),
    }
)


@dataclass(frozen=True)
class PruneCurveRun:
    """A prune curve with its record.

    Attributes:
        curve: As in ``PruneCurve``.
        chosen: As there.
        record: Everything needed to repeat the run.
    """

    curve: pd.DataFrame
    chosen: pd.DataFrame
    record: PruneCurveRecord

    @classmethod
    def of(cls, found: PruneCurve, **about: Any) -> PruneCurveRun:
        """A curve and what is known of how it came about."""
        record = PruneCurveRecord(quantity=found.quantity, choosing=found.choosing, **about)
        return cls(found.curve, found.chosen, record)

    def with_record(self, **entries: Any) -> PruneCurveRun:
        """The same run with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))

    def save(self, folder: str | Path, *, figure: Figure | None = None) -> list[Path]:
        """Write the tables, a figure of them and ``run.json``: all of them, or none.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            run.table("curve.csv", self.curve)
            run.table("chosen.csv", self.chosen)
            if figure is not None:
                run.figure("prune_curve", figure)
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> PruneCurveRun:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, "prune-curve")
        curve, chosen = run.table("curve.csv", _CURVE), run.table("chosen.csv", _CHOSEN)
        return cls(curve, chosen, run.record_as(PruneCurveRecord))
