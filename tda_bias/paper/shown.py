"""What ``tdabias crossref --published`` prints: a map of heads beside published rankings."""

from __future__ import annotations

from pathlib import Path

from tda_bias.paper.finding import published_brief, published_finding
from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec
from tda_bias.show.text import report_of


def shown(result: PublishedAgreement, folder: Path, *, top: int = 10) -> Output:
    """Spearman over heads and the heads that two tops share, ranking by ranking, with chance."""
    record = result.record
    columns = [
        Column("category", "{category}", left=True),
        Column("published", "{second}", left=True),
        Column("Spearman", "{spearman:n2}"),
        Column("p", "{p:p}"),
        Column("p within layers", "{p_within_layers:p}"),
        Column(f"of top {record.top} (chance)", "{overlap} ({chance:.1f})"),
        Column("p", "{p_overlap:p}"),
    ]
    title = f"{record.model.name} · {record.by} beside published rankings of {record.published}"
    return Output(
        finding=published_finding(result).led_by(published_brief(result)).then(report_of(folder)),
        shown=[TableSpec(title, result.agreement, columns, uncut=True)],
        values={
            "model": record.model,
            "published": record.published,
            "agreement": result.agreement,
        },
        rows=result.agreement,
        folder=folder,
        files="published.csv",
    )
