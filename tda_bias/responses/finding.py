"""Whether the group shows in what a model writes, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tda_bias.responses.result import DECISION, HEADLINE, RATIO, Responses
from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.stats.resampling import LEVEL

Row = Mapping[str, Any]
# Below this share of all probability the two answers are hardly what the model would say.
_HARDLY = 0.5
# People who stand in more prompts than this on average are few.
_OFTEN = 4


def respond_finding(result: Responses) -> Finding:
    """The response effect, then decisions and words; with echo, placebos and power beside it."""
    return Finding(
        result=[*_effect(result), *_decisions(result), *_words(result)],
        control=list(_controls(result)),
        power=[power_line(result)],
        details=list(_details(result)),
    )


def row_of(result: Responses, measure: str) -> Row:
    """The row of a measure over all prompts, which every run has."""
    row = result.effect(measure)
    assert row is not None
    return row


def is_untouched(result: Responses) -> bool:
    """Tell whether nothing that is written depends on the person, beyond rounding."""
    both = row_of(result, "both")
    return bool(both["twins"] == both["placebos"] == 0)


def sure_of(row: Row) -> str:
    """The interval of a value, and its p where it has one."""
    interval = interval_text(row["low"], row["high"])
    return f"({interval})" if math.isnan(row["p"]) else f"({interval}; p {p_text(row['p'])})"


def _effect(result: Responses) -> Iterator[str]:
    record, row = result.record, row_of(result, HEADLINE)
    name, (first, second) = record.model.name, record.groups
    if is_untouched(result):
        where = "along the greedy response" if record.greedy else "in any response"
        yield (
            f"Whom a prompt is about changes nothing of what {name} writes: {where} the next-token "
            "distributions are equal to rounding."
        )
        return
    if record.greedy:
        yield (
            f"Along the greedy response, the next-token distributions of {name} are "
            f"{row['value']:+.2f} nats further apart between {first} and {second} than within a "
            "group, without echo. One response is no divergence, and there is no p."
        )
        return
    yield (
        f"The group ({first} or {second}) brings {row['value']:+.2f} nats per response "
        f"{sure_of(row)} to what {name} writes, beyond what another person of the same group "
        f"brings and without echo: {row['per_token']:+.4f} nats per token, of the first "
        f"{record.tokens}."
    )
    if row["placebos"] > row["twins"] / 2:
        yield (
            f"Most of what changes with the person changes within a group too: twins are "
            f"{row['twins']:.2f} nats apart, placebos {row['placebos']:.2f}."
        )


def _decisions(result: Responses) -> Iterator[str]:
    row, ratio = result.effect(DECISION), result.effect(RATIO)
    if row is None or ratio is None:
        return
    first, second = result.record.groups
    yield (
        f"Decisions ({counted(row['prompts'], 'prompt')}): log-odds of the good answer about "
        f"{first} less about {second} {row['value']:+.3f} {sure_of(row)}; impact ratio "
        f"(share of the good answer among both, {first} to {second}) "
        f"{number_text(ratio['value'])} ({interval_text(ratio['low'], ratio['high'])})."
    )
    yield from hardly_said(result)


def hardly_said(result: Responses) -> Iterator[str]:
    """A sentence where the two answers of decisions have little of the probability."""
    if result.decisions.empty:
        return
    mass = float(result.decisions["mass"].mean())
    if mass < _HARDLY:
        yield (
            f"The two answers have {mass:.0%} of the probability at the first place: the model "
            "would mostly begin with something else."
        )


def _words(result: Responses) -> Iterator[str]:
    own = result.other_words
    if result.record.greedy or own.empty:
        return
    found = int((own["q"] < LEVEL).sum())
    least = "" if found else f" (smallest q {p_text(float(own['q'].min()))})"
    yield (
        f"Of {counted(len(own), 'word')} that are no echo {found} become likelier or rarer with "
        f"the group at a false discovery rate of 5 %{least}."
    )


def _controls(result: Responses) -> Iterator[str]:
    echo, both, sampled = (row_of(result, name) for name in ("echo", "both", "sampled"))
    yield (
        f"Echo (pronouns, gendered words, the names themselves): {echo['value']:+.2f} nats per "
        f"response; with it the effect is {both['value']:+.2f}."
    )
    number, about = people_said(result)
    yield f"People in prompts: {number} {about}."
    if not result.record.greedy:
        yield (
            f"The same from sampled log-ratios: {sampled['value']:+.2f} nats "
            f"({interval_text(sampled['low'], sampled['high'])})."
        )


def people_said(result: Responses) -> tuple[str, str]:
    """How many people stand in prompts, and how often: of few, the result holds for these."""
    used = result.responses.groupby("person")["prompt"].nunique()
    of = f"of {counted(result.record.people, 'person', 'people')}"
    if used.mean() > _OFTEN:
        often = f"each in {used.mean():.0f} prompts on average: the result holds for these few"
        return str(len(used)), f"{of} only, {often}"
    return str(len(used)), f"{of}, each in {used.max()} at most"


def power_line(result: Responses) -> str:
    """The response effect that would have been found, as a sentence."""
    row, record = row_of(result, HEADLINE), result.record
    prompts = counted(record.prompts, "prompt")
    if math.isnan(row["smallest"]):
        why = "" if math.isnan(row["p"]) else ": nothing varies between them"
        return f"With {prompts} no smallest effect can be given{why}."
    return (
        f"With {prompts} and {counted(record.samples, 'sample')} for each person an effect of "
        f"{row['smallest']:.2f} nats per response is found four times out of five (t-test over "
        "prompts)."
    )


def _details(result: Responses) -> Iterator[str]:
    record = result.record
    yield (
        "A difference is not a harm: it says that the group matters, not whether for the better. "
        "No judge or classifier was asked."
    )
    if not record.greedy:
        yield (
            "p of effects: each prompt's four people parted into two and two in one of three ways, "
            "one-sided; of decisions and words: its people change sides. Intervals: CR2 over "
            "prompts."
        )
    if len(result.decisions):
        yield (
            "An impact ratio is no legal verdict. Four fifths is a rule of thumb of United States "
            "agencies; New York City's law on hiring tools asks for the ratio and names no limit."
        )
    asked, thinking = "plain text", ""
    if record.chat is not None:
        asked = "the tokenizer's chat template"
        thinking = f"; thinking {record.chat.thinking}" if record.chat.thinking else ""
    how = "Sampled at temperature 1 from the whole vocabulary."
    if record.greedy:
        how = "Each token is the likeliest one."
    yield f"Asked by {asked}{thinking}. {how}"
