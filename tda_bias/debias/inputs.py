"""Texts of an experiment by the names that its settings give them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from tda_bias.debias.protocol import refuse_evaluation_only
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.runs.settings import given_as
from tda_bias.sources import of_environment
from tda_bias.triples import load_triples
from tda_bias.twins import Twins, load_twins, make_twins
from tda_bias.types import InputError, Triple

# Controls that compare texts with their twins.
_NEED_TWINS = {"placebo", "cda", "cda-lora", "leace", "steering"}
_GENDER_AGREEMENT = "blimp_gender_agreement"


def training_texts(
    data: str, category: str, *, limit: int | None, twins: str, controls: Collection[str]
) -> tuple[list[Triple], Twins | None, int]:
    """Triples that can be trained on.

    Args:
        data: Their source.
        category: Of the triples.
        limit: Triples of each group at most.
        twins: ``auto``, ``none``, or a file.
        controls: Controls of the experiment, some of which need twins.

    Returns:
        The triples, their twins, and how many are left out because they have none.

    Raises:
        InputError: if the data must not be trained on, the category is ``all``, a control lacks
            twins, no triple has one, or as ``load_triples`` and ``load_twins``.
    """
    refuse_evaluation_only(data)
    if category == "all":
        there = sorted({triple.category for triple in load_triples(data)})
        raise InputError(
            f"`category` must be one of {', '.join(there)}, because the others show what else "
            "training changes; got 'all'"
        )
    triples = load_triples(data, category=category, limit=limit)
    if twins == "none":
        if needing := sorted(_NEED_TWINS.intersection(controls)):
            raise InputError(
                f"`controls` {', '.join(needing)} need twins; give --twins, or --controls without "
                "them"
            )
        return triples, None, 0
    whole = load_triples(data)  # a file of twins is about all of it
    made = make_twins(whole) if twins == "auto" else load_twins(twins, whole)
    kept = [triple for triple in triples if made.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {data} has a twin: {made.note or 'see tdabias twins'}"
        )
    return kept, made.only(kept), len(triples) - len(kept)


def other_categories(
    data: str, category: str, *, limit: int | None
) -> list[tuple[Triple, Sequence[Triple]]]:
    """Triples of the categories that nothing is trained on, with their twins, where there are."""
    every = load_triples(data, category="all", limit=limit)
    others = [triple for triple in every if triple.category != category]
    made = make_twins(others)
    return [(triple, made.of(triple)) for triple in others]


def pair_sets(names: str | None, preset: Literal["smoke", "full"]) -> dict[str, PairSet]:
    """Sets of minimal pairs by name.

    Args:
        names: Those that are asked for, with commas, or ``none``; None for the preset's: of
            ``full`` BLiMP's.
        preset: The preset.

    Raises:
        InputError: as ``load_pairs``.
    """
    if names is not None:
        sources = [] if names == "none" else names.split(",")
    else:
        folder = of_environment(_GENDER_AGREEMENT)
        sources = ["blimp", *([str(folder)] if folder else [])] if preset == "full" else []
    found = {}
    for source in sources:
        path = Path(source)
        paradigm = path.is_dir() or '"sentence_good"' in _first_line(path)
        with given_as("pairs"):
            found[path.stem] = load_pairs("blimp", data=path) if paradigm else load_pairs(source)
    return found


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(10_000)
