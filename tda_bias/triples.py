"""The sources of triples: StereoSet on the hub, its dev.json, JSON Lines, and the starter set."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tda_bias.runs.files import json_objects, read_text, rows_of
from tda_bias.runs.text import is_visible
from tda_bias.types import ROLES, InputError, Triple, in_order

HUB_DATASET = "McGill-NLP/stereoset"
# Examples in a remark; characters of a target's name, which stands in tables and figures.
_NAMED, _NAME_LENGTH = 3, 200


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
            StereoSet's ``dev.json`` / ``test.json``, or JSON Lines or CSV with the keys ``target``,
            ``bias_type``, ``context``, ``stereotype``, ``anti-stereotype``, ``unrelated``.
        category: A value of ``bias_type``: StereoSet's are ``gender``, ``profession``, ``race`` and
            ``religion``, a file of one's own may have others. Or ``all``.
        groups: Only these targets.
        limit: At most so many triples of each group, the first ones.

    Raises:
        InputError: if the source cannot be read, a triple lacks a role or has it twice, a sentence
            is empty, a label is unknown, or the category or a group does not occur.
    """
    if limit is not None and limit < 1:
        raise InputError(f"`limit` must be at least 1; got {limit}")
    # What stands twice would count as twice the evidence.
    distinct = [triple for triple, earlier in _with_earlier(_read(source)) if earlier is None]
    if not distinct:
        raise InputError(f"`data` {source} has no triple")
    refuse_unknown_category(category, (triple.category for triple in distinct), source)
    triples = [triple for triple in distinct if category in ("all", triple.category)]
    if groups:
        triples = _only(triples, groups)
    return triples if limit is None else _at_most(triples, limit)


def refuse_unknown_category(category: str, there: Iterable[str], source: str | Path) -> None:
    """Make sure that a category is ``all``, or one of those that a source has.

    Raises:
        InputError: naming these.
    """
    categories = in_order(there)
    if category not in ("all", *categories):
        raise InputError(
            f"`category` must be one of {', '.join(categories)}, all, which `data` {source} has; "
            f"got {category!r}"
        )


def triple_remarks(source: str | Path, *, category: str = "all") -> tuple[str, ...]:
    """Remarks on a source that are no errors: triples that stand twice, names nearly the same.

    Args:
        source: As in ``load_triples``.
        category: As there.

    Returns:
        A sentence each, with a count; nothing where there is nothing to say.
    """
    read = [t for t in _read(source) if category in ("all", t.category)]
    again = [_repeated(triple, earlier) for triple, earlier in _with_earlier(read) if earlier]
    remarks = []
    if again:
        many = (
            "triples repeat others and are" if len(again) > 1 else "triple repeats another and is"
        )
        shown = "; ".join(again[:_NAMED]) + ("; ..." if len(again) > _NAMED else "")
        remarks.append(f"{len(again)} {many} left out ({shown}).")
    alike: dict[tuple[str, str], set[str]] = {}
    for triple in read:
        name = unicodedata.normalize("NFKC", triple.group).casefold()
        alike.setdefault((triple.category, " ".join(name.split())), set()).add(triple.group)
    for names in alike.values():
        if len(names) > 1:
            remarks.append(
                f"{' and '.join(map(repr, sorted(names)))} differ in case, spaces or Unicode form "
                f"alone and count as {len(names)} groups."
            )
    return tuple(remarks)


def _with_earlier(triples: Iterable[Triple]) -> Iterator[tuple[Triple, Triple | None]]:
    """Every triple, with the first one that says the same if it is not that one."""
    first: dict[Triple, Triple] = {}
    for triple in triples:
        said = replace(triple, source="")
        yield triple, first.get(said)
        first.setdefault(said, triple)


def _repeated(triple: Triple, earlier: Triple) -> str:
    """Index of the triple that each repeats; a source may give several the same name."""
    name = Path(triple.source).name
    if triple.source == earlier.source:
        return f"{name} stands again"
    return f"{name} says the same as {Path(earlier.source).name}"


