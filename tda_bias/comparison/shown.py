"""What ``tdabias compare`` prints of two models, of two runs, and of samples of lm-eval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tda_bias.comparison.bbq_change import BBQChange
from tda_bias.comparison.beta_agreement import BetaAgreement
from tda_bias.comparison.brief import (
    agreement_brief,
    bbq_brief,
    comparison_brief,
    maps_brief,
    samples_brief,
)
from tda_bias.comparison.finding import (
    after_name,
    agreement_finding,
    bbq_finding,
    comparison_finding,
    maps_finding,
    samples_finding,
)
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.comparison.samples import SampleComparison
from tda_bias.show.names import named
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec, head_name, interval_of
from tda_bias.show.text import counted, interval_text, number_text, p_text, report_of

_CHANGES = [
    Column("outcome", "{outcome}", left=True),
    *(Column(name, f"{{{name}}}") for name in ("before", "after", "change", "interval", "p")),
]
_SHOWN = 10
# The data's own names.
_SHORT = {"ambiguous": "ambig", "disambiguated": "disambig"}


def shown(comparison: ModelComparison, folder: Path, *, top: int = 10) -> Output:
    """The table of changes, the guard in words, and what was not measured."""
    record = comparison.record
    return Output(
        finding=comparison_finding(comparison)
        .led_by(comparison_brief(comparison))
        .then(report_of(folder)),
        shown=list(_tables(comparison)),
        values={
            "before": record.model,
            "after": record.after,
            "replicates": list(record.replicates),
            "outcomes": comparison.table,
            "not_measured": list(record.not_measured),
        },
        rows=comparison.table,
        folder=folder,
        files="compare.csv, items.parquet, compare.png, run.json",
    )


def _tables(comparison: ModelComparison) -> Iterator[TableSpec]:
    """Bias, then quality and knowledge."""
    names = f"{comparison.record.model.name} → {after_name(comparison.record)}"
    kinds = {"bias": ("bias",), "quality and knowledge": ("quality", "knowledge")}
    for title, kept in kinds.items():
        table = comparison.table[comparison.table["kind"].isin(kept)]
        if not table.empty:
            last = "Holm" if title == "bias" else "guard"
            yield TableSpec(
                f"{names} · {title}",
                [_cells(row) for row in table.to_dict("records")],
                [*_CHANGES, Column(last, "{last}")],
                uncut=True,
            )


def samples_shown(comparison: SampleComparison, folder: Path, *, top: int = 10) -> Output:
    """The change of every score, with its standard error."""
    record = comparison.record
    columns = [
        Column("score", "{outcome}", left=True),
        Column("items", "{items}"),
        *(Column(name, f"{{{name}:n3}}") for name in ("before", "after", "change")),
        Column("se", "{error:n3}"),
        Column("interval", lambda row: interval_text(row["low"], row["high"], 3)),
        Column("p", "{p:p}"),
        Column("Holm", lambda row: p_text(row["p_holm"]) if row["primary"] else ""),
    ]
    title = f"{record.model.name} → {record.after.name} · lm-eval samples"
    return Output(
        finding=samples_finding(comparison)
        .led_by(samples_brief(comparison))
        .then(report_of(folder)),
        shown=[TableSpec(title, comparison.table, columns, uncut=True)],
        values={"record": record, "outcomes": comparison.table},
        rows=comparison.table,
        folder=folder,
        files="compare.csv, items.parquet, run.json",
    )


def _cells(row: Row) -> dict[str, str]:
    """The texts of a row."""
    digits = 1 if row["unit"] == "points" else 3
    texts = {name: number_text(row[name], digits) for name in ("before", "after")}
    change = "undefined" if row["change"] != row["change"] else f"{row['change']:+.{digits}f}"
    last = str(row["guard"])
    if row["kind"] == "bias":
        last = p_text(row["p_holm"]) if row["primary"] else ""
    return {
        **texts,
        "outcome": named(row["outcome"]),
        "change": change,
        "interval": interval_text(row["low"], row["high"], digits),
        "p": "" if row["p"] != row["p"] else p_text(row["p"]),
        "last": last,
    }


def beta_shown(comparison: BetaAgreement, folder: Path, *, top: int = 10) -> Output:
    """The agreement of two models' target effects, and how to read it."""
    record = comparison.record
    columns = [
        Column(
            "quantity",
            lambda row: (
                f"{named(row['quantity'])}{'' if row['scoring'] == 'sum' else ' per token'}"
            ),
            left=True,
        ),
        Column("over", "{over}", left=True),
        Column("n", "{n}"),
        Column("r", "{r:n2}"),
        Column("by chance (95 %)", interval_of("chance_low", "chance_high")),
        Column("p", "{p:p}"),
        Column(
            "corrected",
            lambda row: number_text(row["corrected"]) if row["over"] == "targets" else "",
        ),
    ]
    title = f"{record.model.name} and {record.after.name} · {record.category} · agreement"
    return Output(
        finding=agreement_finding(comparison)
        .led_by(agreement_brief(comparison))
        .then(report_of(folder)),
        shown=[TableSpec(title, comparison.agreement, columns, uncut=True)],
        values={"record": record, "agreement": comparison.agreement},
        rows=comparison.agreement,
        folder=folder,
        files="agreement.csv, run.json",
    )


