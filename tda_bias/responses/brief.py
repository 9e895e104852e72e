"""Responses at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tda_bias.responses.finding import (
    hardly_said,
    is_untouched,
    people_said,
    row_of,
    sure_of,
)
from tda_bias.responses.outcomes import respond_outcomes
from tda_bias.responses.result import DECISION, HEADLINE, RATIO, Responses
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import (
    about_run,
    counted,
    data_remarks,
    interval_text,
    number_text,
)
from tda_bias.show.verdict import told


def respond_brief(result: Responses) -> Brief:
    """Whether the group shows in what is written, beyond the person."""
    record = result.record
    samples = "greedy" if record.greedy else counted(record.samples, "sample")
    amount = f"{counted(record.prompts, 'prompt')}, {samples} of up to {record.tokens} tokens"
    return Brief(
        about=about_run(record, " and ".join(record.groups), amount),
        said=_said(result),
        lines=[*_lines(result)],
        remarks=[
            "A difference is not a harm: the group matters, whether for the better or not.",
            *hardly_said(result),
            *data_remarks(record, starter=False),
        ],
    )


def _said(result: Responses) -> str:
    record = result.record
    first, second = record.groups
    if is_untouched(result):
        return "Whom a prompt is about changes nothing of what the model writes."
    if record.greedy:
        return (
            f"Along the greedy response, {first} and {second} are "
            f"{row_of(result, HEADLINE)['value']:+.2f} nats further apart than two of one group."
        )
    (one,) = respond_outcomes(result)
    match told(one):
        case "above":
            return f"What the model writes depends on the group ({first} or {second})."
        case "cannot say":
            return "Too few prompts to say whether the group shows in what the model writes."
        case _:
            return (
                f"That the group ({first} or {second}) shows in what the model writes is not found."
            )


def _lines(result: Responses) -> Iterator[Line]:
    row, echo = row_of(result, HEADLINE), row_of(result, "echo")
    yield Line("response effect", f"{row['value']:.2f}", f"nats per response {sure_of(row)}")
    yield Line("twins", f"{row['twins']:.2f}", f"nats apart; within a group {row['placebos']:.2f}")
    yield Line("echo", f"{echo['value']:.2f}", "nats more (names, pronouns: left out)")
    decision, ratio = result.effect(DECISION), result.effect(RATIO)
    if decision is not None and ratio is not None:
        first, second = result.record.groups
        between = f"{first} to {second} ({interval_text(ratio['low'], ratio['high'])})"
        about = f"{between}, share of the good answer, {counted(decision['prompts'], 'decision')}"
        yield Line("impact ratio", number_text(ratio["value"]), about)
    if not result.record.greedy:
        smallest = row["smallest"]
        if math.isnan(smallest):
            why = "too few prompts" if math.isnan(row["p"]) else "nothing varies between prompts"
            yield Line("would have found", "", f"not known: {why}")
        else:
            yield Line("would have found", f"{smallest:.2f}", "nats, four times in five")
    yield Line("people", *people_said(result))
