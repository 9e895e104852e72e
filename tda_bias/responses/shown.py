"""What ``tdabias respond`` prints: effects, decisions, words, correlations."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tda_bias.responses.brief import respond_brief
from tda_bias.responses.finding import respond_finding
from tda_bias.responses.result import DECISION, HEADLINE, RATIO, Responses
from tda_bias.show.output import Output
from tda_bias.show.table import Column, Row, TableSpec
from tda_bias.show.text import counted, interval_text, number_text, p_text, report_of

_FILES = "effects.csv, prompts.csv, decisions.csv, words.csv, responses.parquet, run.json"


def shown(result: Responses, folder: Path, *, top: int = 10) -> Output:
    """The effects, decisions, the first words, and what goes together over prompts."""
    decisions = [] if result.decisions.empty else [_decision_table(result)]
    words = [] if result.words.empty else [_word_table(result, top)]
    together = [] if result.correlations.empty else [_correlation_table(result)]
    return Output(
        finding=respond_finding(result).led_by(respond_brief(result)).then(report_of(folder)),
        shown=[_effect_table(result), *decisions, *words, *together],
        values={
            "model": result.record.model,
            "groups": list(result.record.groups),
            "samples": result.record.samples,
            "tokens": result.record.tokens,
            "greedy": result.record.greedy,
            "chat": result.record.chat,
            "effects": result.effects,
            "prompts": result.prompts,
            "decisions": result.decisions,
            "words": result.words,
            "correlations": result.correlations,
        },
        rows=result.effects,
        folder=folder,
        files=_FILES,
    )


def _effect_table(result: Responses) -> TableSpec:
    record, table = result.record, result.effects
    whole = table[(table["kind"] == "all") & ~table["measure"].isin([DECISION, RATIO])]
    kinds = table[(table["kind"] != "all") & (table["measure"] == HEADLINE)]
    rows = pd.concat([whole, kinds]).to_dict("records")
    for row in rows:
        row["what"] = row["measure"] if row["kind"] == "all" else f"- {row['kind']}"
    responses = "the greedy response" if record.greedy else counted(record.samples, "sample")
    title = (
        f"{record.model.name} · nats per response, twins less placebos · "
        f"{counted(record.prompts, 'prompt')}, {responses} of up to {record.tokens} tokens"
    )
    columns = [
        Column("part", "{what}", left=True),
        Column("twins", "{twins:.2f}"),
        Column("placebos", "{placebos:.2f}"),
        Column("effect", "{value:+.2f}"),
        Column("interval", _interval),
        Column("p", _p),
        Column("prompts", "{prompts}"),
    ]
    return TableSpec(title, rows, columns, uncut=True)


def _decision_table(result: Responses) -> TableSpec:
    first, second = result.record.groups
    columns = [
        Column("decision", "{id}", left=True),
        Column(f"share, {first}", "{p_first:.3f}"),
        Column(f"share, {second}", "{p_second:.3f}"),
        Column("log-odds", "{difference:+.3f}"),
        Column("mass", "{mass:.2f}"),
    ]
    title = f"Share of the good answer among both answers, {first} and {second}"
    return TableSpec(title, result.decisions, columns, uncut=True)


def _word_table(result: Responses, top: int) -> TableSpec:
    first, second = result.record.groups
    columns = [
        Column("word", "{word}", left=True),
        Column("likelier with", "{likelier}", left=True),
        Column(first, "{first:.3f}"),
        Column(second, "{second:.3f}"),
        Column("log-ratio", "{log_ratio:+.2f}"),
        Column("q", _q),
    ]
    title = "Words expected in a response, without echo; words.csv has all"
    return TableSpec(title, result.other_words.head(top), columns, uncut=True)


def _correlation_table(result: Responses) -> TableSpec:
    columns = [
        Column("of a prompt", "{quantity}", left=True),
        Column("with its", "{other}", left=True),
        Column("Spearman", lambda row: number_text(row["spearman"])),
        Column("interval", _interval),
        Column("prompts", "{prompts}"),
    ]
    title = "What goes together over prompts; an effect is twins less placebos"
    return TableSpec(title, result.correlations, columns, uncut=True)


def _interval(row: Row) -> str:
    return interval_text(row["low"], row["high"]) if row["low"] == row["low"] else ""


def _p(row: Row) -> str:
    return "" if row["p"] != row["p"] else p_text(row["p"])


def _q(row: Row) -> str:
    return "" if row["q"] != row["q"] else p_text(row["q"])
