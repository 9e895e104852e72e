"""What ``tdabias confirm`` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tda_bias.heads.confirmation import Confirmed
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec, head_name
from tda_bias.stats.resampling import LEVEL

# Columns of the heads that were chosen on half of the targets, and of those tested on other data.
_SPLITS = (
    Column("head", head_name, left=True),
    Column("chosen in", "{chosen:.0%}"),
    Column("then p <= .05 in", "{replicated:.0%}"),
)
_OTHER_DATA = (
    Column("head", head_name, left=True),
    Column("z", "{z:.2f}"),
    Column("z there", "{z_other:.2f}"),
    Column("p there", "{p_other:p}"),
    Column("p (Holm)", "{p_holm:p}"),
)


def shown(result: Confirmed, folder: Path, *, top: int = 10) -> Output:
    """The finding, and the heads; items of a trained model stand in the file alone."""
    summary, table = dict(result.summary), result.table
    finding, title = result.finding, summary.pop("title", "")
    del summary["finding"]
    tables = []
    if "chosen" in table:
        tables.append(TableSpec(title, table.head(top), _SPLITS))
    elif "z_other" in table:
        tables.append(TableSpec(title, table, _OTHER_DATA))
        found_again = result.table[result.table["p_holm"] < LEVEL]
        if len(found_again) and finding.brief is not None:
            spec = TableSpec("Heads that are found again", found_again, _OTHER_DATA)
            finding = finding.led_by(replace(finding.brief, shown=[spec]))
    return Output(
        finding=finding,
        shown=tables,
        values={**summary, "heads": table},
        rows=table,
        folder=folder,
        files="confirm.csv, summary.json, run.json",
    )
