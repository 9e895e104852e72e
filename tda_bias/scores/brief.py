"""Scores of StereoSet and of pairs at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tda_bias.pairs.published import CROWS
from tda_bias.scores.finding import HEADLINES, PER, scored_name, share_by_length
from tda_bias.scores.pair_scores import PairSetScores, compared
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    interval_text,
    number_text,
    p_text,
    without_starter,
)
from tda_bias.stats.clusters import cluster_mean

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
_LEVEL = 0.05
_NEUTRAL = 50.0
_NO_TWINS = "No twins: wording and target cannot be told apart in these scores."


# -- triples ---------------------------------------------------------------------------------------


def stereoset_brief(result: StereoSetScores) -> Brief:
    """Whether what a model prefers depends on whom a text is about, or without twins its score."""
    read = "beta" if result.has_twins else "scores"
    rows = [row for row in _sums(getattr(result, read)) if row["category"] != "all"]
    names = [str(row["category"]) for row in rows]
    items = counted(int(_sums(result.scores)[0]["items"]), "item")
    told = _told_with_twins(rows) if result.has_twins else _told_by_score(rows)
    lines = _twin_lines(result, rows) if result.has_twins else _score_lines(result.scores, rows)
    return Brief(
        about=about_run(result.record, "StereoSet", ", ".join(names), items),
        said=told,
        lines=[*lines, *_length_lines(result.length_split, "ss", "the stereotype")],
        remarks=[
            *([] if result.has_twins else [_NO_TWINS]),
            *without_starter(data_remarks(result.record)),
        ],
    )


def _sums(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows about whole categories, and everything, by sums of log-probabilities."""
    kept = table[(table["group"] == "all") & (table["scoring"] == "sum")]
    return kept.to_dict("records")


def _told_with_twins(rows: Sequence[Row]) -> str:
    """Categories by what the test over targets says of the target effect."""
    said: dict[str, list[str]] = {
        "the preference depends on the target, towards the stereotype": [],
        "the preference depends on the target, away from the stereotype": [],
        "no target effect is found": [],
        "too few targets to say whether the preference depends on them": [],
    }
    towards, away, none, few = said
    for row in rows:
        p = row["p_targets"]
        sure = towards if row["beta"] > 0 else away
        which = few if math.isnan(p) else sure if p < _LEVEL else none
        said[which].append(str(row["category"]))
    return _sentence(said)


def _told_by_score(rows: Sequence[Row]) -> str:
    """Categories by where the interval of the stereotype score lies."""
    said: dict[str, list[str]] = {
        "the stereotype is preferred": [],
        "the anti-stereotype is preferred": [],
        "no preference is found": [],
    }
    more, less, none = said
    for row in rows:
        which = more if row["ss_low"] > _NEUTRAL else less if row["ss_high"] < _NEUTRAL else none
        said[which].append(str(row["category"]))
    return _sentence(said)


def _sentence(said: Mapping[str, Sequence[str]]) -> str:
    """Categories with what is said of them: ``Gender and race: this; religion: that``."""
    parts = [f"{_listed(names)}: {what}" for what, names in said.items() if names]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _twin_lines(result: StereoSetScores, rows: Sequence[Row]) -> Iterator[Line]:
    """The target effect of every category; of one alone also what is wording and what placebos."""
    for row in rows:
        label = "target effect (beta)" if len(rows) == 1 else f"beta, {row['category']}"
        yield Line(label, number_text(row["beta"]), f"nats ({_sure(row)})")
        if len(rows) == 1:
            yield from _of_one(result, row)
    scores = [row for row in _sums(result.scores) if len(rows) > 1 or row["category"] != "all"]
    yield _score_line(scores[0])
    if len(rows) > 1:
        smallest = max((row["smallest"] for row in rows), default=math.nan)
        yield Line("would have found", number_text(smallest), "nats in each, four times in five")


def _sure(row: Row) -> str:
    """Interval and p over targets; where these are too few, over items, which says less."""
    targets, p = counted(int(row["targets"]), "target"), row["p_targets"]
    if math.isnan(p):
        items = interval_text(row["beta_low"], row["beta_high"])
        return f"over items {items}, p {p_text(row['p'])}; {targets}"
    interval = interval_text(row["beta_low_targets"], row["beta_high_targets"])
    return f"{interval} over {targets}, p {p_text(p)}"


def _of_one(result: StereoSetScores, row: Row) -> Iterator[Line]:
    left = row["beta"] / row["log_odds"] if row["log_odds"] else math.nan
    whole = f"of log-odds of {number_text(row['log_odds'])} nats"
    yield Line.of_share("wording", 1 - left, whole)
    for kind in _placebos(result):
        yield Line(
            f"placebo ({kind['kind']})",
            number_text(kind["placebo"]),
            f"nats; {number_text(kind['difference'])} of beta left "
            f"({interval_text(kind['difference_low'], kind['difference_high'])})",
        )
    if row["smallest"] > 0:
        items = counted(int(row["items"]), "item")
        rest = f"nats ({items}, four times in five)"
        yield Line("would have found", number_text(row["smallest"]), rest)


def _placebos(result: StereoSetScores) -> list[dict[Any, Any]]:
    found = result.placebo_beta
    if found.empty:
        return []
    return found[(found["scoring"] == "sum") & (found["choice"] == "all")].to_dict("records")


