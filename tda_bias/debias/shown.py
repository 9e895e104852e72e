"""What ``tdabias debias`` prints: its conditions, and their meaning in words."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tda_bias.comparison.after_change import comparing
from tda_bias.debias.brief import debias_brief
from tda_bias.debias.finding import debias_finding
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.summary import quantity_of
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec
from tda_bias.show.text import data_remarks, report_of


def _beta(row: Row) -> str:
    known = not math.isnan(row["low"])  # of fewer than five folds
    return f"{row['beta']:.3f}" + f"\n{row['low']:.3f} to {row['high']:.3f}" * known


_COLUMNS = [
    Column("condition", "{condition}", left=True),
    Column("heads", lambda row: "all" if row["how"] == "full" else str(row["heads"])),
    Column("beta (95 %)", _beta),
    Column("rms", "{rms:.3f}"),
    Column("ppl %", "{perplexity:+.1f}"),
    Column("lms", "{lms:.1f}"),
    Column("guard", lambda row: str(row["guard"]).removesuffix(" pass").replace(" of ", "/")),
    Column("p", lambda row: "" if math.isnan(row["p"]) else f"{row['p']:.2f}"),
]


def shown(run: DebiasRun, folder: Path, *, top: int = 10) -> Output:
    """The table of conditions, and its meaning in words."""
    record, quantity = run.record, quantity_of(run.record.twins)
    title = (
        f"{record.model.name} · {record.category} · {record.protocol.how} · {quantity} on unseen "
        "targets"
    )
    columns = [
        replace(column, heading=column.heading.replace("beta", quantity)) for column in _COLUMNS
    ]
    table = TableSpec(title, run.conditions, columns, uncut=True)
    compare = comparing(
        record.model.name,
        folder / "model",
        category=record.category,
        record=record,
        architecture=record.model.architecture,
    )
    # The original itself cannot be compared with the original.
    next_ = [] if record.unchanged else compare
    return Output(
        finding=debias_finding(record).led_by(debias_brief(run)).then(*next_, report_of(folder)),
        shown=[table, *data_remarks(record)],
        values={"record": record.model_dump(mode="json"), "conditions": run.conditions},
        rows=run.conditions,
        folder=folder,
        files="conditions.csv, heads.json, frontier.png, model/ with its card, ...",
    )
