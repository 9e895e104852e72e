"""``tdabias twins``: make the twins of triples, and write them for a person to read and correct."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from pydantic import Field

from tda_bias.config import SeedOption
from tda_bias.store.run import refuse_file_of_a_run
from tda_bias.triples import comes_from_hub, load_triples
from tda_bias.twins import Twins, load_kinds, make_placebos, make_twins, save_lm_eval, save_twins
from tda_bias.types import InputError

from .loading import use_cache_if_unreachable
from .options import command
from .output import Output, rows_table
from .settings import OutputSettings, refuse_options

# Twins that are printed, and triples left out for one reason; the file and the JSON have all.
_EXAMPLES, _LEFT_OUT = 3, 3


class TwinsSettings(SeedOption, OutputSettings):
    """Settings of ``tdabias twins``."""

    data: str = Field(
        "stereoset",
        description="stereoset (the hub), starter (ships with tdabias, demonstrates only), or a "
        "file: dev.json, JSON Lines or CSV",
    )
    category: str = Field(
        "all", description="gender, profession, race or religion, one of your own file's, or all"
    )
    kind: Literal["auto", "gender", "target"] = Field(
        "auto",
        description="gender (swap gendered words), target (put another target of its kind in its "
        "place), auto (gender for the category gender, else target)",
    )
    placebo: Literal["none", "synonym", "role"] = Field(
        "none",
        description="placebo twins in the place of twins: synonym (mother to mom), role (another "
        "relative or role of the same gender, mother to aunt)",
    )
    k: int | None = Field(
        None,
        ge=1,
        le=100,
        description="other targets for each triple (3, or all where a kind has fewer others); a "
        "gender swap gives one",
    )
    kinds: Path | None = Field(
        None, description="YAML file of targets by kind, for other targets than StereoSet's"
    )
    as_: Literal["twins", "lm-eval"] = Field(
        "twins",
        alias="as",
        description="twins (for --twins FILE), or lm-eval (triples and twins, for the task "
        "stereoset_intersentence of lm-evaluation-harness)",
    )
    out: Path = Field(Path("twins.jsonl"), description="file to write")


@command(TwinsSettings)
def twins(settings: TwinsSettings) -> None:
    """Make the twins of triples: the same texts about the other gender or another target."""
    if comes_from_hub(settings.data):
        use_cache_if_unreachable()

    refuse_file_of_a_run(settings.out, setting="out")
    triples = load_triples(settings.data, category=settings.category)
    if settings.placebo == "none":
        made = make_twins(
            triples,
            kind=settings.kind,
            k=settings.k,
            seed=settings.seed,
            kinds=None if settings.kinds is None else load_kinds(settings.kinds),
        )
    else:
        others = {"kind", "k", "kinds", "seed"}
        why = "is about twins, and placebo twins are made of a list of words"
        refuse_options(settings, others, why)
        made = make_placebos(triples, settings.placebo)
    if not made:
        raise InputError(made.note)
    if settings.as_ == "lm-eval":
        save_lm_eval(settings.out, triples, made)
        metadata = json.dumps({"data": str(settings.out)})
        use = f"for lm_eval --tasks stereoset_intersentence --metadata '{metadata}'"
    else:
        save_twins(settings.out, made)
        use = "for --twins"
    output(made, settings, use).print(settings)


# -- what is printed -------------------------------------------------------------------------------


def output(made: Twins, settings: TwinsSettings, use: str) -> Output:
    """Counts, what is left out and why, and examples."""
    import pandas as pd

    rows = _counts(made)
    placebo = made.record().get("placebo")
    title = "Twins" if placebo is None else f"Placebo twins ({placebo})"
    return Output(
        shown=[
            rows_table(title, rows, [(name, f"{{{name}}}") for name in rows[0]]),
            *_left_out(made),
            *_examples(made),
            *_how_made(made),
            f"File: {settings.out} ({use})",
        ],
        values={
            "file": settings.out,
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
    before, after = (re.findall(r"\w+|\W", text) for text in (original, twin))
    pieces = []
    for what, i, j, k, m in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        old, new = "".join(before[i:j]), "".join(after[k:m])
        pieces.append(old if what == "equal" else f"[{old} -> {new}]")
    return "".join(pieces)


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
