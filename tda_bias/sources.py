"""Sources of texts: what ships, a user's files, the hub; StereoSet's two forms; neutral text."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from tda_bias.show.text import is_visible
from tda_bias.store.files import each_key_once, json_objects, read_text
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import PACKAGED
from tda_bias.types import ROLES, InputError

HUB = "hub"
STEREOSET = "McGill-NLP/stereoset"
# StereoSet's halves: sentences that go on from a context, and sentences that differ in a blank.
Half = Literal["intersentence", "intrasentence"]


class UnreachableError(InputError):
    """What is on the hub alone is neither in the cache nor could it be fetched."""


class _Grouped(Protocol):
    @property
    def group(self) -> str: ...


T = TypeVar("T", bound=_Grouped)


def packaged(folder: str, name: str) -> str:
    """The text of a file that ships with the package."""
    return (files("tda_bias.data") / "pairs" / folder / name).read_text(encoding="utf-8")


def hash_of(*contents: str | bytes) -> str:
    """Pin the content of files by a hash of their bytes."""
    return f"blake2b-{text_hash(*contents)}"


def located(data: str | Path, *patterns: str) -> list[Path]:
    """The files of a set, one per pattern: ``data`` itself, or all inside it, or in one below.

    Raises:
        InputError: if there is no such path, or a file is missing.
    """
    path = Path(data)
    if path.is_file() and len(patterns) == 1:
        return [path]
    lacking = patterns[0]
    for folder in (path, *sorted(path.glob("*/"))):
        inside = [next(iter(sorted(folder.glob(pattern))), None) for pattern in patterns]
        if None not in inside:
            return [file for file in inside if file is not None]
        if any(inside):  # files of another folder are of another set
            lacking = patterns[inside.index(None)]
            break
    what = "has no" if path.is_dir() else "is no folder with a"
    raise InputError(f"`data` {str(data)!r} {what} file {lacking}")


def _inside(folder: Path, pattern: str) -> Path | None:
    return next(iter(sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])), None)


def of_environment(pattern: str) -> Path | None:
    """A file in the folder of sets that ``TDABIAS_PAIRS`` names, or one below, if it is there."""
    folder = os.environ.get("TDABIAS_PAIRS")
    return _inside(Path(folder), pattern) if folder else None


def stereoset_of_environment(half: Half) -> Path | None:
    """The file of one of StereoSet's halves that the environment names, if it names one.

    ``TDABIAS_STEREOSET`` names a ``dev.json``, which has both, or another file of intersentence
    items.
    """
    named = os.environ.get("TDABIAS_STEREOSET", "")
    if half == "intrasentence" and not named.lower().endswith(".json"):
        return of_environment("stereoset_intrasentence/dev.json*")
    return Path(named) if named else None


def text_of(path: Path, *, named: Sequence[str] = (PACKAGED, HUB)) -> str:
    """The text of a file, which must be UTF-8 and not empty; what else is ``named`` is allowed."""
    text = read_text(path, setting="data", named=named)
    if not text.strip():
        raise InputError(f"`data` {path} is empty")
    return text


def hub_split(
    name: str,
    config: str | None,
    split: str,
    *,
    revision: str | None = None,
    given: str = HUB,
    instead: str = "give --data PATH with the set's own files",
) -> Any:
    """One split of a data set on the hub.

    ``given`` is what the user called it, ``instead`` what can be done without the hub.

    Raises:
        UnreachableError: if it is neither in the cache nor can be fetched.
    """
    import datasets

    try:
        return datasets.load_dataset(name, config, split=split, revision=revision)
    except Exception as error:  # the hub's clients raise many kinds; all mean the same to the user
        raise UnreachableError(
            f"`data` {given}: {name} is neither in the cache nor could it be fetched "
            f"({type(error).__name__}); {instead}"
        ) from error


def commit_of(split: Any) -> str | None:
    """The commit a hub split was read at, if its addresses tell."""
    # Addresses have the form hf://datasets/OWNER/NAME@COMMIT/FILE.
    for address in split.info.download_checksums or {}:
        if match := re.search(r"@([0-9a-f]{40})/", address):
            return match.group(1)
    return None


def chosen(
    items: Sequence[T], groups: Sequence[str] | None, limit: int | None, *, of: str, division: str
) -> list[T]:
    """Items of some groups (all if none are named), at most so many of each group and division.

    ``of`` names them in messages, ``division`` is the attribute that divides a group.

    Raises:
        InputError: if ``limit`` is below 1, or a group does not occur, naming the first and those
            that are spelled alike.
    """
    if limit is not None and limit < 1:
        raise InputError(f"`limit` must be at least 1; got {limit}")
    names = sorted({item.group for item in items})
    for group in groups or ():
        if group not in names:
            close = get_close_matches(group, names, n=3, cutoff=0.4)
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            there = f"there are {', '.join(names[:12])}{more}"
            hint = f"did you mean {' or '.join(close)}" if close else there
            raise InputError(f"`group` {group!r} does not occur in these {of}; {hint}")
    counts = Counter[tuple[str, str | None]]()
    kept = []
    for item in items:
        key = (item.group, getattr(item, division))
        counts[key] += 1
        if (not groups or item.group in groups) and (limit is None or counts[key] <= limit):
            kept.append(item)
    return kept


# -- StereoSet's items -----------------------------------------------------------------------------


class Item(NamedTuple):
    """An item of either half: its fields, its sentences with their labels, and where it stands.

    ``published`` says that it is in the form of the set's authors, not of a user's file.
    """

    row: Mapping[str, Any]
    sentences: list[tuple[Any, Any]]
    where: str
    published: bool = False


def items_of_split(split: Any) -> Iterator[Item]:
    """Items of a ``datasets.Dataset`` in the hub's form; label names come from its features."""
    feature = split.features["sentences"]
    inner = getattr(feature, "feature", feature)
    label = (inner[0] if isinstance(inner, list) else inner)["gold_label"]
    names = [str(name) for name in getattr(label, "feature", label).names]
    for number, row in enumerate(split):
        sentences = row["sentences"]
        if isinstance(sentences, Mapping):  # a sequence of records arrives as a dict of lists
            pairs = list(zip(sentences["gold_label"], sentences["sentence"], strict=True))
        else:
            pairs = [(one["gold_label"], one["sentence"]) for one in sentences]
        labelled = [(names[of] if isinstance(of, int) else of, text) for of, text in pairs]
        yield Item(row, labelled, f"{STEREOSET} item {row.get('id', number)}", published=True)


