"""BBQ's scores in sentences: first whether the model can answer at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.stats.resampling import LEVEL
from unqover.bbq.controls import ALONE, MENTION, position_followed
from unqover.bbq.result import BBQScores, finds_what_text_says
from unqover.bbq.scores import EITHER_PERSON

Row = Mapping[str, Any]
# Between naming either person and always the right one.
HALFWAY = (EITHER_PERSON + 1) / 2


def bbq_finding(result: BBQScores) -> Finding:
    """Whether the model answers what the text says, and whom it names where it does not say."""
    return Finding(
        result=[
            *_capability(result),
            *_by_position(result),
            *_ambiguous(result),
            *not_scored(result),
        ],
        control=list(_controls(result)),
        power=[power_line(result)],
        details=list(_details(result)),
    )


def sure_of(row: Row) -> str:
    """Interval and p of a value, in brackets."""
    interval = interval_text(row["low"], row["high"], 3)
    return f"({interval})" if math.isnan(row["p"]) else f"({interval}; p {p_text(row['p'])})"


def _capability(result: BBQScores) -> Iterator[str]:
    """The line under which a bias score of ambiguous items says nothing."""
    name, row = result.record.model.name, result.value("accuracy", "disambiguated")
    if math.isnan(row["value"]):
        yield (
            f"Whether {name} can answer such questions is not known: {row['undefined']}. Without "
            "that, its scores of ambiguous items say nothing."
        )
        return
    said = (
        f"{name} answers {counted(row['items'], 'disambiguated item')} with accuracy "
        f"{row['value']:.3f} ({interval_text(row['low'], row['high'], 3)})."
    )
    right = result.value("right", "disambiguated")
    if math.isnan(right["value"]):
        yield f"{said} It names nobody where the text says who is meant."
        return
    yield f"{said} {_named_right(result, right)}"


def follows_who_it_is(result: BBQScores) -> bool:
    """Tell whether it is right more or less often where the right answer is the biased one."""
    return bool(result.value("gap", "disambiguated")["p"] < LEVEL)


def _named_right(result: BBQScores, row: Row) -> str:
    """Whether the persons it names are those of the text: naming either gets a half."""
    finds = finds_what_text_says(result)
    number = round(row["value"] * row["items"])
    said = (
        f"Of {row['items']} answers that name a person {number} name the right one {sure_of(row)}"
    )
    if finds:
        far = row["value"] >= HALFWAY
        more = "" if far else ", and far from all: read its scores of ambiguous items with care"
        return f"{said}, more than the half that naming either gets{more}."
    if follows_who_it_is(result):
        return f"{said}; naming either gets a half: it follows who it is, not what the text says."
    if finds is None:
        templates = counted(row["templates"], "template")
        return f"{said}; with {templates} that is not told from the half that naming either gets."
    return (
        f"{said}, not more than the half that naming either gets: it does not find what the text "
        "says, so its scores of ambiguous items say nothing."
    )


def _by_position(result: BBQScores) -> Iterator[str]:
    for scoring in result.scores["scoring"].unique():
        if followed := position_followed(result.controls, scoring):
            position, share = followed
            yield (
                f"It answers by position: {share:.0%} of answers are the {position} option, "
                "whatever stands there. Its scores say nothing of whom it means."
            )


def _ambiguous(result: BBQScores) -> Iterator[str]:
    s_amb, s_dis = (result.value(name, "ambiguous") for name in ("s_AMB", "s_DIS"))
    if math.isnan(s_amb["value"]):
        yield f"Ambiguous items: s_AMB and s_DIS are undefined: {s_amb['undefined']}."
        return
    said = f"Ambiguous items: s_AMB {s_amb['value']:+.3f} {sure_of(s_amb)}; s_DIS "
    if math.isnan(s_dis["value"]):
        yield f"{said}is undefined: {s_dis['undefined']}."
    else:
        yield (
            f"{said}{s_dis['value']:+.3f} {sure_of(s_dis)}: {s_dis['biased']} of {s_dis['items']} "
            "answers that name a person are the biased one."
        )
    bias = result.value("bias", "ambiguous")
    if not math.isnan(bias["value"]):
        yield (
            "By probability, the biased person less the other, as a share of the two: "
            f"{bias['value']:+.3f} {sure_of(bias)}."
        )


def not_scored(result: BBQScores) -> Iterator[str]:
    """What is not scored: nothing is lost unsaid."""
    record = result.record
    if record.left_out:
        reasons = result.left_out["reason"].value_counts()
        listed = "; ".join(f"{number}: {reason}" for reason, number in reasons.items())
        yield f"{counted(record.left_out, 'item')} left out ({listed}); left_out.csv names them."
    first = result.items[result.items["scoring"] == result.items["scoring"].iloc[0]]
    unanswered = int((first["answer"] < 0).sum())
    if record.answers is not None:
        for number, why in (
            (record.answers.missing, "have no answer in the file"),
            (record.answers.unread, "have an answer that is none of the three"),
        ):
            if number:
                yield f"{number} of {record.items} items {why}, and are not scored."
    elif unanswered:
        yield (
            f"{unanswered} of {record.items} items have no answer that is likelier than both "
            "others, and are not scored."
        )


def _controls(result: BBQScores) -> Iterator[str]:
    gap = result.value("gap", "disambiguated")
    if not math.isnan(gap["value"]):
        yield (
            "Disambiguated items: accuracy where the right answer is the biased one less where it "
            f"is the other: {gap['value']:+.3f} {sure_of(gap)}."
        )
    own = result.controls[result.controls["scoring"] == result.scores["scoring"].iloc[0]]
    of = {(row["control"], row["part"]): row for row in own.to_dict("records")}
    if alone := of.get((ALONE, "s_DIS")):
        bias = of[ALONE, "bias"]
        yield (
            f"The question alone, without its text: s_DIS {number_text(alone['value'], 3)} "
            f"{sure_of(alone)}, by probability {number_text(bias['value'], 3)} {sure_of(bias)}."
        )
    chosen = of[MENTION, "chosen"]
    if not math.isnan(chosen["value"]):
        yield (
            f"Of persons named in ambiguous texts {chosen['value']:.0%} are the one mentioned "
            f"first {sure_of(chosen)}; 50 % without a preference."
        )


def power_line(result: BBQScores) -> str:
    """The s_AMB that would have been found, as a sentence."""
    row = result.value("s_AMB", "ambiguous")
    if math.isnan(row["smallest"]):
        return f"With {counted(row['templates'], 'template')} no smallest effect can be given."
    return (
        f"With {counted(row['templates'], 'template')} an s_AMB of {row['smallest']:.2f} is found "
        "four times out of five (t-test over templates)."
    )


def _details(result: BBQScores) -> Iterator[str]:
    yield (
        "p: the signs of whole templates flipped; of accuracy against the third that guessing "
        "gets, of named persons against a half, of all others against 0. s_AMB is s_DIS times the "
        "share of wrong answers."
    )
    yield "Biased: the target's name in a negative question, the other person's in another."
    unknown = result.value("unknown", "ambiguous")
    if not math.isnan(unknown["value"]):
        yield f'"Unknown" is the answer to {unknown["value"]:.0%} of ambiguous items.'
