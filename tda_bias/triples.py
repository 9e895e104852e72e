"""Triples: StereoSet's two halves on the hub and as dev.json, JSON Lines, the starter set.

Intersentence items are a context with three continuations, intrasentence items three sentences that
differ in the words that fill a blank.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

import regex

from tda_bias.script import WORD_CHARACTERS, is_one_line
from tda_bias.show.text import counted, left_out
from tda_bias.sources import (
    STEREOSET,
    Half,
    Item,
    chosen,
    commit_of,
    hash_of,
    hub_split,
    items_of_split,
    items_of_text,
    located,
    stereoset_of_environment,
    text_of,
    texts_by_role,
    visible_text,
)
from tda_bias.store.files import csv_objects, delimiter_of, read_content
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import DataRecord
from tda_bias.types import ROLES, InputError, Triple, in_order

# Examples in a remark; characters of a target's name, which stands in tables and figures.
_NAMED, _NAME_LENGTH = 3, 200
T = TypeVar("T", bound="Triple | SentenceTriple")


def load_triples(
    source: str | Path = "stereoset",
    *,
    category: str = "all",
    groups: Sequence[str] | None = None,
    limit: int | None = None,
) -> list[Triple]:
    """Triples of one category, or of all, in the order of the source, each once.

    Args:
        source: ``stereoset`` (the file that ``TDABIAS_STEREOSET`` names, else the hub's
            intersentence development set), ``starter`` (the triples
            that ship with the package: they demonstrate, they do not measure), or a file:
            StereoSet's ``dev.json`` / ``test.json``, or JSON Lines, CSV or TSV with the keys
            ``target``, ``bias_type``, ``context``, ``stereotype``, ``anti-stereotype``,
            ``unrelated``.
        category: A value of ``bias_type``: StereoSet's are ``gender``, ``profession``, ``race`` and
            ``religion``, a file of one's own may have others. Or ``all``.
        groups: Only these targets.
        limit: At most so many triples of each group, the first ones.

    Raises:
        InputError: if the source cannot be read, a triple lacks a role or has it twice, a sentence
            is empty, a label is unknown, or the category or a group does not occur.
    """
    return read_triples(source).chosen(category=category, groups=groups, limit=limit)


@dataclass(frozen=True)
class Source(Generic[T]):
    """The items of a source, read once.

    Attributes:
        name: The source as it was given.
        read: Items as they stand there.
        revision: What pins its content: the hub's commit, or a hash of the file.
        noun: What an item is called in messages.
        equal: Where items stand that are left out, because two texts of theirs are one.
    """

    name: str
    read: tuple[T, ...]
    revision: str | None
    noun: str = "triple"
    equal: tuple[str, ...] = ()

    @cached_property
    def items(self) -> tuple[T, ...]:
        """Each item once: what stands twice would count as twice the evidence."""
        return tuple(item for item, earlier in _with_earlier(self.read) if earlier is None)

    def chosen(
        self,
        *,
        category: str = "all",
        groups: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[T]:
        """Items of one category, or of all, each once; of each group at most the first ``limit``.

        Raises:
            InputError: if the category or a group does not occur.
        """
        _refuse_unknown(category, (item.category for item in self.items), self.name)
        items = [item for item in self.items if category in ("all", item.category)]
        return chosen(items, groups, limit, of=f"{self.noun}s", division="category")

    def record(self, category: str = "all") -> DataRecord:
        """The source for the record of a run, with remarks on the items of a category."""
        return DataRecord(source=self.name, revision=self.revision, remarks=self.remarks(category))

    def remarks(self, category: str = "all") -> tuple[str, ...]:
        """Remarks that are no errors: items that stand twice, names nearly the same."""
        of_category = [item for item in self.read if category in ("all", item.category)]
        equal = left_out(self.equal, self.noun, "a stereotype and an anti-stereotype that are one")
        return (*_remarks(of_category, self.noun), *equal)


def _refuse_unknown(category: str, there: Iterable[str], source: str | Path) -> None:
    """Make sure that a category is ``all``, or one of those that a source has."""
    categories = in_order(there)
    if category not in ("all", *categories):
        raise InputError(
            f"`category` must be one of {', '.join(categories)}, all, which `data` {source} has; "
            f"got {category!r}"
        )


def _remarks(read: Sequence[Triple | SentenceTriple], noun: str) -> tuple[str, ...]:
    again = []
    for item, earlier in _with_earlier(read):
        if earlier is not None and earlier.source == item.source:  # several of the same name
            again.append(f"{Path(item.source).name} stands again")
        elif earlier is not None:
            name, other = Path(item.source).name, Path(earlier.source).name
            again.append(f"{name} says the same as {other}")
    remarks = []
    if again:
        many = "repeat others and are" if len(again) > 1 else "repeats another and is"
        shown = "; ".join(again[:_NAMED]) + ("; ..." if len(again) > _NAMED else "")
        remarks.append(f"{counted(len(again), noun)} {many} left out ({shown}).")
    alike: dict[tuple[str, str], set[str]] = {}
    for item in read:
        spelled = unicodedata.normalize("NFKC", item.group).casefold()
        alike.setdefault((item.category, " ".join(spelled.split())), set()).add(item.group)
    for names in alike.values():
        if len(names) > 1:
            remarks.append(
                f"{' and '.join(map(repr, sorted(names)))} differ in case, spaces or Unicode form "
                f"alone and count as {len(names)} groups."
            )
    return tuple(remarks)


def _with_earlier(items: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Every item, with the first one that says the same if it is not that one."""
    first: dict[tuple[str, ...], T] = {}
    for item in items:
        context = item.context if isinstance(item, Triple) else ""
        texts = item.stereotype, item.anti_stereotype, item.unrelated
        said = item.category, item.group, context, *texts
        yield item, first.get(said)
        first.setdefault(said, item)


