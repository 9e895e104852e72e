"""What ``tdabias stereoset`` prints: scores, what of them is about the target, how to read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from tda_bias.scores.beta_parts import PARTS
from tda_bias.scores.brief import sentences_brief, stereoset_brief
from tda_bias.scores.finding import PER, scored_name, sentences_finding, stereoset_finding
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec, groups_table, interval_of
from tda_bias.show.text import (
    counted,
    data_option,
    data_remarks,
    interval_text,
    number_text,
    p_text,
    report_of,
)
from tda_bias.types import CATEGORIES

_FILES = "scores.csv, items.parquet, run.json, ..."
# Nats by which two readings of one text may differ.
_NO_CHANGE = 1e-3


def shown(result: StereoSetScores, folder: Path, *, top: int = 10) -> Output:
    """The scores, what of them is about the target, and how to read them."""
    name, scores = result.record.model.name, _of_all(result.scores)
    title = f"{name} · StereoSet intersentence · {_coverage(result)}"
    tables, twinned = [TableSpec(title, scores, [_BY, *_SCORE_COLUMNS], uncut=True)], {}
    if result.has_twins:
        tables += [_twin_table(result), *_part_tables(result)]
        twinned = {
            "beta": result.beta,
            "beta_parts": result.beta_parts,
            "placebo_beta": result.placebo_beta,
        }
    if not result.placebo_beta.empty:
        tables.append(_placebo_table(result))
    groups = _own_groups(result.beta if result.has_twins else result.scores)
    categories = [category for category in result.scores["category"].unique() if category != "all"]
    category = quote(categories[0]) if len(categories) == 1 else "all"
    data = data_option(result.record)
    return Output(
        finding=stereoset_finding(result)
        .led_by(stereoset_brief(result))
        .then(
            f"tdabias heads --model {quote(name)} --category {category}{data}", report_of(folder)
        ),
        shown=[*tables, *groups, *data_remarks(result.record)],
        values={
            "model": result.record.model,
            "scores": result.scores,
            "length_split": result.length_split,
            **twinned,
        },
        rows=result.scores,
        folder=folder,
        files=_FILES,
    )


def sentences_shown(run: SentenceScores, folder: Path, *, top: int = 10) -> Output:
    """The scores of whole sentences and of the words that differ, and how to read them."""
    # Both names in one cell: every cell has two lines, and the table its 80 columns.
    scored = Column("scored", lambda row: f"{scored_name(row)}\n{PER[row['scoring']]}", left=True)
    columns = [scored, *_SCORE_COLUMNS]
    title = f"{run.record.model.name} · StereoSet intrasentence · {_coverage(run)}"
    return Output(
        finding=sentences_finding(run).led_by(sentences_brief(run)).then(report_of(folder)),
        shown=[
            TableSpec(title, _of_all(run.scores), columns, uncut=True),
            *_own_groups(run.scores[run.scores["scored"] == run.scores["scored"].iloc[0]]),
            *data_remarks(run.record),
        ],
        values={
            "model": run.record.model,
            "scores": run.scores,
            "length_split": run.length_split,
        },
        rows=run.scores,
        folder=folder,
        files=_FILES,
    )


def _own_groups(table: pd.DataFrame) -> list[TableSpec | str]:
    """The groups of categories that are not StereoSet's, by sums of log-probabilities."""
    of_groups = (table["scoring"] == "sum") & (table["group"] != "all")
    own = table[of_groups & ~table["category"].isin(["all", *CATEGORIES])]
    names, digits, file = (("lms", "ss"), 1, "scores.csv")
    if "beta" in own:
        names, digits, file = (("log_odds", "beta"), 2, "beta.csv")
    columns = [
        Column("group", "{group}", left=True),
        *(Column(name, f"{{{name}}}") for name in ("category", "items")),
        *(Column(name, f"{{{name}:n{digits}}}") for name in names),
        Column("interval", lambda row: _interval(row, names[-1], digits)),
    ]
    return groups_table("Groups, by sums", own, columns, file)