def items_of_text(text: str, half: Half, source: str) -> Iterator[Item]:
    """Items of a text in the form of StereoSet's ``dev.json``, or of JSON Lines."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and "data" in whole:
        try:
            whole = json.loads(text, object_pairs_hook=each_key_once)
        except KeyError as error:
            raise InputError(f"{source}: the key {error} stands twice in an object") from None
        yield from _of_dev_json(whole["data"], half, source)
        return
    for where, row in json_objects(text, source):
        if row.get("type", half) != half:
            raise InputError(f"{where}: only {half} items can be read, got {row['type']!r}")
        yield Item(row, [(role, row.get(role)) for role in ROLES if role in row], where)


def _of_dev_json(data: Any, half: Half, source: str) -> Iterator[Item]:
    items = data.get(half) if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise InputError(f"`data` {source} has no list data.{half}: is it StereoSet's dev.json?")
    for number, row in enumerate(items):
        sentences = row.get("sentences") if isinstance(row, dict) else None
        if not isinstance(sentences, list) or not all(isinstance(s, dict) for s in sentences):
            raise InputError(f"{source} item {number}: expected an object with a list of sentences")
        labelled = [(one.get("gold_label"), one.get("sentence")) for one in sentences]
        yield Item(row, labelled, f"{source} item {row.get('id', number)}", published=True)


def texts_by_role(item: Item) -> dict[str, str]:
    """The sentences of an item by role, each of which must stand there once."""
    by_role: dict[str, str] = {}
    for label, text in item.sentences:
        if label not in ROLES:
            raise InputError(
                f"{item.where}: the label must be one of {', '.join(ROLES)}; got {label!r}"
            )
        if label in by_role:
            raise InputError(f"{item.where}: the role {label} stands twice")
        by_role[label] = visible_text(text, label, item.where)
    for role in ROLES:
        if role not in by_role:
            raise InputError(f"{item.where}: the role {role} is missing")
    return by_role


def visible_text(value: Any, name: str, where: str) -> str:
    """The same text, if it is one, is not empty, and can be written as UTF-8."""
    if not isinstance(value, str) or not is_visible(value):
        raise InputError(f"{where}: `{name}` must be a text that is not empty; got {value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{where}: `{name}` holds half of a surrogate pair, which is no character")
    return value


# -- neutral running text --------------------------------------------------------------------------

WIKITEXT2 = "wikitext2"
_WIKITEXT2_FILE = "wikitext-2-raw-v1_test.txt"


def text_comes_from_hub(source: str | Path) -> bool:
    """Tell whether a neutral text is read from the hub."""
    return str(source) == WIKITEXT2 and of_environment(_WIKITEXT2_FILE) is None


@dataclass(frozen=True)
class NeutralText:
    """A text to be read from beginning to end; ``revision`` pins its content, as of a data set."""

    text: str
    source: str
    revision: str | None


def load_neutral_text(source: str | Path = WIKITEXT2) -> NeutralText:
    """A neutral text.

    Args:
        source: ``wikitext2`` (``wikitext-2-raw-v1_test.txt`` in the folder that ``TDABIAS_PAIRS``
            names, else the hub's test split, paragraphs joined by an empty line), a text file, or a
            folder with that file.

    Raises:
        InputError: if it cannot be read or is empty.
    """
    if text_comes_from_hub(source):
        split = hub_split("Salesforce/wikitext", "wikitext-2-raw-v1", "test")
        return NeutralText("\n\n".join(split["text"]), WIKITEXT2, commit_of(split))
    own = of_environment(_WIKITEXT2_FILE) if str(source) == WIKITEXT2 else None
    (path,) = located(own or source, _WIKITEXT2_FILE)
    text = text_of(path)
    return NeutralText(text, str(path), hash_of(text))
