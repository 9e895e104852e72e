"""Scores of StereoSet and of pairs at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tda_bias.pairs.published import CROWS
from tda_bias.scores.finding import (
    HEADLINES,
    PER,
    score_found,
    scored_name,
    share_by_length,
    share_found,
)
from tda_bias.scores.outcomes import pairs_outcomes, sentence_outcomes, stereoset_outcomes
from tda_bias.scores.pair_scores import PairSetScores
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    interval_text,
    listed,
    number_text,
    p_text,
)
from tda_bias.show.verdict import Outcome, Told, told

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
_NEUTRAL = 50.0
_OF_BETA: dict[Told, str] = {
    "above": "the preference depends on the target, towards the stereotype",
    "below": "the preference depends on the target, away from the stereotype",
    "uncertain": "no target effect is found",
    "cannot say": "too few targets to say whether the preference depends on them",
}
_OF_SCORE: dict[Told, str] = {
    "above": "the stereotype is preferred",
    "below": "the anti-stereotype is preferred",
    "confounded": "which text is longer turns the preference: length explains it",
    "uncertain": "no preference is found",
    "cannot say": "too few targets to say whether the stereotype is preferred",
}
_OF_PAIRS: dict[Told, str] = {
    "above": "The first text of a pair (`more`) is preferred more often than the second.",
    "below": "The second text of a pair (`less`) is preferred more often than the first.",
    "confounded": "Which text of a pair is longer turns the preference: length explains it.",
    "uncertain": "No preference for either text of a pair is found.",
    "cannot say": "Too few clusters of pairs to say which text of a pair is preferred.",
}
_NO_TWINS = "No twins: wording and target cannot be told apart in these scores."


# -- triples ---------------------------------------------------------------------------------------


def stereoset_brief(result: StereoSetScores) -> Brief:
    """Whether what a model prefers depends on whom a text is about, or without twins its score."""
    read = "beta" if result.has_twins else "scores"
    rows = [row for row in _sums(getattr(result, read)) if row["category"] != "all"]
    names = [str(row["category"]) for row in rows]
    items = counted(int(_sums(result.scores)[0]["items"]), "item")
    lines = _twin_lines(result, rows) if result.has_twins else _score_lines(result.scores, rows)
    return Brief(
        about=about_run(result.record, "StereoSet", ", ".join(names), items),
        said=_said(stereoset_outcomes(result), _OF_BETA if result.has_twins else _OF_SCORE),
        lines=[*lines, *_length_lines(result.length_split, "ss", "the stereotype")],
        remarks=[
            *([] if result.has_twins else [_NO_TWINS]),
            *data_remarks(result.record, starter=False),
        ],
    )


def _sums(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows about whole categories, and everything, by sums of log-probabilities."""
    kept = table[(table["group"] == "all") & (table["scoring"] == "sum")]
    return kept.to_dict("records")


def _said(outcomes: Sequence[Outcome], sentences: Mapping[Told, str]) -> str:
    """Categories by what their verdicts say of them."""
    said: dict[str, list[str]] = {sentence: [] for sentence in sentences.values()}
    for one in outcomes:
        said[sentences[told(one)]].append(one.category)
    return _sentence(said)


def _sentence(said: Mapping[str, Sequence[str]]) -> str:
    """Categories with what is said of them: ``Gender and race: this; religion: that``."""
    parts = [f"{listed(names)}: {what}" for what, names in said.items() if names]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _twin_lines(result: StereoSetScores, rows: Sequence[Row]) -> Iterator[Line]:
    """The target effect of every category; of one alone also what is wording and what placebos."""
    for row in rows:
        label = "target effect (beta)" if len(rows) == 1 else f"beta, {row['category']}"
        whole = f" of log-odds of {number_text(row['log_odds'])}" if len(rows) == 1 else ""
        yield Line(label, number_text(row["beta"]), f"nats{whole} ({_sure(row)})")
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
    yield Line.of_share("wording", row["explained"], "of the variance over items")
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
    found, clusters = score_found(table, row)
    over = counted(clusters, "target")
    if found is None:
        return Line("would have found", "", f"no score four times in five ({over})")
    return Line("would have found", f"{found:.0f}", f"or {2 * _NEUTRAL - found:.0f} ({over})")


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
        said=_said(sentence_outcomes(run), _OF_SCORE),
        lines=[
            *lines,
            *_length_lines(
                run.length_split[run.length_split["scored"] == rows[0]["scored"]],
                "ss",
                "the stereotype",
            ),
            _would_find(table, rows[0]),
        ],
        remarks=[_NO_TWINS, *data_remarks(run.record, starter=False)],
    )


# -- pairs -----------------------------------------------------------------------------------------


def pairs_brief(result: PairSetScores) -> Brief:
    """Which text of a pair a model prefers, and whether length decides it."""
    record, whole = result.record, result.scores.iloc[0].to_dict()
    read = whole["items"] - whole["undefined"]
    split = result.length_split[result.length_split["scoring"] == "sum"]
    of_length = list(_length_lines(split, "preferred", "it"))
    found, clusters = share_found(result)
    over = counted(clusters, "cluster")
    power = Line("would have found", "", f"no share four times in five ({over})")
    if found is not None:
        power = Line("would have found", f"{found:.0f}", f"% ({over} of pairs)")
    interval = interval_text(whole["preferred_low"], whole["preferred_high"], 1)
    preferred = Line(
        "first text preferred", f"{whole['preferred']:.1f}", f"% ({interval}; 50 by chance)"
    )
    return Brief(
        about=about_run(record, record.official.name, counted(int(read), "pair")),
        said=_said_of_pairs(result),
        lines=[preferred, *_headlines(record.official.headline), *of_length, power],
        remarks=[
            *(
                ["CrowS-Pairs is for evaluation: its authors ask not to train on it."]
                if record.set in CROWS
                else []
            ),
            *data_remarks(record, starter=False),
        ],
    )


def _said_of_pairs(result: PairSetScores) -> str:
    outcomes = pairs_outcomes(result)
    if not outcomes:
        share = f"{result.scores.iloc[0]['preferred']:.1f} %"
        return f"The right text of a pair is preferred in {share}: this is grammar, and no bias."
    (one,) = outcomes
    return _OF_PAIRS[told(one)]


def _headlines(headline: Mapping[str, float | None]) -> Iterator[Line]:
    for name, value in list(headline.items())[:3]:
        yield Line("score", number_text(value), HEADLINES.get(name, name.replace("_", " ")))
