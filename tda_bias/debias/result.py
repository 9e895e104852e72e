"""A finished experiment with its record, and how it is read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tda_bias.debias.protocol import Protocol
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult, summary_html
from tda_bias.runs.text import Finding, counted

_CONDITIONS = {
    **{name: str for name in ("condition", "how", "guard")}, "heads": int,
    **{name: float for name in ("before", "beta", "rms", "perplexity", "p")},
}  # fmt: skip
_FRONTIER = {"condition": str, "draw": int, "check": int, "perplexity": float, "beta": float}
_SHOWN = ["condition", "how", "heads", "before", "beta", "rms", "perplexity", "guard", "p"]


def quantity_of(twins: dict[str, Any] | None) -> str:
    """Name of the quantity that a run reports: beta, or without twins the log-odds."""
    return "log-odds" if twins is None else "beta"


class DebiasRecord(RunRecord):
    """Everything needed to repeat an experiment.

    Attributes:
        category: Of the triples.
        protocol: The protocol, as it was fixed before the first step.
        protocol_hash: Its hash, with what it was applied to.
        fixed: When that was written, in UTC.
        folds: Targets that train, validate and test, fold by fold.
        neutral: The neutral text: source, revision, passages of each part.
        matching: Whether random heads were of the same layers as the first ranking's.
        recommended: The condition whose model is saved: chosen on validation targets, or asked for.
        unchanged: Whether that model is the original: no check of its training passed the guards.
        verdict: The outcome, in a sentence.
        broken: Trainings in which numbers became undefined, and at which step.
        twins: How twins came about; None without.
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
    unchanged: bool = False
    verdict: str
    broken: tuple[str, ...] = ()
    twins: dict[str, Any] | None = None


@dataclass(frozen=True, repr=False)
class DebiasRun(SavedResult):
    """An experiment with its record.

    Attributes:
        conditions: From ``summary.conditions_table``.
        frontier: From ``summary.frontier_table``.
        record: Everything needed to repeat it.
    """

    COMMAND = "debias"
    RECORD = DebiasRecord
    TABLES = (
        ("conditions", "conditions.csv", _CONDITIONS),
        ("frontier", "frontier.csv", _FRONTIER),
    )

    conditions: pd.DataFrame
    frontier: pd.DataFrame
    record: DebiasRecord

    def _repr_html_(self) -> str:
        tables = {"conditions on unseen targets": self.conditions[_SHOWN]}
        return summary_html(repr(self), [self.record.verdict], tables)

    def finding(self) -> Finding:
        """The verdict, compared with random heads and with the guard."""
        record, protocol = self.record, self.record.protocol
        quantity = quantity_of(record.twins).capitalize()
        return Finding(
            result=[record.verdict],
            control=[
                f"Random heads: {counted(protocol.n_random, 'set')} {record.matching}. Guards: "
                "both language-model scores, and minimal pairs where they were read, at most "
                f"{protocol.allowed_points:g} lower; perplexity at most "
                f"+{100 * protocol.allowed_perplexity:g} %; of random sets, how many pass.",
            ],
            power=[
                f"With {counted(protocol.n_random, 'random set')} no p can be below "
                f"{1 / (1 + protocol.n_random):.2f}."
            ],
            details=[
                *record.broken,
                f"{quantity}: nats per token, items of targets that a training never saw; "
                f"{protocol.folds_run} of {protocol.n_folds} folds. p: (1 + random sets that leave "
                "as little where the language-model score has fallen by a point) / (1 + random "
                "sets).",
            ],
        )