def triple_ids(triples: Iterable[Triple]) -> list[str]:
    """Name each triple, wherever it was read from, by a hash of its content.

    A triple that stands several times gets ``-2``, ``-3``, ... after it.
    """
    seen: Counter[str] = Counter()
    ids = []
    for triple in triples:
        said = [triple.category, triple.group, triple.context]
        said += [triple.stereotype, triple.anti_stereotype, triple.unrelated]
        name = text_hash(json.dumps(said), size=8)
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


def comes_from_hub(source: str | Path, half: Half = "intersentence") -> bool:
    """Tell whether a source of one of StereoSet's halves is read from the hub."""
    return _resolved(source, half) == "stereoset"


def _resolved(source: str | Path, half: Half = "intersentence") -> str | Path:
    """The file that the environment names for StereoSet, where it names one."""
    return (stereoset_of_environment(half) or source) if source == "stereoset" else source


def read_triples(source: str | Path = "stereoset") -> Source[Triple]:
    """Read every triple of a source, once; see ``load_triples``, which chooses among them.

    Raises:
        InputError: if the source cannot be read, or a triple is not as ``load_triples`` wants it.
    """
    resolved = _resolved(source)
    if resolved == "stereoset":
        split = _hub_split()
        items, revision = items_of_split(split), commit_of(split)
    elif resolved == "starter":
        raw = files("tda_bias.data").joinpath("starter.jsonl").read_bytes()
        items = items_of_text(raw.decode(), "intersentence", "starter")
        revision = hash_of(raw)
    else:
        text, content = read_content(resolved, setting="data", named=("stereoset", "starter"))
        if not text.strip():
            raise InputError(f"`data` {resolved} is empty")
        items = _items_of_file(Path(resolved), text, "intersentence")
        revision = hash_of(content)
    triples: list[Triple] = []
    equal: list[str] = []
    for item in items:
        triple = _triple(item)
        if triple.stereotype.split() != triple.anti_stereotype.split():
            triples.append(triple)
        elif item.published:  # a slip of its authors
            equal.append(item.where)
        else:
            raise InputError(
                f"{item.where}: the stereotype and the anti-stereotype are the same text, so that "
                "nothing can be compared"
            )
    if not triples:
        raise InputError(f"`data` {source} has no triple")
    return Source(str(source), tuple(triples), revision, noun="triple", equal=tuple(equal))


def _hub_split() -> Any:
    instead = "use --data starter, or --data PATH with a dev.json"
    return hub_split(STEREOSET, "intersentence", "validation", given="stereoset", instead=instead)


def _items_of_file(path: Path, text: str, half: Half) -> Iterator[Item]:
    delimiter = delimiter_of(path)
    if delimiter is None:
        yield from items_of_text(text, half, str(path))
        return
    columns = ("target", "bias_type", "context", *ROLES)
    for where, row in csv_objects(text, str(path), columns=columns, delimiter=delimiter):
        yield Item(row, [(role, row[role]) for role in ROLES], where)


# -- one item --------------------------------------------------------------------------------------