def heads_shown(comparison: HeadsComparison, folder: Path, *, top: int = 10) -> Output:
    """The agreement, the heads that moved, and how to read both."""
    record, moved = comparison.record, comparison.heads
    agreement = [
        Column("over", "{over}", left=True),
        Column("n", "{n}"),
        Column("Spearman", "{rho:n2}"),
        Column("by chance (95 %)", interval_of("chance_low", "chance_high")),
        Column("p", "{p:p}"),
    ]
    names = f"{record.model.name} and {record.after.name}"
    title = f"{names} · {record.category} · agreement of {record.by}"
    tables = [TableSpec(title, comparison.agreement, agreement, uncut=True)]
    if record.matched:
        ordered = moved.reindex(moved["z"].abs().sort_values(ascending=False).index)
        columns = [
            Column("head", head_name, left=True),
            *(Column(name, f"{{{name}:n2}}") for name in ("before", "after", "change", "z")),
            Column("p", "{p:p}"),
            Column("Holm", "{p_holm:p}"),
        ]
        tables.append(TableSpec("Heads that moved most", ordered.head(_SHOWN), columns, uncut=True))
    return Output(
        finding=maps_finding(comparison).led_by(maps_brief(comparison)).then(report_of(folder)),
        shown=tables,
        values={
            "record": record,
            "agreement": comparison.agreement,
            "layers": comparison.layers,
            "heads": moved,
        },
        rows=moved if record.matched else comparison.agreement,
        folder=folder,
        files="agreement.csv, layers.csv, heads.csv, compare.png, run.json",
    )


def bbq_shown(comparison: BBQChange, folder: Path, *, top: int = 10) -> Output:
    """The changes of every measure, paired by items."""
    record = comparison.record
    title = (
        f"{record.model.name} and {record.after.name} · {record.category} · "
        f"{counted(record.items, 'item')} · 95% intervals over templates"
    )
    columns = [
        Column("text", lambda row: _SHORT[row["condition"]], left=True),
        Column("measure", "{measure}", left=True),
        *(Column(name, f"{{{name}:.3f}}") for name in ("before", "after")),
        Column("change", "{change:+.3f}"),
        Column("interval", lambda row: interval_text(row["low"], row["high"], 3)),
        Column("p", "{p:p}"),
    ]
    return Output(
        finding=bbq_finding(comparison).led_by(bbq_brief(comparison)).then(report_of(folder)),
        shown=[TableSpec(title, comparison.changes, columns, uncut=True)],
        values={"record": record, "changes": comparison.changes},
        rows=comparison.changes,
        folder=folder,
        files="changes.csv, run.json",
    )
