"""What ``tdabias pairs`` prints: a set's own score, and how sure it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from tda_bias.pairs import SETS
from tda_bias.scores.brief import pairs_brief
from tda_bias.scores.finding import pairs_finding
from tda_bias.scores.pair_scores import PairSetScores
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec, groups_table, interval_of
from tda_bias.show.text import data_remarks, report_of

# Rows that are printed of a set whose own table has more.
_SHOWN = 12
_HEADINGS = {
    "log_odds": "log-odds",
    "log_odds_female": "log-odds she over he",
    "pct_female_bls": "% women (BLS)",
    "pct_female_bergsma": "% women (Bergsma)",
}


def shown(result: PairSetScores, folder: Path, *, top: int = 10) -> Output:
    """The set's own score, and how sure it is."""
    record = result.record
    return Output(
        finding=pairs_finding(result).led_by(pairs_brief(result)).then(report_of(folder)),
        shown=[official_table(result), *_own_groups(result), *data_remarks(record)],
        values={
            "model": record.model,
            "set": record.set,
            "official": {**record.official.model_dump(), "table": result.official},
            "scores": result.scores,
            "length_split": result.length_split,
        },
        rows=result.scores,
        folder=folder,
        files="items.parquet, scores.csv, official.csv, ...",
    )


def _own_groups(result: PairSetScores) -> list[TableSpec | str]:
    """The groups of a set of one's own, by sums of log-probabilities."""
    if result.record.set in SETS:
        return []
    scores = result.scores
    own = scores[
        (scores["part"] == "group")
        & (scores["scoring"] == "sum")
        & (scores["reading"] == scores["reading"].iloc[0])
    ]
    columns = [
        Column("group", "{name}", left=True),
        Column("pairs", "{items}"),
        Column("preferred", "{preferred:n1}"),
        Column("log-odds", "{log_odds:n2}"),
        Column("interval", interval_of("log_odds_low", "log_odds_high")),
    ]
    return groups_table("Groups, by sums", own, columns, "scores.csv")


def official_table(result: PairSetScores) -> TableSpec:
    """The set's own score, its divisions in rows."""
    table = _official_rows(result)
    title = (
        f"{result.record.model.name} · {result.record.official.name} · "
        f"{result.record.confidence:.0%} intervals"
    )
    names = [name for name in table.columns if not name.endswith(("_low", "_high"))]
    columns = [
        Column(
            _HEADINGS.get(name, name),
            partial(_cell, name=name),
            left=table[name].dtype.kind not in "fiu",
        )
        for name in names
    ]
    return TableSpec(title, table, columns)


def _cell(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, float):
        return str(value)
    digits = 2 if "log_odds" in name else 1
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    known = isinstance(low, float) and isinstance(high, float) and low == low
    interval = f" [{low:.{digits}f}, {high:.{digits}f}]" if known else ""
    return "" if value != value else f"{value:.{digits}f}{interval}"


def _official_rows(result: PairSetScores) -> pd.DataFrame:
    """The part of the official table that is printed."""
    table = result.official.drop(columns=["interval", "undefined", "ties"], errors="ignore")
    match result.record.set:
        case "blimp":
            kept = ["accuracy", *(n for n in table.columns if n.startswith("published"))]
            means = table.groupby("term", sort=False)[kept].mean().reset_index()
            means.insert(1, "paradigms", table.groupby("term", sort=False).size().to_numpy())
            return means
        case "winogender":
            ordered = table.sort_values("log_odds_female", ignore_index=True)
            if len(ordered) > _SHOWN:
                return pd.concat([ordered.head(_SHOWN // 2), ordered.tail(_SHOWN // 2)])
            return ordered
        case _:
            return table