def _triple(item: Item) -> Triple:
    by_role = texts_by_role(item)
    return Triple(
        group=_name(item.row.get("target"), "target", item.where),
        category=_category(item.row.get("bias_type"), item.where),
        context=visible_text(item.row.get("context"), "context", item.where),
        stereotype=by_role["stereotype"],
        anti_stereotype=by_role["anti-stereotype"],
        unrelated=by_role["unrelated"],
        source=item.where,
    )


def _category(value: Any, where: str) -> str:
    """A category as a text calls it; it also names columns, folders and sections."""
    name = _name(value, "bias_type", where)
    if name == "all" or not regex.fullmatch(rf"\w[{WORD_CHARACTERS} &'-]*", name):
        raise InputError(
            f"{where}: `bias_type` must be the name of a category (gender, age ...: letters, "
            f"digits, spaces, hyphens, and not 'all'); got {name!r}"
        )
    return name


def _name(value: Any, key: str, where: str) -> str:
    name = visible_text(value, key, where).strip()
    if not is_one_line(name) or len(name) > _NAME_LENGTH:
        raise InputError(
            f"{where}: `{key}` must be a name of one line, at most {_NAME_LENGTH} characters; got "
            f"{name[:40]!r}{'...' if len(name) > 40 else ''}"
        )
    return name


# -- the intrasentence half ------------------------------------------------------------------------

# Some copies of the set lack targets; their items count as one term.
UNNAMED = "(unnamed)"


@dataclass(frozen=True, slots=True)
class SentenceTriple:
    """Three whole sentences, the same but for the words that fill a blank.

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
) -> tuple[list[SentenceTriple], DataRecord]:
    """Intrasentence items, each once, and their source, with remarks on it.

    Args:
        source: ``stereoset`` (the ``dev.json`` that ``TDABIAS_STEREOSET`` names, else
            ``stereoset_intrasentence`` in the folder that ``TDABIAS_PAIRS`` names, else the hub's
            development set) or a file: StereoSet's ``dev.json`` or ``test.json``, or JSON Lines or
            CSV with the keys ``target``, ``bias_type``, ``context`` (with BLANK), ``stereotype``,
            ``anti-stereotype``, ``unrelated``, and where known ``id``; or a folder with
            ``dev.json`` or ``dev.jsonl`` in it or one below.
        category: One that the source has, or ``all``.
        groups: Only these targets; all if empty.
        limit: At most so many of each target, the first ones.

    Raises:
        InputError: as ``load_triples``, or if an id stands in items that differ.
    """
    read = read_sentence_triples(source)
    items = read.chosen(category=category, groups=groups, limit=limit)
    return items, read.record(category)


def read_sentence_triples(source: str | Path = "stereoset") -> Source[SentenceTriple]:
    """Read every intrasentence item of a source, once; see ``load_sentence_triples``.

    Raises:
        InputError: as ``load_sentence_triples``, but for what it chooses.
    """
    resolved = _resolved(source, "intrasentence")
    if resolved == "stereoset":
        split = hub_split(STEREOSET, "intrasentence", "validation")
        items, revision = items_of_split(split), commit_of(split)
    else:
        path = Path(resolved)
        if not path.exists():
            raise InputError(
                f"`data` must be stereoset, a readable file, or a folder with one; got "
                f"{str(path)!r}"
            )
        path = located(path, "dev.json*")[0] if path.is_dir() else path
        text = text_of(path)
        items, revision = _items_of_file(path, text, "intrasentence"), hash_of(text)
    sentences = tuple(map(_sentence_triple, items))
    if not sentences:
        raise InputError(f"`data` {source} has no item")
    read = Source(str(source), sentences, revision, noun="item")
    _refuse_shared_ids(read.items)
    return read


def _refuse_shared_ids(items: Iterable[SentenceTriple]) -> None:
    named: dict[str, SentenceTriple] = {}
    for item in items:
        other = named.setdefault(item.id, item)
        if other is not item:
            raise InputError(
                f"{item.source}: the id {item.id!r} stands in {other.source} too; every item needs "
                "an id of its own, or none"
            )


def _sentence_triple(item: Item) -> SentenceTriple:
    by_role = texts_by_role(item)
    if "BLANK" not in str(item.row.get("context")):
        raise InputError(f"{item.where}: its context has no BLANK, so it is no intrasentence item")
    return SentenceTriple(
        id=str(item.row.get("id") or item.where),
        group=str(item.row.get("target") or "").strip() or UNNAMED,
        category=_category(item.row.get("bias_type"), item.where),
        stereotype=by_role["stereotype"],
        anti_stereotype=by_role["anti-stereotype"],
        unrelated=by_role["unrelated"],
        source=item.where,
    )