def _of_all(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows about whole categories, and about everything."""
    return table[table["group"] == "all"].to_dict("records")


def _coverage(result: StereoSetScores | SentenceScores) -> str:
    return f"{result.record.confidence:.0%} intervals"


def _score(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:.1f}\n{_interval(row, name, 0)}"


def _interval(row: Row, name: str, digits: int = 2, over: str = "") -> str:
    text = interval_text(row[f"{name}_low{over}"], row[f"{name}_high{over}"], digits)
    return "none" if text == "no interval" else text


# Of the scores, in the order of the table.
_BY = Column("by", lambda row: PER[row["scoring"]], left=True)
_SCORE_COLUMNS = [
    Column("category", "{category}", left=True),
    Column("items", "{items}"),
    *(Column(name, _score(name)) for name in ("lms", "ss", "icat")),
    Column("ss over\nitems", "{ss_items:.1f}"),
]


def _twin_table(result: StereoSetScores) -> TableSpec:
    """Table of categories with twins subtracted, with intervals and tests.

    In a cell stands a number over its interval over items, then that over whole targets.
    """

    def digits(row: Row) -> int:
        return 2 if row["scoring"] == "sum" else 3

    def value(row: Row, name: str, digits: int) -> str:
        number = number_text(row[name], digits)
        over_targets = _interval(row, name, digits, "_targets")
        return f"{number}\n{_interval(row, name, digits)}\n({over_targets})"

    def p(row: Row, name: str) -> str:
        over_targets = row[f"{name}_targets"]  # where there are five
        also = f"\n\n({p_text(over_targets)})" if over_targets == over_targets else ""
        return p_text(row[name]) + also

    columns = [
        Column("category, by", lambda row: f"{row['category']}, {PER[row['scoring']]}", left=True),
        Column(
            "log-odds",
            lambda row: f"{number_text(row['log_odds'], digits(row))}\nr {number_text(row['r'])}",
        ),
        Column("beta", lambda row: value(row, "beta", digits(row))),
        Column("p", lambda row: p(row, "p")),
        Column("beta > 0, %", lambda row: value(row, "ss_twin", 0)),
        Column("p", lambda row: p(row, "p_ss_twin")),
    ]
    title = f"{result.record.model.name} · triples minus twins · {_coverage(result)}"
    return TableSpec(title, _of_all(result.beta), columns, uncut=True)


def _part_tables(result: StereoSetScores) -> list[TableSpec]:
    """The parts of beta of every category whose swap changes most continuations too."""
    # Where the continuations stay, beta is the context's alone.
    twinned = result.items.dropna(subset="beta_continuations")
    changed = twinned["beta_continuations"].abs() > _NO_CHANGE
    mostly = changed.groupby(twinned["category"]).mean() > 0.5
    tables = []
    for category, own in result.beta_parts.groupby("category", sort=False):
        if not mostly[category]:
            continue
        first = own.iloc[0]
        about = f"{counted(first['items'], 'item')}, {counted(first['targets'], 'target')}"
        title = f"{result.record.model.name} · parts of beta, {category}, nats · {about}"
        columns = [
            Column("part", lambda row: PARTS[row["part"]], left=True),
            Column("mean", "{mean:n2}"),
            Column("over targets", interval_of("low", "high")),
        ]
        tables.append(TableSpec(title, own, columns, uncut=True))
    return tables


def _placebo_table(result: StereoSetScores) -> TableSpec:
    """Beta and its placebos, by sums of log-probabilities."""

    def name(row: Row) -> str:
        which = "" if row["choice"] == "all" else f", word {row['choice']}"
        return f"{row['category']}, {row['kind']}{which}"

    def value(name: str) -> Callable[[Row], str]:
        return lambda row: f"{number_text(row[name])}\n{_interval(row, name)}"

    columns = [
        Column("placebo", name, left=True),
        Column("items", "{items}"),
        Column("targets", "{targets}"),
        *(Column(name, value(name)) for name in ("beta", "placebo", "difference")),
    ]
    title = f"{result.record.model.name} · beta and its placebos, nats · intervals over targets"
    found = result.placebo_beta
    return TableSpec(title, found[found["scoring"] == "sum"], columns, uncut=True)
