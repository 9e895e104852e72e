"""StereoSet's intrasentence half: three sentences that differ in the words that fill a blank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tda_bias.sources import (
    STEREOSET,
    Item,
    chosen,
    commit_of,
    hash_of,
    hub_split,
    items_of_split,
    items_of_text,
    located,
    text_of,
    texts_by_role,
)
from tda_bias.triples import checked_category, refuse_unknown_category
from tda_bias.types import InputError

# Some copies of the set lack targets; their items count as one term.
UNNAMED = "(unnamed)"


@dataclass(frozen=True, slots=True)
class SentenceTriple:
    """Three whole sentences, the same but for some words.

    Attributes:
        id: StereoSet's name of the item.
        group: Its target, for example ``grandfather``.
        category: Its bias type.
        stereotype: The sentence filled stereotypically.
        anti_stereotype: Anti-stereotypically.
        unrelated: With words that make no sense there.
        source: Where it stands, for messages.
    """

    id: str
    group: str
    category: str
    stereotype: str
    anti_stereotype: str
    unrelated: str
    source: str = ""

    def texts(self) -> tuple[str, str, str]:
        """The sentences in the order of ``ROLES``."""
        return self.stereotype.strip(), self.anti_stereotype.strip(), self.unrelated.strip()


def load_sentence_triples(
    source: str | Path = "stereoset",
    *,
    category: str = "all",
    groups: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[list[SentenceTriple], str | None]:
    """Intrasentence items, and what pins the content of their source.

    Args:
        source: ``stereoset`` (the hub's development set) or a file: StereoSet's ``dev.json`` or
            ``test.json``, or JSON Lines with the keys ``target``, ``bias_type``, ``context`` (with
            BLANK), ``stereotype``, ``anti-stereotype``, ``unrelated``, and where known ``id``; or a
            folder with ``dev.json`` or ``dev.jsonl`` in it or one below.
        category: One that the source has, or ``all``.
        groups: Only these targets; all if empty.
        limit: At most so many of each target, the first ones.

    Raises:
        InputError: if the source cannot be read, an item lacks a role or has it twice, a sentence
            is empty, or the category or a target does not occur.
    """
    items, revision = _read(source)
    if not items:
        raise InputError(f"`data` {source} has no item")
    refuse_unknown_category(category, (item.category for item in items), source)
    if category != "all":
        items = [item for item in items if item.category == category]
    return chosen(items, groups, limit, of="items", division="category"), revision


def _read(source: str | Path) -> tuple[list[SentenceTriple], str | None]:
    if source == "stereoset":
        split = hub_split(STEREOSET, "intrasentence", "validation")
        return [_sentence_triple(item) for item in items_of_split(split)], commit_of(split)
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"`data` must be stereoset, a readable file, or a folder with one; got {str(path)!r}"
        )
    text = text_of(located(path, "dev.json*")[0] if path.is_dir() else path)
    items = items_of_text(text, "intrasentence", str(source))
    return [_sentence_triple(item) for item in items], hash_of(text)


def _sentence_triple(item: Item) -> SentenceTriple:
    by_role = texts_by_role(item)
    if "BLANK" not in str(item.row.get("context")):
        raise InputError(f"{item.where}: its context has no BLANK, so it is no intrasentence item")
    return SentenceTriple(
        id=str(item.row.get("id", item.where)),
        group=str(item.row.get("target") or "").strip() or UNNAMED,
        category=checked_category(item.row.get("bias_type"), item.where),
        stereotype=by_role["stereotype"],
        anti_stereotype=by_role["anti-stereotype"],
        unrelated=by_role["unrelated"],
        source=item.where,
    )
