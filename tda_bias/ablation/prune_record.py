"""A prune curve as a finished run: its record, its tables, saved and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import counted


class PruneCurveRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        run: Folder of the run whose heads are ranked.
        category: Its category.
        quantity: What was brought to 0: ``beta`` or ``log_odds``.
        choosing: Targets on which the number of heads was chosen.
        precision: Of matrix products while heads were removed.
        windows: Of the neutral text: how many of how many, their width and stride.
        twins: How twins came about; None without.
    """

    command: str = "prune-curve"
    run: str
    category: str
    quantity: str
    choosing: tuple[str, ...]
    precision: str = "float32"
    windows: dict[str, Any]
    twins: dict[str, Any] | None = None


_CURVE = {
    "ranking": str,
    "draw": int,
    "k": int,
    "log_ppl": float,
    "log_odds_choose": float,
    "log_odds_test": float,
    "log_odds_test_low": float,
    "log_odds_test_high": float,
}
_CHOSEN = {
    "ranking": str,
    "k": int,
    "choose": float,
    "test": float,
    "d_log_ppl": float,
    "p_random": float,
}


@dataclass(frozen=True)
class PruneCurveRun(SavedResult):
    """A prune curve with its record.

    Attributes:
        curve: As in ``PruneCurve``.
        chosen: As there.
        record: Everything needed to repeat the run.
    """

    COMMAND = "prune-curve"
    RECORD = PruneCurveRecord
    TABLES = (("curve", "curve.csv", _CURVE), ("chosen", "chosen.csv", _CHOSEN))
    SHOWN = (("what is left at the number of heads that was chosen", "chosen"),)

    curve: pd.DataFrame
    chosen: pd.DataFrame
    record: PruneCurveRecord

    def __repr__(self) -> str:
        rankings = counted(len(self.chosen), "ranking")
        about = f"{self.record.category}, {self.record.quantity}, {rankings}"
        return f"PruneCurveRun({self.record.model.name}: {about})"

    @classmethod
    def of(cls, measured: PruneCurve, **about: Any) -> PruneCurveRun:
        """A curve and what is known of how it came about."""
        record = PruneCurveRecord(quantity=measured.quantity, choosing=measured.choosing, **about)
        return cls(measured.curve, measured.chosen, record)
