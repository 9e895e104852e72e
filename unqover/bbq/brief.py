"""BBQ's scores at a glance: first whether the model can answer, then whom it names."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    number_text,
)
from tda_bias.show.verdict import Told, told
from unqover.bbq.controls import ALONE, MENTION, position_followed
from unqover.bbq.finding import HALFWAY, follows_who_it_is, not_scored, sure_of
from unqover.bbq.outcomes import bbq_outcomes
from unqover.bbq.result import BBQScores, finds_what_text_says
from unqover.bbq.scores import EITHER_PERSON

_OF_AMBIGUOUS: dict[Told, str] = {
    "above": "where the text does not say, it answers with the stereotype",
    "below": "where the text does not say, it answers against the stereotype",
    "confounded": "where the text does not say, who is mentioned first explains more than bias",
    "uncertain": "no bias is found where the text does not say",
    "cannot say": "whether it is biased where the text does not say is not known",
}


def bbq_brief(result: BBQScores) -> Brief:
    """Whether the model finds what the text says, and whom it names where it does not say."""
    record = result.record
    items = result.items[result.items["scoring"] == result.items["scoring"].iloc[0]]
    read = f"{counted(len(items), 'item')}, {counted(items['cluster'].nunique(), 'template')}"
    names = list(dict.fromkeys(result.items["category"]))
    about = names[0] if len(names) == 1 else counted(len(names), "category", "categories")
    return Brief(
        about=about_run(record, f"BBQ {about} ({record.language})", read),
        said=_said(result),
        lines=list(_lines(result)),
        remarks=[*not_scored(result), *data_remarks(record, starter=False)],
    )


def _said(result: BBQScores) -> str:
    """The capability, without which a bias score says nothing; then the bias."""
    scoring = result.scores["scoring"].iloc[0]
    if followed := position_followed(result.controls, scoring):
        return (
            f"It answers by position ({followed[1]:.0%} the {followed[0]} option): no bias shows."
        )
    right = result.value("right", "disambiguated")
    if math.isnan(right["value"]):
        return "Whether it can answer such questions is not known: its bias scores say nothing."
    finds = finds_what_text_says(result)
    if finds is not True and follows_who_it_is(result):
        return "It follows who it is, not what the text says, where the text says it."
    if finds is None:
        return "Too few templates to say whether it finds what the text says."
    if not finds:
        return "It does not find what the text says: its scores of ambiguous texts say nothing."
    able = "It finds what the text says"
    if right["value"] < HALFWAY:
        able += " only a little more often than by chance"
    (one,) = bbq_outcomes(result)
    return f"{able}; {_OF_AMBIGUOUS[told(one)]}."


def _lines(result: BBQScores) -> Iterator[Line]:
    for label, name, condition, rest in (
        ("accuracy", "accuracy", "disambiguated", "where the text says"),
        ("right person", "right", "disambiguated", f"of named ones (chance {EITHER_PERSON})"),
        ("bias s_AMB", "s_AMB", "ambiguous", "where the text does not say"),
        ("by probability", "bias", "ambiguous", "biased less the other"),
    ):
        row = result.value(name, condition)
        if not math.isnan(row["value"]):
            yield Line(label, f"{row['value']:.3f}", f"{sure_of(row)} {rest}")
    own = result.controls[result.controls["scoring"] == result.scores["scoring"].iloc[0]]
    of = {(row["control"], row["part"]): row for row in own.to_dict("records")}
    if (ALONE, "bias") in of and not math.isnan(of[ALONE, "bias"]["value"]):
        alone = of[ALONE, "bias"]
        yield Line("question alone", f"{alone['value']:.3f}", f"{sure_of(alone)} by probability")
    chosen = of[MENTION, "chosen"]
    if not math.isnan(chosen["value"]):
        rest = f"{sure_of(chosen)} of named ones (chance 0.5)"
        yield Line("mentioned first", f"{chosen['value']:.3f}", rest)
    smallest = result.value("s_AMB", "ambiguous")["smallest"]
    if math.isnan(smallest):
        yield Line("would have found", "", "not known: too few templates")
    else:
        yield Line("would have found", number_text(smallest), "of s_AMB, four times in five")
