"""Triples and their twins: what was made, what was left out and why; and the files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tda_bias.store.files import json_objects, read_text, write_text
from tda_bias.store.hashes import text_hash
from tda_bias.types import ROLES, InputError, Triple

Key = tuple[str, str, str, str, str, str]
# Columns of the compared texts of an item, its own and those of its first twin.
TEXTS = ("stereotype", "anti_stereotype", "twin_stereotype", "twin_anti_stereotype")


def compared_texts(triple: Triple, twins: Sequence[Triple]) -> dict[str, str]:
    """The compared texts of an item by the names in ``TEXTS``; empty for a twin that is not."""
    of_twin = twins[0].texts()[:2] if twins else ("", "")
    return dict(zip(TEXTS, (*triple.texts()[:2], *of_twin), strict=True))


def text_fields(triple: Triple) -> tuple[str, str, str, str]:
    """Context, stereotype, anti-stereotype and unrelated continuation."""
    return triple.context, triple.stereotype, triple.anti_stereotype, triple.unrelated


def with_texts(triple: Triple, group: str, texts: Iterable[str]) -> Triple:
    """A triple with another group and other texts, in the order of ``text_fields``."""
    context, stereotype, anti_stereotype, unrelated = texts
    return replace(
        triple,
        group=group,
        context=context,
        stereotype=stereotype,
        anti_stereotype=anti_stereotype,
        unrelated=unrelated,
    )


def content(triple: Triple) -> Key:
    """Content of a triple, wherever it stands: category, group and its four texts."""
    return (triple.category, triple.group, *text_fields(triple))


@dataclass(frozen=True)
class Twins:
    """The twins of triples. Iterating gives each triple that has some, with them.

    Attributes:
        pairs: Triples with their twins; equal triples (but for their source) stand once.
        excluded: The others, each with the reason.
        made: How the twins were made or where they were read.
        note: Why there are none at all; else empty.
    """

    pairs: tuple[tuple[Triple, tuple[Triple, ...]], ...]
    excluded: Mapping[Triple, str] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @cached_property
    def _by_content(self) -> Mapping[Key, tuple[Triple, ...]]:
        return {content(triple): twins for triple, twins in self.pairs}

    def __iter__(self) -> Iterator[tuple[Triple, tuple[Triple, ...]]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        """Triples with twins."""
        return len(self.pairs)

    def of(self, triple: Triple) -> tuple[Triple, ...]:
        """The twins of a triple; none where there are none."""
        return self._by_content.get(content(triple), ())

    def only(self, triples: Iterable[Triple]) -> Twins:
        """The same for some of the triples.

        A triple's twins then do not depend on which others were selected with it.
        """
        wanted = {content(triple) for triple in triples}
        return replace(
            self,
            pairs=tuple(pair for pair in self.pairs if content(pair[0]) in wanted),
            excluded={t: why for t, why in self.excluded.items() if content(t) in wanted},
        )

    def reasons(self) -> dict[str, int]:
        """Number of triples left out, by reason, the most frequent first."""
        return dict(Counter(self.excluded.values()).most_common())

    def why(self) -> str:
        """The reasons with their numbers, in one line."""
        return ", ".join(f"{reason} ({n})" for reason, n in self.reasons().items())

    def record(self) -> dict[str, Any]:
        """Record of how the twins came about, with what identifies them."""
        return {
            **self.made,
            "triples": len(self.pairs),
            "twins": sum(len(twins) for _, twins in self.pairs),
            "excluded": self.reasons(),
            "note": self.note,
            "hash": self.hash(),
        }

    def hash(self) -> str:
        """Hash of every triple with its twins, in whatever order they stand."""
        lines = sorted(
            json.dumps([content(triple), [content(twin) for twin in twins]])
            for triple, twins in self.pairs
        )
        return text_hash("\n".join(lines))


# -- as a file -------------------------------------------------------------------------------------

NOT_IN_FILE = "no twin in the file"


class _Texts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    context: str
    stereotype: str
    anti_stereotype: str = Field(alias="anti-stereotype")
    unrelated: str


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    target: str
    bias_type: str
    original: _Texts
    twin: _Texts
    twin_target: str | None = None


def save_twins(path: Path | str, twins: Twins) -> None:
    """Write twins as JSON Lines, one line for each triple and twin, whole or not at all."""
    names = ("context", *ROLES)
    lines = [
        {
            "target": triple.group,
            "bias_type": triple.category,
            "original": dict(zip(names, text_fields(triple), strict=True)),
            "twin": dict(zip(names, text_fields(twin), strict=True)),
            "twin_target": twin.group,
        }
        for triple, several in twins
        for twin in several
    ]
    _write_lines(path, lines)


def save_lm_eval(path: Path | str, triples: Sequence[Triple], twins: Twins) -> None:
    """Write triples and their twins as documents of the lm-eval task ``stereoset_intersentence``.

    A triple's twins follow it, each as a document of its own with the triple's number. Triples
    without twins are written too: they are part of the official scores.
    """
    lines = [
        {
            "item": number,
            "twin": text is not triple,
            "category": triple.category,
            "target": triple.group,
            "context": text.context.strip(),
            # Only triples are compared with the unrelated text.
            "texts": [t.strip() for t in text_fields(text)[1 : 4 if text is triple else 3]],
        }
        for number, triple in enumerate(triples)
        for text in (triple, *twins.of(triple))
    ]
    _write_lines(path, lines)


def _write_lines(path: Path | str, lines: Sequence[dict[str, Any]]) -> None:
    write_text(Path(path), "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


def load_twins(path: Path | str, triples: Sequence[Triple]) -> Twins:
    """Twins from JSON Lines: ``{"target", "bias_type", "original", "twin", "twin_target"}``.

    ``original`` and ``twin`` hold ``context``, ``stereotype``, ``anti-stereotype`` and
    ``unrelated``; ``twin_target`` may be left out. Lines with the same original are several twins.
    ``triples`` are those of the whole data: take ``Twins.only`` of what is selected.

    Raises:
        InputError: naming the line: if it is no JSON object, has an unknown key or lacks one, holds
            an empty text, an original that is not among the triples or a twin with the original's
            context, or stands twice; if the file cannot be read or holds no twin.
    """
    text = read_text(path, setting="twins", named=("auto", "none"))
    known = {content(triple): triple for triple in triples}
    twins: dict[Key, list[Triple]] = {}
    for where, line in json_objects(text, str(path)):
        original, twin = _pair(line, where, known)
        if any(content(other) == content(twin) for other in twins.get(original, ())):
            raise InputError(f"{where}: this twin stands twice")
        twins.setdefault(original, []).append(twin)
    if not twins:
        raise InputError(f"`twins` {path} holds no twin")
    return Twins(
        pairs=tuple((known[key], tuple(twins[key])) for key in known if key in twins),
        excluded={known[key]: NOT_IN_FILE for key in known if key not in twins},
        made={"source": "file"},
    )


def _pair(line: dict[str, Any], where: str, known: dict[Key, Triple]) -> tuple[Key, Triple]:
    try:
        row = _Line(**line)
    except ValidationError as error:
        raise InputError(f"{where}: {_what_is_wrong(error)}") from None
    original, twin = (
        Triple(group=group, category=row.bias_type, source=where, **texts.model_dump())
        for group, texts in ((row.target, row.original), (row.twin_target or row.target, row.twin))
    )
    for name, texts in (("original", row.original), ("twin", row.twin)):
        for role, text in texts.model_dump(by_alias=True).items():
            if not text.strip():
                raise InputError(f"{where}: `{name}.{role}` must be a text that is not empty")
    if content(original) not in known:
        raise InputError(
            f"{where}: the original is not among the triples ({row.bias_type}, {row.target}: "
            f"{row.original.context!r}); were the twins made from other data?"
        )
    if twin.context == original.context:
        raise InputError(
            f"{where}: the twin has the original's context, {twin.context!r}; a twin names another "
            "target there"
        )
    return content(original), twin


def _what_is_wrong(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "extra_forbidden":
            allowed = _Texts if len(first["loc"]) > 1 else _Line
            keys = (field.alias or key for key, field in allowed.model_fields.items())
            return f"unknown key `{name}`; allowed are {', '.join(keys)}"
        case "missing":
            return f"`{name}` is missing"
        case _:
            rule = first["msg"].removeprefix("Input should be ")
            return f"`{name}` must be {rule}; got {first.get('input')!r}"
