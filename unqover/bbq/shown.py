"""What ``tdabias bbq`` prints: whether the model can answer, whom it names, and the controls."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec
from tda_bias.show.text import counted, interval_text, p_text, report_of
from unqover.bbq.brief import bbq_brief
from unqover.bbq.finding import bbq_finding
from unqover.bbq.result import BBQScores

_FILES = "answers.jsonl, items.parquet, scores.csv, controls.csv, run.json"


def shown(result: BBQScores, folder: Path, *, top: int = 10) -> Output:
    """The scores of every category and of all, other scorings, and the controls."""
    return Output(
        finding=bbq_finding(result).led_by(bbq_brief(result)).then(report_of(folder)),
        shown=[*score_tables(result), *_other_scorings(result), controls_table(result)],
        values={
            "model": result.record.model,
            "language": result.record.language,
            "ask": result.record.ask,
            "scores": result.scores,
            "controls": result.controls,
            "left_out": result.left_out,
        },
        rows=result.scores,
        folder=folder,
        files=_FILES,
    )


def score_tables(result: BBQScores) -> list[TableSpec]:
    """A table of each category, and of all if there are several, by the first scoring."""
    table = result.scores[result.scores["scoring"] == result.scores["scoring"].iloc[0]]
    names = list(dict.fromkeys(table["category"]))
    names = names[:-1] if len(names) == 2 else names  # of one category all is the same
    return [_score_table(result, table, name) for name in names]


def _score_table(result: BBQScores, table: pd.DataFrame, category: str) -> TableSpec:
    record, own = result.record, result.items
    first = own[own["scoring"] == own["scoring"].iloc[0]]
    part = first if category == "all" else first[first["category"] == category]
    title = (
        f"{record.model.name} · {category} ({record.language}) · {counted(len(part), 'item')}, "
        f"{counted(part['cluster'].nunique(), 'template')} · {_asked(result)} · "
        f"{record.confidence:.0%} intervals over templates"
    )
    rows = table[(table["category"] == category)].to_dict("records")
    rows = [row for row in rows if row["value"] == row["value"] or row["measure"] != "bias"]
    seen = ""
    for row in rows:
        row["shown"] = "" if row["condition"] == seen else row["condition"]
        seen = row["condition"]
    columns = [
        Column("text", "{shown}", left=True),
        Column("measure", "{measure}", left=True),
        *_numbers(),
        Column("items", "{items}"),
    ]
    return TableSpec(title, rows, columns, uncut=True)


def _asked(result: BBQScores) -> str:
    scoring = result.scores["scoring"].iloc[0]
    said = {"sum": "text, by sums", "mean": "text, per token"}.get(scoring, str(scoring))
    return said if result.record.chat is None else f"{said}, chat template"


def _numbers() -> list[Column]:
    return [Column("value", _value), Column("interval", _interval), Column("p", _p)]


def _value(row: Row) -> str:
    value = row["value"]
    return "undefined" if value != value else f"{value:.3f}"


def _interval(row: Row) -> str:
    return interval_text(row["low"], row["high"], 3) if row["value"] == row["value"] else ""


def _p(row: Row) -> str:
    return "" if row["p"] != row["p"] else p_text(row["p"])


def _other_scorings(result: BBQScores) -> list[TableSpec]:
    """The main numbers by the other scorings, over all categories."""
    others = list(dict.fromkeys(result.scores["scoring"]))[1:]
    if not others:
        return []
    table = result.scores[result.scores["category"] == "all"]
    rows = [row for row in table.to_dict("records") if row["scoring"] in others]
    names = {"mean": "Per token", "sum": "By sums"}
    title = f"{names.get(others[0], others[0])}, all categories"
    columns = [
        Column("text", "{condition}", left=True),
        Column("measure", "{measure}", left=True),
        *_numbers(),
    ]
    return [TableSpec(title, rows, columns, uncut=True)]


def controls_table(result: BBQScores) -> TableSpec:
    """The controls of the first scoring."""
    own = result.controls[result.controls["scoring"] == result.scores["scoring"].iloc[0]]
    rows = [row for row in own.to_dict("records") if row["value"] == row["value"]]
    columns = [
        Column("control", "{control}", left=True),
        Column("", "{part}", left=True),
        *_numbers(),
    ]
    return TableSpec("Controls, all categories", rows, columns, uncut=True)
