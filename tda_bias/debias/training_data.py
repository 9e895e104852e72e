"""What may be trained on, and the pairs that guard, by the names that settings give them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tda_bias.debias.protocol import Preset
from tda_bias.pairs import PairSet, load_pairs
from tda_bias.pairs.pair import is_evaluation_only
from tda_bias.sources import of_environment
from tda_bias.store.settings import given_as
from tda_bias.triples import Source, read_triples
from tda_bias.twins import Twins, twins_in
from tda_bias.types import InputError, Triple

# Controls that compare texts with their twins.
_NEED_TWINS = {"placebo", "cda", "leace", "steering"}
_GENDER_AGREEMENT = "blimp_gender_agreement"


def training_source(data: str) -> Source[Triple]:
    """Triples of a source that may be trained on.

    Raises:
        InputError: if the data must not be trained on, or as ``read_triples``.
    """
    refuse_evaluation_only(data)
    return read_triples(data)


def training_texts(
    source: Source[Triple],
    category: str,
    *,
    limit: int | None,
    twins: str,
    controls: Collection[str],
) -> tuple[list[Triple], Twins | None, int]:
    """Triples that can be trained on.

    ``twins`` is ``auto``, ``none``, or a file; some controls need them.

    Returns:
        The triples, their twins, and how many are left out because they have none.

    Raises:
        InputError: if the category is ``all``, a control lacks twins, no triple has one, or as
            ``Source.chosen`` and ``load_twins``.
    """
    if category == "all":
        there = sorted({triple.category for triple in source.items})
        raise InputError(
            f"`category` must be one of {', '.join(there)}, because the others show what else "
            "training changes; got 'all'"
        )
    triples = source.chosen(category=category, limit=limit)
    made = twins_in(source.items, triples, twins)
    if made is None:
        if needing := sorted(_NEED_TWINS.intersection(controls)):
            raise InputError(
                f"`controls` {', '.join(needing)} need twins; give --twins, or --controls without "
                "them"
            )
        return triples, None, 0
    kept = [triple for triple in triples if made.of(triple)]
    if not kept:
        raise InputError(
            f"no triple of `data` {source.name} has a twin: {made.note or 'see tdabias twins'}"
        )
    return kept, made.only(kept), len(triples) - len(kept)


def pair_sets(names: str | None, preset: Preset) -> dict[str, PairSet]:
    """Sets of minimal pairs by name: those of ``names`` (with commas, or ``none``), else BLiMP's.

    With the preset ``smoke`` there are none unless they are asked for.

    Raises:
        InputError: as ``load_pairs``, or if two have one name.
    """
    if names is not None:
        sources = [] if names == "none" else [name.strip() for name in names.split(",")]
    else:
        folder = of_environment(_GENDER_AGREEMENT)
        sources = ["blimp", *([str(folder)] if folder else [])] if preset == "full" else []
    found: dict[str, PairSet] = {}
    for source in sources:
        path = Path(source)
        name = path.name if path.is_dir() else path.stem
        if not name or name in found:
            raise InputError(
                "`pairs` must name sets, files or folders with commas between them, no two with "
                f"one name; got {names!r}"
            )
        paradigm = path.is_dir() or '"sentence_good"' in _first_line(path)
        with given_as("pairs"):
            found[name] = load_pairs("blimp", data=path) if paradigm else load_pairs(source)
    return found


def _first_line(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline(10_000)


def refuse_evaluation_only(source: str | Path) -> None:
    """Refuse data that is for evaluation only, by its name or by what it says.

    Raises:
        InputError: if it is CrowS-Pairs, in its own table or as JSON Lines.
    """
    path = Path(source)
    first = _first_line(path)
    by_content = "sent_more" in first or '"set": "crows' in first.replace('":"', '": "')
    if by_content or is_evaluation_only(path.stem):
        raise InputError(
            f"`data` {source} is CrowS-Pairs, which must not be trained on: its data "
            "statement says that it is for evaluation only; train on other texts and evaluate on "
            "these"
        )
