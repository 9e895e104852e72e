"""What ``tdabias crossref`` prints, over targets and over items."""

from __future__ import annotations

from pathlib import Path

from tda_bias.crossref.crossref import CrossReference, match_counts
from tda_bias.crossref.finding import item_finding, target_finding
from tda_bias.crossref.item_crossref import ItemCrossReference
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec, head_name, interval_of
from tda_bias.show.text import counted, report_of

_WAYS = {"raw": "as they are", "length": "less length", "twins": "less twins"}
_SETS = {0: "births", 1: "deaths"}


def shown(result: CrossReference, folder: Path, *, top: int = 10) -> Output:
    """The correlations with the smallest p, what survives, and what could have been found."""
    about = f"{counted(len(result.targets), 'target')} ({match_counts(result.targets)})"
    columns = [
        Column("quantity", "{quantity}", left=True),
        Column("with", "{summary}", left=True),
        Column("Spearman", "{spearman:.2f}"),
        Column("p", "{p:p}"),
        Column("95 % interval", interval_of("low", "high")),
        Column("partial p", "{p_partial:p}"),
        Column("q", "{q:p}"),
    ]
    first = result.correlations.sort_values("p", kind="stable").head(8)
    title = f"{result.record.model.name} · {about}"
    return Output(
        finding=target_finding(result).then(report_of(folder)),
        shown=[TableSpec(title, first, columns)],
        values={
            "model": result.record.model,
            "targets": result.targets,
            "correlations": result.correlations,
        },
        rows=result.correlations,
        folder=folder,
        files="targets.csv, correlations.csv, head_map.csv, targets.png, ...",
    )


def items_shown(result: ItemCrossReference, folder: Path, *, top: int = 10) -> Output:
    """Number of heads that go with the preference, for each way to compare."""
    columns = [
        Column("compared", lambda row: _WAYS[row["way"]], left=True),
        Column("of heads", lambda row: f"{row['measure']} of {_SETS[row['dim']]}", left=True),
        Column("items", "{n}"),
        Column("p < .05\n(by chance)", "{p05} ({expected:.1f})"),
        Column("family-\nwise", "{family_wise}"),
        Column("rho", "{largest:n2}"),
        Column("at", lambda row: head_name(row) if row["heads"] else ""),
    ]
    tables = []
    for category, own in result.summary.groupby("category", sort=False):
        title = (
            f"{result.record.model.name} · {category} · {own['heads'].max()} heads against "
            "log-odds or beta, item by item · largest rho and its head"
        )
        tables.append(TableSpec(title, own, columns, uncut=True))
    return Output(
        finding=item_finding(result).then(report_of(folder)),
        shown=tables,
        values={"model": result.record.model, "summary": result.summary},
        rows=result.summary,
        folder=folder,
        files="heads.csv, summary.csv, run.json",
    )