def _score_line(row: Row) -> Line:
    interval = interval_text(row["ss_low"], row["ss_high"], 0)
    rest = f"({interval}; 50 is neutral, not good); lms {row['lms']:.1f}"
    return Line("stereotype score", f"{row['ss']:.1f}", rest)


def _score_lines(table: pd.DataFrame, rows: Sequence[Row]) -> Iterator[Line]:
    for row in rows:
        line = _score_line(row)
        yield line if len(rows) == 1 else Line(f"score, {row['category']}", line.value, line.rest)
    if len(rows) == 1:
        yield _would_find(table, rows[0])


def _would_find(table: pd.DataFrame, row: Row) -> Line:
    alike = table["group"] != "all"
    for name in ("category", "scoring", "reading", "scored"):
        if name in table and row[name] != "all":
            alike &= table[name] == row[name]
    score = cluster_mean(table.loc[alike, "ss"].to_numpy(float))
    away, over = score.smallest(), counted(score.clusters, "target")
    if not 0 < away < _NEUTRAL:
        return Line("would have found", "", f"no score four times in five ({over})")
    return Line("would have found", f"{_NEUTRAL + away:.0f}", f"or {_NEUTRAL - away:.0f} ({over})")


def _length_lines(split: pd.DataFrame, value: str, text: str) -> Iterator[Line]:
    """The share where a text is longer and where it is shorter, over everything read by sums."""
    rows = split[split["scoring"] == "sum"]
    parts = {"": rows}
    if "reading" in rows:
        parts = {str(reading): own for reading, own in rows.groupby("reading", sort=False)}
    for reading, own in parts.items():
        shares = {name: share for name, share, _ in share_by_length(own, value)}
        if not {"longer", "shorter"} <= set(shares):
            continue
        label = "length" if reading in ("", "log_prob", "pll") else "length, within words"
        rest = f"if {text} is longer, {shares['shorter']:.0f} if shorter"
        yield Line(label, f"{shares['longer']:.0f}", rest)


# -- whole sentences -------------------------------------------------------------------------------


def sentences_brief(run: SentenceScores) -> Brief:
    """The stereotype scores of whole sentences and of the words that differ."""
    table = run.scores
    first = table["category"].iloc[0]
    everything = table[(table["group"] == "all") & (table["category"] == first)]
    rows = everything.to_dict("records")
    lines = []
    for row in rows:
        interval = interval_text(row["ss_low"], row["ss_high"], 0)
        label = f"{scored_name(row)}, {PER[row['scoring']]}"
        lines.append(Line(label, f"{row['ss']:.1f}", f"({interval}; lms {row['lms']:.1f})"))
    return Brief(
        about=about_run(
            run.record, "StereoSet intrasentence", counted(int(rows[0]["items"]), "item")
        ),
        said=_told_by_score(rows[:1]),
        lines=[
            *lines,
            *_length_lines(
                run.length_split[run.length_split["scored"] == rows[0]["scored"]],
                "ss",
                "the stereotype",
            ),
            _would_find(table, rows[0]),
        ],
        remarks=[_NO_TWINS, *without_starter(data_remarks(run.record))],
    )


# -- pairs -----------------------------------------------------------------------------------------


def pairs_brief(result: PairSetScores) -> Brief:
    """Which text of a pair a model prefers, and whether length decides it."""
    record, whole = result.record, result.scores.iloc[0].to_dict()
    read = whole["items"] - whole["undefined"]
    split = result.length_split[result.length_split["scoring"] == "sum"]
    of_length = list(_length_lines(split, "preferred", "it"))
    table = compared(result.items)
    share = cluster_mean(table["preferred"].to_numpy(float), table["cluster"].to_numpy())
    away, over = 100 * share.smallest(), counted(share.clusters, "cluster")
    power = Line("would have found", "", f"no share four times in five ({over})")
    if 0 < away < _NEUTRAL:
        power = Line("would have found", f"{_NEUTRAL + away:.0f}", f"% ({over} of pairs)")
    interval = interval_text(whole["preferred_low"], whole["preferred_high"], 1)
    preferred = Line(
        "first text preferred", f"{whole['preferred']:.1f}", f"% ({interval}; 50 by chance)"
    )
    return Brief(
        about=about_run(record, record.official.name, counted(int(read), "pair")),
        said=_told_of_pairs(whole, split),
        lines=[preferred, *_headlines(record.official.headline), *of_length, power],
        remarks=[
            *(
                ["CrowS-Pairs is for evaluation: its authors ask not to train on it."]
                if record.set in CROWS
                else []
            ),
            *without_starter(data_remarks(record)),
        ],
    )


def _told_of_pairs(whole: Row, split: pd.DataFrame) -> str:
    low, high = whole["preferred_low"], whole["preferred_high"]
    if low > _NEUTRAL:
        text = "The first text of a pair (`more`) is preferred more often than the second"
    elif high < _NEUTRAL:
        text = "The second text of a pair (`less`) is preferred more often than the first"
    else:
        return "No preference for either text of a pair is found."
    shares = {name: value for name, value, _ in share_by_length(split, "preferred")}
    sides = [shares[name] - _NEUTRAL for name in ("longer", "shorter") if name in shares]
    if len(sides) == 2 and sides[0] * sides[1] < 0:
        return f"{text}, but which is longer turns the preference: length explains it too."
    return f"{text}."


def _headlines(headline: Mapping[str, float | None]) -> Iterator[Line]:
    for name, value in list(headline.items())[:3]:
        yield Line("score", number_text(value), HEADLINES.get(name, name.replace("_", " ")))
