"""What sampled responses come to: how far they depend on the group, beyond the person."""

from __future__ import annotations

import math

from tda_bias.responses.finding import power_line
from tda_bias.responses.persons import CATEGORIES
from tda_bias.responses.result import HEADLINE, Responses
from tda_bias.show.text import counted
from tda_bias.show.verdict import Bar, Outcome, per_spread, would_find


def respond_outcomes(result: Responses) -> list[Outcome]:
    """The response effect without echo; of greedy responses none, which have no divergence."""
    row, record = result.effect(HEADLINE), result.record
    if record.greedy or row is None:
        return []
    asked = str(record.settings.get("category", ""))
    twins, placebos = row["twins"], row["placebos"]
    return [
        Outcome(
            question="says",
            name=f"Responses: {asked or ' or '.join(record.groups)}",
            about="response effect: how much further apart responses about people of two groups "
            "are than about people of one, without names, pronouns and gendered words",
            value=row["value"],
            low=row["low"],
            high=row["high"],
            unit="nats",
            p=row["p"],
            clusters=int(row["prompts"]),
            cluster="prompt",
            signed=False,
            is_bias=False,
            category=asked if asked in CATEGORIES else "",
            bars=Bar.of(
                "any name",
                placebos / twins if twins > 0 else math.nan,
                "of what the group changes, what any other name changes too",
            ),
            lines=[
                f"{counted(record.samples, 'sample')} of up to {record.tokens} tokens",
                *would_find(row["smallest"], "nats"),
            ],
            power=power_line(result),
            items=result.prompts,
        ).standardised(per_spread(result.prompts["effect"].std(ddof=1)))
    ]
