"""StereoSet's intrasentence half: three sentences that differ in the words that fill a blank."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tda_bias.pairs.pair import chosen
from tda_bias.pairs.sources import commit_of, hash_of, hub_split, located, text_of
from tda_bias.runs.files import json_objects
from tda_bias.triples import checked_category, refuse_unknown_category
from tda_bias.types import ROLES, InputError

HUB_NAME, HUB_SPLIT = "McGill-NLP/stereoset", "validation"
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
        split = hub_split(HUB_NAME, "intrasentence", HUB_SPLIT)
        return list(from_dataset(split)), commit_of(split)
    path = Path(source)
    if not path.exists():
        raise InputError(
            f"`data` must be stereoset, a readable file, or a folder with one; got {str(path)!r}"
        )
    text = text_of(located(path, "dev.json*")[0] if path.is_dir() else path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and "data" in whole:
        return list(_from_dev_json(whole, str(source))), hash_of(text)
    lines = json_objects(text, str(source))
    return [_from_line(item, where) for where, item in lines], hash_of(text)


def from_dataset(split: Any) -> Iterator[SentenceTriple]:
    """Items of a ``datasets.Dataset`` in the hub's form; label names come from its features."""
    feature = split.features["sentences"]
    inner = getattr(feature, "feature", feature)
    label = (inner[0] if isinstance(inner, list) else inner)["gold_label"]
    names = [str(name) for name in getattr(label, "feature", label).names]
    for number, row in enumerate(split):
        sentences = row["sentences"]
        if isinstance(sentences, Mapping):  # a sequence of records arrives as a dict of lists
            labelled = list(zip(sentences["gold_label"], sentences["sentence"], strict=True))
        else:
            labelled = [(s["gold_label"], s["sentence"]) for s in sentences]
        roles = [(names[a] if isinstance(a, int) else a, b) for a, b in labelled]
        yield _item(row, roles, f"{HUB_NAME} item {row.get('id', number)}")


def _from_dev_json(content: Mapping[str, Any], source: str) -> Iterator[SentenceTriple]:
    data = content["data"]
    items = data.get("intrasentence") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise InputError(
            f"`data` {source} has no list data.intrasentence: is it StereoSet's dev.json?"
        )
    for number, item in enumerate(items):
        where = f"{source} item {number}"
        sentences = item.get("sentences") if isinstance(item, dict) else None
        if not isinstance(sentences, list) or not all(isinstance(s, dict) for s in sentences):
            raise InputError(f"{where}: expected an object with a list of sentences")
        yield _item(item, [(s.get("gold_label"), s.get("sentence")) for s in sentences], where)


def _from_line(item: Mapping[str, Any], where: str) -> SentenceTriple:
    if item.get("type", "intrasentence") != "intrasentence":
        raise InputError(f"{where}: only intrasentence items can be read, got {item['type']!r}")
    return _item(item, [(role, item.get(role)) for role in ROLES if role in item], where)


def _item(
    item: Mapping[str, Any], sentences: Iterable[tuple[Any, Any]], where: str
) -> SentenceTriple:
    by_role: dict[str, str] = {}
    for label, sentence in sentences:
        if label not in ROLES:
            raise InputError(f"{where}: the label must be one of {', '.join(ROLES)}; got {label!r}")
        if label in by_role:
            raise InputError(f"{where}: the role {label} stands twice")
        if not isinstance(sentence, str) or not sentence.strip():
            raise InputError(f"{where}: `{label}` must be a text that is not empty")
        by_role[label] = sentence
    missing = [role for role in ROLES if role not in by_role]
    if missing:
        raise InputError(f"{where}: the role {missing[0]} is missing")
    if "BLANK" not in str(item.get("context")):
        raise InputError(f"{where}: its context has no BLANK, so it is no intrasentence item")
    return SentenceTriple(
        id=str(item.get("id", where)),
        group=str(item.get("target") or "").strip() or UNNAMED,
        category=checked_category(item.get("bias_type"), where),
        stereotype=by_role["stereotype"],
        anti_stereotype=by_role["anti-stereotype"],
        unrelated=by_role["unrelated"],
        source=where,
    )
