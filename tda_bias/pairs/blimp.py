"""BLiMP (Warstadt et al. 2020): a grammatical sentence and one that is not, in 67 paradigms.

``more`` is the grammatical one. What ships is a sample of 20 of the 1,000 pairs of each paradigm
(CC BY 4.0), with the accuracies that were published for all 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tda_bias.pairs.pair import Pair, checked
from tda_bias.pairs.sources import hub_split, needed, packaged, rows_of
from tda_bias.runs.files import json_objects

FOLDER, SAMPLE, PARADIGMS = "blimp", "sample.csv", "paradigms.csv"
HUB_NAME, HUB_SPLIT = "nyu-mll/blimp", "train"
LICENCE = "CC BY 4.0, (c) 2020 Alex Warstadt and others"
_COLUMNS = ("UID", "sentence_good", "sentence_bad")


def paradigms() -> dict[str, dict[str, str]]:
    """The 67 paradigms: phenomenon, and published accuracies of ``ngram lstm txl gpt2``."""
    rows = rows_of(packaged(FOLDER, PARADIGMS), PARADIGMS, columns=("paradigm", "term", "gpt2"))
    return {row["paradigm"]: row for row in rows}


def from_sample(text: str) -> list[Pair]:
    """Pairs of the sample that ships."""
    return from_rows(
        (
            f"BLiMP {row['paradigm']} {row['id']}",
            {
                "UID": row["paradigm"],
                "pairID": row["id"],
                "sentence_good": row["good"],
                "sentence_bad": row["bad"],
            },
        )
        for row in rows_of(text, SAMPLE, columns=("paradigm", "id", "good", "bad"))
    )


def from_json_lines(texts: Mapping[str, str]) -> list[Pair]:
    """Pairs of the official files, by name; files that hold no sentences are passed over.

    Raises:
        InputError: if a line is of another form.
    """
    pairs = []
    for name, text in texts.items():
        objects = list(json_objects(text, name))
        if any("sentence_good" in item for _, item in objects):
            pairs += from_rows(objects)
    return pairs


def from_hub() -> tuple[list[Pair], Any]:
    """All 67,000 pairs, and one of the hub's splits they were read from.

    Raises:
        InputError: if a paradigm is neither in the cache nor can be fetched.
    """
    pairs: list[Pair] = []
    for name in paradigms():
        split = hub_split(HUB_NAME, name, HUB_SPLIT)
        pairs += from_rows((f"{HUB_NAME} {name} {number}", row) for number, row in enumerate(split))
    return pairs, split


def from_rows(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Pair]:
    """Pairs of rows, each with where it stands; the type is the paper's phenomenon."""
    known = paradigms()
    pairs = []
    for where, row in rows:
        paradigm, good, bad = needed(row, _COLUMNS, where)
        number = row.get("pairID", row.get("pair_id"))
        pair = Pair(
            id=f"{paradigm}-{number}",
            set="blimp",
            group=paradigm,
            more=good,
            less=bad,
            # Two paradigms carry another phenomenon in the data than in the published table.
            type=known[paradigm]["term"] if paradigm in known else row.get("linguistics_term"),
            source=where,
        )
        pairs.append(checked(pair))
    return pairs
