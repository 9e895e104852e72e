"""``tdabias twins``: make the twins of triples, and write them for a person to read and correct."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from rich.table import Table

from tda_bias.types import MAX_COUNT, MAX_SEED, InputError

from .loading import use_cache_if_unreachable
from .options import command
from .output import Output
from .settings import FilePath, Name, OutputSettings

if TYPE_CHECKING:
    from tda_bias.twins import Twins
    from tda_bias.types import Triple

# Triples shown of those left out for one reason.
_SHOWN = 3


class TwinsSettings(OutputSettings):
    """Settings of ``tdabias twins``."""

    data: Name = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json or JSON Lines",
    )
    category: Literal["gender", "profession", "race", "religion", "all"] = Field(
        "all", description="gender, profession, race, religion or all"
    )
    kind: Literal["auto", "gender", "target"] = Field(
        "auto",
        description="gender (swap gendered words), target (put another target of its kind in its "
        "place), auto (gender for the category gender, else target)",
    )
    k: int = Field(
        3, ge=1, le=100, description="other targets for each triple; a gender swap gives one"
    )
    kinds: FilePath | None = Field(
        None, description="YAML file of targets by kind, for other targets than StereoSet's"
    )
    tagger: Literal["auto", "spacy", "rule"] = Field(
        "auto", description='what reads "her" and "his": spacy, rule, auto (spacy if installed)'
    )
    examples: int = Field(10, ge=0, le=MAX_COUNT, description="twins to print")
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes which targets are drawn")
    out: FilePath = Field(Path("twins.jsonl"), description="file to write, for --twins FILE")


@command(TwinsSettings)
def twins(settings: TwinsSettings) -> None:
    """Make the twins of triples: the same texts about the other gender or another target."""
    from tda_bias.triples import comes_from_hub, load_triples

    if comes_from_hub(settings.data):
        use_cache_if_unreachable()

    import pandas as pd

    from tda_bias.runs.run import refuse_file_of_a_run
    from tda_bias.twins import load_kinds, make_twins, save_twins

    refuse_file_of_a_run(settings.out, setting="out")
    made = make_twins(
        load_triples(settings.data, category=settings.category),
        kind=settings.kind,
        k=settings.k,
        seed=settings.seed,
        tagger=settings.tagger,
        kinds=None if settings.kinds is None else load_kinds(settings.kinds),
    )
    if not made:
        raise InputError(made.note)
    save_twins(settings.out, made)
    lines = [*excluded_lines(made), *example_lines(made, settings.examples), *_how(made)]
    Output(
        shown=[count_table(made), *lines, f"File: {settings.out} (for --twins)"],
        values=_as_values(made, settings),
        rows=pd.DataFrame(counts(made)),
    ).print(settings)


# -- what is printed -------------------------------------------------------------------------------


def counts(made: Twins) -> list[dict[str, Any]]:
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


def count_table(made: Twins) -> Table:
    """How many triples have twins, by category."""
    table = Table("category", title="Twins", title_justify="left")
    rows = counts(made)
    for heading in list(rows[0])[1:]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


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
    for triple, twin in _examples(made, number):
        lines.append(f"{triple.category}: {triple.group} -> {twin.group}")
        lines.append(f"  {marked(triple.context, twin.context)}")
        lines.append(f"    stereotype: {marked(triple.stereotype, twin.stereotype)}")
        lines.append(f"    anti-stereotype: {marked(triple.anti_stereotype, twin.anti_stereotype)}")
    return lines


def _examples(made: Twins, number: int) -> list[tuple[Triple, Triple]]:
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


def _how(made: Twins) -> list[str]:
    record = made.record()
    lines = []
    if "pronouns" in record:
        lines.append(f'"her" and "his" were read by: {record["pronouns"]}.')
    if "k" in record:
        lines.append(
            f"Other targets for each triple: {record['k']}, drawn with seed {record['seed']}. A "
            "number with these twins is relative to the other targets, which have stereotypes too."
        )
    return lines


def _as_values(made: Twins, settings: TwinsSettings) -> dict[str, Any]:
    examples = _examples(made, settings.examples)
    return {
        "file": str(settings.out),
        "record": made.record(),
        "categories": counts(made),
        "excluded": [
            {
                "target": e.triple.group,
                "bias_type": e.triple.category,
                "context": e.triple.context,
                "reason": e.reason,
            }
            for e in made.excluded
        ],
        "examples": [
            {
                "target": triple.group,
                "twin_target": twin.group,
                "bias_type": triple.category,
                "context": triple.context,
                "twin_context": twin.context,
            }
            for triple, twin in examples
        ],
    }
