"""Summary of making twins, in numbers and in sentences."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import Any

from tda_bias.twins.twins import Twins
from tda_bias.types import Triple

# Triples shown of those left out for one reason.
_SHOWN = 3


def twin_counts(made: Twins) -> list[dict[str, Any]]:
    """Triples, those with twins, twins and those left out, by category."""
    paired = Counter(triple.category for triple, _ in made)
    several = Counter(triple.category for triple, twins in made for _ in twins)
    excluded = Counter(e.triple.category for e in made.excluded)
    return [
        {
            "category": name,
            "triples": paired[name] + excluded[name],
            "with twins": paired[name],
            "twins": several[name],
            "left out": excluded[name],
        }
        for name in sorted({*paired, *excluded})
    ]


def excluded_lines(made: Twins) -> list[str]:
    """The reasons for which triples have no twin, with the first triples of each."""
    lines = []
    for reason, number in made.reasons().items():
        lines.append(f"Left out ({number}): {reason}.")
        of_reason = [e.triple for e in made.excluded if e.reason == reason]
        lines += [f"  {triple.group}: {triple.context}" for triple in of_reason[:_SHOWN]]
        if number > _SHOWN:
            lines.append(f"  ... and {number - _SHOWN} more; --format json lists all")
    return lines


def example_lines(made: Twins, number: int) -> list[str]:
    """Twins from all over the data, each change as [before -> after]."""
    lines = []
    for triple, twin in twin_examples(made, number):
        lines.append(f"{triple.category}: {triple.group} -> {twin.group}")
        lines.append(f"  {marked(triple.context, twin.context)}")
        lines.append(f"    stereotype: {marked(triple.stereotype, twin.stereotype)}")
        lines.append(f"    anti-stereotype: {marked(triple.anti_stereotype, twin.anti_stereotype)}")
    return lines


def twin_examples(made: Twins, number: int) -> list[tuple[Triple, Triple]]:
    """Some triples from all over the data, each with its first twin."""
    pairs = made.pairs
    number = min(number, len(pairs))
    chosen = [pairs[i * len(pairs) // number] for i in range(number)]
    return [(triple, twins[0]) for triple, twins in chosen]


def marked(original: str, twin: str) -> str:
    """The original with each run of changed words as ``[before -> after]``."""
    before, after = (re.findall(r"\w+|\W", text) for text in (original, twin))
    pieces = []
    for what, i, j, k, m in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        old, new = "".join(before[i:j]), "".join(after[k:m])
        pieces.append(old if what == "equal" else f"[{old} -> {new}]")
    return "".join(pieces)


def how_made(made: Twins) -> list[str]:
    """Notes on placebos, and on how other targets were drawn."""
    record = made.record()
    lines = []
    if "placebo" in record:
        lines.append(
            "Placebo twins keep the gender: what they change in a number is not about gender."
        )
    if "k" in record:
        lines.append(
            f"Other targets for each triple: {record['k']}, drawn with seed {record['seed']}. A "
            "number with these twins is relative to the other targets, which have stereotypes too."
        )
    return lines
