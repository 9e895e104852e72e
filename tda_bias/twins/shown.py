"""What ``tdabias twins`` prints: counts, what is left out and why, and examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from tda_bias.script import pieces
from tda_bias.show.output import Output
from tda_bias.show.table import Column, TableSpec
from tda_bias.twins.twins import Twins

# Twins that are printed, and triples left out for one reason; the file and the JSON have all.
_EXAMPLES, _LEFT_OUT = 3, 3


def shown(made: Twins, file: Path, use: str) -> Output:
    """Counts, what is left out and why, and examples; what the ``file`` is of ``use`` for."""
    import pandas as pd

    rows = _counts(made)
    placebo = made.record().get("placebo")
    columns = [Column(name, f"{{{name}}}", left=name == "category") for name in rows[0]]
    title = "Twins" if placebo is None else f"Placebo twins ({placebo})"
    return Output(
        shown=[
            TableSpec(title, rows, columns),
            *_left_out(made),
            *_examples(made),
            *_how_made(made),
            f"File: {file} ({use})",
        ],
        values={
            "file": file,
            "record": made.record(),
            "categories": rows,
            "excluded": [
                {
                    "target": triple.group,
                    "bias_type": triple.category,
                    "context": triple.context,
                    "reason": reason,
                }
                for triple, reason in made.excluded.items()
            ],
        },
        rows=pd.DataFrame(rows),
    )


def _counts(made: Twins) -> list[dict[str, str | int]]:
    """Triples, those with twins, twins and those left out, by category."""
    paired = Counter(triple.category for triple, _ in made)
    several = Counter(triple.category for triple, twins in made for _ in twins)
    excluded = Counter(triple.category for triple in made.excluded)
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


def _left_out(made: Twins) -> Iterator[str]:
    """The reasons for which triples have no twin, with the first triples of each."""
    for reason, number in made.reasons().items():
        yield f"Left out ({number}): {reason}."
        of_reason = [triple for triple, why in made.excluded.items() if why == reason]
        for triple in of_reason[:_LEFT_OUT]:
            yield f"  {triple.group}: {triple.context}"
        if number > _LEFT_OUT:
            yield f"  ... and {number - _LEFT_OUT} more; --format json lists all"


def _examples(made: Twins) -> Iterator[str]:
    """The first twins of triples from all over the data, each change as [before -> after]."""
    number = min(_EXAMPLES, len(made))
    for i in range(number):
        triple, (twin, *_) = made.pairs[i * len(made) // number]
        yield f"{triple.category}: {triple.group} -> {twin.group}"
        yield f"  {marked(triple.context, twin.context)}"
        yield f"    stereotype: {marked(triple.stereotype, twin.stereotype)}"
        yield f"    anti-stereotype: {marked(triple.anti_stereotype, twin.anti_stereotype)}"


def marked(original: str, twin: str) -> str:
    """The original with each run of changed words as ``[before -> after]``."""
    before, after = (pieces(text) for text in (original, twin))
    runs = []
    for what, i, j, k, m in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        old, new = "".join(before[i:j]), "".join(after[k:m])
        runs.append(old if what == "equal" else f"[{old} -> {new}]")
    return "".join(runs)


def _how_made(made: Twins) -> Iterator[str]:
    """Notes on placebos, and on how other targets were drawn."""
    if "placebo" in made.made:
        yield "Placebo twins keep the gender: what they change in a number is not about gender."
    if "k" in made.made:
        yield (
            f"Other targets for each triple: {made.made['k']}, drawn with seed "
            f"{made.made['seed']}. A number with these twins is relative to the other targets, "
            "which have stereotypes too."
        )
