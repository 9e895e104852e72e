"""What ``tdabias crossref`` prints, over targets, over items and over heads."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from tda_bias.crossref.brief import head_brief, item_brief, target_brief
from tda_bias.crossref.crossref import CrossReference, match_counts
from tda_bias.crossref.finding import item_finding, target_finding
from tda_bias.crossref.head_crossref import RISKS, HeadCrossReference, largest
from tda_bias.crossref.head_finding import head_finding, ranking_said
from tda_bias.crossref.item_crossref import ItemCrossReference
from tda_bias.heads.finding import value_name
from tda_bias.heads.summaries import kind_of
from tda_bias.show.names import named
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec, head_name, interval_of
from tda_bias.show.text import counted, report_of

_WAYS = {"raw": "as they are", "length": "less length", "twins": "less twins"}


def shown(result: CrossReference, folder: Path, *, top: int = 10) -> Output:
    """The correlations with the smallest p, what survives, and what could have been found."""
    about = f"{counted(len(result.targets), 'target')} ({match_counts(result.targets)})"
    columns = [
        Column("quantity", lambda row: named(row["quantity"]), left=True),
        Column("with", lambda row: named(row["summary"]), left=True),
        Column("Spearman", "{spearman:.2f}"),
        Column("p", "{p:p}"),
        Column("95 % interval", interval_of("low", "high")),
        Column("partial p", "{p_partial:p}"),
        Column("q", "{q:p}"),
    ]
    first = result.correlations.sort_values("p", kind="stable").head(8)
    title = f"{result.record.model.name} · {about} · T: {value_name(result.record.statistic)}"
    return Output(
        finding=target_finding(result).led_by(target_brief(result)).then(report_of(folder)),
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
    dims = kind_of(result.record.compared).dims
    columns = [
        Column("compared", lambda row: _WAYS[row["way"]], left=True),
        Column("of heads", lambda row: f"{row['measure']} of {dims[row['dim']]}", left=True),
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
        finding=item_finding(result).led_by(item_brief(result)).then(report_of(folder)),
        shown=tables,
        values={"model": result.record.model, "summary": result.summary},
        rows=result.summary,
        folder=folder,
        files="heads.csv, summary.csv, run.json",
    )


def heads_shown(result: HeadCrossReference, folder: Path, *, top: int = 10) -> Output:
    """Rankings against effects, the agreement of the two kinds of effects, the largest effects."""
    record = result.record
    named = f"{record.model.name} · {record.category}"
    ranking = ranking_said(f"z_{record.rank_by}").removeprefix("z, ")
    run = Path(record.heads) if record.heads is not None else folder.parent
    follow = f"tdabias ablate {quote(str(run))} --outcome pvf"
    if record.settings.get("category") is not None:  # a run of heads with several
        follow += f" --category {quote(record.category)}"
    if record.pvf is not None:
        follow += f" --pvf {quote(record.pvf)}"
    return Output(
        finding=head_finding(result)
        .led_by(head_brief(result))
        .then(follow, report_of(run, folder)),
        shown=[
            rankings_table(
                result,
                f"{named} · Spearman over heads with the size of effects, and with the fall of the "
                "risk on ablation; p within layers",
            ),
            agreement_table(result, f"{named} · first order against exact effects"),
            largest_table(
                result, f"{named} · largest effects on ablation, with z of the {ranking}", top
            ),
        ],
        values={
            "model": record.model,
            "unchanged": record.base,
            "correlations": result.correlations,
            "agreement": result.agreement,
            "heads": result.heads,
        },
        rows=result.correlations,
        folder=folder,
        files="heads.csv, correlations.csv, agreement.csv, effects.png, ...",
    )


def rankings_table(result: HeadCrossReference, title: str) -> TableSpec:
    """One row per ranking and risk: the correlations with size and fall."""
    table = result.correlations
    size, fall = (
        table[table["aspect"] == aspect].set_index(["ranking", "risk"])
        for aspect in ("size", "fall")
    )
    columns = ["spearman", "p_within_layers", "q"]
    rows = size.join(fall[columns].add_suffix("_fall"), validate="one_to_one").reset_index()
    return TableSpec(
        title,
        rows,
        [
            Column("ranking", lambda row: ranking_said(row["ranking"]), left=True),
            Column("on", "{risk}", left=True),
            Column("size", "{spearman:n2}"),
            Column("p", "{p_within_layers:p}"),
            Column("q", "{q:p}"),
            Column("fall", "{spearman_fall:n2}"),
            Column("p", "{p_within_layers_fall:p}"),
            Column("q", "{q_fall:p}"),
        ],
        uncut=True,
    )


def agreement_table(result: HeadCrossReference, title: str) -> TableSpec:
    """One row per risk and kind of heads whose effect was measured."""
    columns = [
        Column("on", "{risk}", left=True),
        Column("heads", "{chosen}", left=True),
        Column("number", "{heads}"),
        Column("Spearman", "{spearman:n2}"),
        Column("same sign", "{same_sign:.0%}"),
        Column("exact / first order, median", "{ratio:n2}"),
    ]
    return TableSpec(title, result.agreement, columns)


def largest_table(result: HeadCrossReference, title: str, top: int) -> TableSpec:
    """The heads with the largest effects: exact ones, with the estimates."""
    ranking = f"z_{result.record.rank_by}"
    rows = result.heads.assign(place=result.heads[ranking].rank(ascending=False, method="min"))
    columns = [
        Column("head", head_name, left=True),
        Column("z", f"{{{ranking}:n2}}"),
        Column("rank", "{place:.0f}"),
    ]
    for risk in RISKS:
        columns.append(Column(risk, f"{{exact_{risk}:+.3f}}"))
        columns.append(Column("first\norder", f"{{effect_{risk}:+.3f}}"))
    return TableSpec(title, largest(rows).head(top), columns, uncut=True)