def triple_ids(triples: Iterable[Triple]) -> list[str]:
    """Name each triple, wherever it was read from, by a hash of its content.

    A triple that stands several times gets ``-2``, ``-3``, ... behind it.
    """
    seen: Counter[str] = Counter()
    ids = []
    for triple in triples:
        said = [triple.category, triple.group, triple.context]
        said += [triple.stereotype, triple.anti_stereotype, triple.unrelated]
        name = hashlib.blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


def comes_from_hub(source: str | Path) -> bool:
    """Tell whether a source of triples is read from the hub."""
    return _resolved(source) == "stereoset"


def _resolved(source: str | Path) -> str | Path:
    """The file that the environment names for StereoSet, where it names one."""
    return os.environ.get("TDABIAS_STEREOSET") or source if source == "stereoset" else source


def source_revision(source: str | Path) -> str | None:
    """Pin the content of a source: the hub's commit, or a hash of the file's bytes."""
    source = _resolved(source)
    if source == "stereoset":
        return hub_revision(_hub_split().info.download_checksums or {})
    if source == "starter":
        raw = files("tda_bias.data").joinpath("starter.jsonl").read_bytes()
    else:
        raw = Path(source).read_bytes()
    return "blake2b-" + hashlib.blake2b(raw, digest_size=16).hexdigest()


def hub_revision(addresses: Iterable[str]) -> str | None:
    """The commit in addresses of the form ``hf://datasets/OWNER/NAME@COMMIT/FILE``, if any."""
    for address in addresses:
        if match := re.search(r"@([0-9a-f]{40})/", address):
            return match.group(1)
    return None


def _only(triples: list[Triple], groups: Sequence[str]) -> list[Triple]:
    known = sorted({t.group for t in triples})
    for group in groups:
        if group not in known:
            close = get_close_matches(group, known, n=3, cutoff=0.4)
            hint = (
                f"did you mean {' or '.join(close)}" if close else f"there are {', '.join(known)}"
            )
            raise InputError(f"`group` {group!r} does not occur in this category; {hint}")
    return [t for t in triples if t.group in groups]


def _at_most(triples: list[Triple], limit: int) -> list[Triple]:
    seen: dict[tuple[str, str], int] = {}
    kept = []
    for triple in triples:
        key = (triple.category, triple.group)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= limit:
            kept.append(triple)
    return kept


def _read(source: str | Path) -> Iterator[Triple]:
    source = _resolved(source)
    if source == "stereoset":
        return from_dataset(_hub_split())
    if source == "starter":
        text = files("tda_bias.data").joinpath("starter.jsonl").read_text(encoding="utf-8")
        return _from_json_lines(text, "starter")
    return _from_file(Path(source))


# -- the hub ---------------------------------------------------------------------------------------


@cache
def _hub_split() -> Any:
    """The data set, loaded once: its triples and its revision are asked for apart."""
    import datasets

    try:
        return datasets.load_dataset(HUB_DATASET, "intersentence", split="validation")
    except Exception as error:  # the hub's clients raise many kinds; all mean the same to the user
        raise InputError(
            f"`data` stereoset: {HUB_DATASET} is neither in the cache nor could it be fetched "
            f"({type(error).__name__}); use --data starter, or --data PATH with a dev.json"
        ) from error


def from_dataset(split: Any) -> Iterator[Triple]:
    """Triples of a ``datasets.Dataset`` in the hub's form; label names come from its features."""
    names = _label_names(split.features["sentences"])
    for number, row in enumerate(split):
        sentences = row["sentences"]
        if isinstance(sentences, Mapping):  # a sequence of records arrives as a dict of lists
            pairs = list(zip(sentences["gold_label"], sentences["sentence"], strict=True))
        else:
            pairs = [(s["gold_label"], s["sentence"]) for s in sentences]
        labelled = [(names[p[0]] if isinstance(p[0], int) else p[0], p[1]) for p in pairs]
        yield _triple(row, labelled, f"{HUB_DATASET} item {row.get('id', number)}")


def _label_names(feature: Any) -> list[str]:
    inner = getattr(feature, "feature", feature)
    if isinstance(inner, list):
        inner = inner[0]
    label = inner["gold_label"]
    label = getattr(label, "feature", label)
    return [str(name) for name in label.names]


# -- files -----------------------------------------------------------------------------------------


