"""What ``tdabias confirm`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tda_bias.heads.confirmation import Confirmation
from tda_bias.heads.result import HeadBias
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec, head_name
from tda_bias.show.text import Finding
from tda_bias.store.run import Run


def shown(run: Run, folder: Path, *, top: int = 10) -> Output:
    """The output of a finished run."""
    summary = run.json("summary.json")
    finding = Finding(**summary.pop("finding"))
    return output(finding, summary, run.table("confirm.csv"), folder)


def output(
    finding: Finding,
    summary: Mapping[str, Any],
    table: pd.DataFrame,
    folder: Path,
    tables: Sequence[TableSpec] = (),
) -> Output:
    """The finding, and what is printed after it."""
    return Output(
        finding=finding,
        shown=tables,
        values={**summary, "heads": table},
        rows=table,
        folder=folder,
        files="confirm.csv, summary.json, run.json",
    )


def splits_table(result: Confirmation, run: HeadBias, category: str, *, top: int) -> TableSpec:
    """How often each head is chosen on half of the targets, and found on the other half."""
    columns = [
        Column("head", head_name, left=True),
        Column("chosen in", "{chosen:.0%}"),
        Column("then p <= .05 in", "{replicated:.0%}"),
    ]
    edges = ", output edges" * (run.record.config.edges == "output")
    title = (
        f"{run.record.model.name} · {category} · first {top} heads of half of the targets, on the "
        f"other half{edges}"
    )
    return TableSpec(title, result.heads.head(top), columns)


def other_data_table(table: pd.DataFrame, category: str, data: str) -> TableSpec:
    """The heads of a run, tested on other data."""
    columns = [
        Column("head", head_name, left=True),
        Column("z", "{z:.2f}"),
        Column("z there", "{z_other:.2f}"),
        Column("p there", "{p_other:p}"),
        Column("p (Holm)", "{p_holm:p}"),
    ]
    return TableSpec(f"{category} · chosen in the run, tested on {data}", table, columns)
