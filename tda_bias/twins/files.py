"""Twins as a file that a person can read, correct, or write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tda_bias.runs.files import DoubledKeyError, each_key_once, read_text, write_text
from tda_bias.twins.twins import Excluded, Key, Twins, content, text_fields
from tda_bias.types import ROLES, Category, InputError, Triple

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
    bias_type: Category
    original: _Texts
    twin: _Texts
    twin_target: str | None = None


def save_twins(path: Path | str, twins: Twins) -> None:
    """Write twins as JSON Lines, one line for each triple and twin, whole or not at all."""
    lines = (_line(triple, twin) for triple, several in twins for twin in several)
    write_text(Path(path), "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


def load_twins(path: Path | str, triples: Sequence[Triple]) -> Twins:
    """Twins from JSON Lines: ``{"target", "bias_type", "original", "twin", "twin_target"}``.

    ``original`` and ``twin`` hold ``context``, ``stereotype``, ``anti-stereotype`` and
    ``unrelated``; ``twin_target`` may be left out. Lines with the same original are several twins.

    Args:
        path: The file.
        triples: All triples that the file may be about: those of the whole data. Take
            ``Twins.only`` of what is selected.

    Raises:
        InputError: naming the line: if it is no JSON object, has an unknown key or lacks one, holds
            an empty text, an original that is not among the triples or a twin with the original's
            context, or stands twice; if the file cannot be read or holds no twin.
    """
    text = read_text(path, setting="twins", named=("auto", "none"))
    known = {content(triple): triple for triple in triples}
    twins: dict[Key, list[Triple]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            original, twin = _pair(line, f"{path} line {number}", known)
            if any(content(other) == content(twin) for other in twins.get(original, ())):
                raise InputError(f"{path} line {number}: this twin stands twice")
            twins.setdefault(original, []).append(twin)
    if not twins:
        raise InputError(f"`twins` {path} holds no twin")
    return Twins(
        pairs=tuple((known[key], tuple(twins[key])) for key in known if key in twins),
        excluded=tuple(Excluded(known[key], NOT_IN_FILE) for key in known if key not in twins),
        made={"source": "file"},
    )


def _line(triple: Triple, twin: Triple) -> dict[str, Any]:
    return {
        "target": triple.group,
        "bias_type": triple.category,
        "original": _texts(triple),
        "twin": _texts(twin),
        "twin_target": twin.group,
    }


def _texts(triple: Triple) -> dict[str, str]:
    return dict(zip(("context", *ROLES), text_fields(triple), strict=True))


def _pair(line: str, where: str, known: dict[Key, Triple]) -> tuple[Key, Triple]:
    row = _parsed(line, where)
    original = _triple(row.original, row.target, row.bias_type, where)
    twin = _triple(row.twin, row.twin_target or row.target, row.bias_type, where)
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


def _triple(texts: _Texts, target: str, category: Category, where: str) -> Triple:
    return Triple(
        group=target,
        category=category,
        context=texts.context,
        stereotype=texts.stereotype,
        anti_stereotype=texts.anti_stereotype,
        unrelated=texts.unrelated,
        source=where,
    )


def _parsed(line: str, where: str) -> _Line:
    try:
        row = json.loads(line, object_pairs_hook=each_key_once)
    except DoubledKeyError as error:
        raise InputError(f"{where}: the key {error} stands twice") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not JSON") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, got {type(row).__name__}")
    try:
        return _Line(**row)
    except ValidationError as error:
        raise InputError(f"{where}: {_what_is_wrong(error)}") from None


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