def _from_file(path: Path) -> Iterator[Triple]:
    text = read_text(path, setting="data", named=("stereoset", "starter"))
    if not text.strip():
        raise InputError(f"`data` {path} is empty")
    whole = _parse_or_none(text)
    if isinstance(whole, dict) and "data" in whole:
        return _from_dev_json(whole, str(path))
    if path.suffix.lower() == ".csv":
        return _from_csv(text, str(path))
    return _from_json_lines(text, str(path))


def _from_dev_json(content: dict[str, Any], source: str) -> Iterator[Triple]:
    data = content["data"]
    items = data.get("intersentence") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise InputError(
            f"`data` {source} has no list data.intersentence: is it StereoSet's dev.json?"
        )
    for number, item in enumerate(items):
        where = f"{source} item {number}"
        if not isinstance(item, dict) or not isinstance(item.get("sentences"), list):
            raise InputError(f"{where}: expected an object with a list of sentences")
        where = f"{source} item {item.get('id', number)}"
        pairs = []
        for sentence in item["sentences"]:
            if not isinstance(sentence, dict):
                raise InputError(f"{where}: a sentence must be an object")
            pairs.append((sentence.get("gold_label"), sentence.get("sentence")))
        yield _triple(item, pairs, where)


def _from_json_lines(text: str, source: str) -> Iterator[Triple]:
    for where, item in json_objects(text, source):
        if item.get("type", "intersentence") != "intersentence":
            raise InputError(f"{where}: only intersentence items can be read, got {item['type']!r}")
        yield _triple(item, [(role, item.get(role)) for role in ROLES if role in item], where)


def _from_csv(text: str, source: str) -> Iterator[Triple]:
    columns = ("target", "bias_type", "context", *ROLES)
    for number, row in enumerate(rows_of(text, source, columns=columns), start=2):
        yield _triple(row, [(role, row[role]) for role in ROLES], f"{source} line {number}")


def _parse_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- one item --------------------------------------------------------------------------------------


def _triple(item: Mapping[str, Any], sentences: Iterable[tuple[Any, Any]], where: str) -> Triple:
    """One validated triple from its fields and (label, sentence) pairs in any order."""
    by_role: dict[str, str] = {}
    for label, sentence in sentences:
        if label not in ROLES:
            raise InputError(f"{where}: the label must be one of {', '.join(ROLES)}; got {label!r}")
        if label in by_role:
            raise InputError(f"{where}: the role {label} stands twice")
        by_role[label] = _sentence(sentence, label, where)
    for role in ROLES:
        if role not in by_role:
            raise InputError(f"{where}: the role {role} is missing")
    if by_role["stereotype"].split() == by_role["anti-stereotype"].split():
        raise InputError(
            f"{where}: the stereotype and the anti-stereotype are the same text, so that nothing "
            "can be compared"
        )
    return Triple(
        group=_name(item.get("target"), "target", where),
        category=checked_category(item.get("bias_type"), where),
        context=_sentence(item.get("context"), "context", where),
        stereotype=by_role["stereotype"],
        anti_stereotype=by_role["anti-stereotype"],
        unrelated=by_role["unrelated"],
        source=where,
    )


def checked_category(value: Any, where: str) -> str:
    """A category as a text calls it; it also names columns, folders and sections.

    Raises:
        InputError: if it is no such name; ``where`` begins the message.
    """
    name = _name(value, "bias_type", where)
    if name == "all" or not re.fullmatch(r"\w[\w &'-]*", name):
        raise InputError(
            f"{where}: `bias_type` must be the name of a category (gender, age ...: letters, "
            f"digits, spaces, hyphens, and not 'all'); got {name!r}"
        )
    return name


def _name(value: Any, key: str, where: str) -> str:
    name = _sentence(value, key, where).strip()
    if not name.isprintable() or len(name) > _NAME_LENGTH:
        raise InputError(
            f"{where}: `{key}` must be a name of one line, at most {_NAME_LENGTH} characters; got "
            f"{name[:40]!r}{'...' if len(name) > 40 else ''}"
        )
    return name


def _sentence(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str) or not is_visible(value):
        raise InputError(f"{where}: `{name}` must be a text that is not empty; got {value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{where}: `{name}` holds half of a surrogate pair, which is no character")
    return value
