"""A user's own pairs: JSON Lines with ``id group more less``, maybe ``set context type``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tda_bias.pairs.pair import Pair, checked
from tda_bias.runs.files import json_objects
from tda_bias.types import InputError

NEEDED = ("id", "group", "more", "less")
OPTIONAL = ("set", "context", "type")


def from_json_lines(text: str, source: str, *, name: str) -> list[Pair]:
    """Pairs of a file.

    Args:
        text: Its content.
        source: Its name, for messages.
        name: The set's name where lines give none.

    Raises:
        InputError: if a key is unknown or missing, a value is no text, a side is empty or equals
            the other, an ``id`` or a pair stands twice, or lines are of different forms.
    """
    pairs: list[Pair] = []
    first: tuple[str, frozenset[str]] | None = None
    seen: dict[str, str] = {}
    texts: dict[Pair, str] = {}
    kinds: dict[str, type] = {}
    for where, item in json_objects(text, source):
        _check_keys(item, where)
        form = frozenset(item)
        first = first or (where, form)
        if form != first[1]:
            differing = sorted(form ^ first[1])[0]
            raise InputError(
                f"{where}: `{differing}` stands in some lines only (not as in {first[0]}); all "
                "pairs of a file must be of the same form"
            )
        fields = {key: _text(item[key], key, where, kinds) for key in item}
        if fields["id"] in seen:
            raise InputError(f"{where}: the id {fields['id']!r} stands in {seen[fields['id']]} too")
        seen[fields["id"]] = where
        pair = Pair(
            id=fields["id"],
            set=fields.get("set", name),
            group=fields["group"],
            more=fields["more"],
            less=fields["less"],
            context=fields.get("context"),
            type=fields.get("type"),
            source=where,
        )
        said = replace(pair, id="", source="")
        if said in texts:
            raise InputError(
                f"{where}: says the same as {texts[said]}; a pair that stands twice counts twice"
            )
        texts[said] = where
        pairs.append(checked(pair))
    if not pairs:
        raise InputError(f"`data` {source} holds no pair")
    return pairs


def _check_keys(item: dict[str, Any], where: str) -> None:
    allowed = (*NEEDED, *OPTIONAL)
    unknown = sorted(set(item) - set(allowed))
    if {"stereotype", "anti-stereotype"} <= set(item):
        raise InputError(
            f"{where}: this is a triple of StereoSet; `tdabias stereoset` scores those"
        )
    if unknown:
        raise InputError(f"{where}: unknown key `{unknown[0]}`; allowed are {', '.join(allowed)}")
    missing = [key for key in NEEDED if key not in item]
    if missing:
        raise InputError(f"{where}: the key `{missing[0]}` is missing; needed: {', '.join(NEEDED)}")


def _text(value: Any, key: str, where: str, kinds: dict[str, type]) -> str:
    """A field as text; an ``id`` may be a whole number in every line."""
    number = key == "id" and isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, str) and not number:
        raise InputError(f"{where}: `{key}` must be a text; got {value!r}")
    if kinds.setdefault(key, type(value)) is not type(value):
        raise InputError(f"{where}: `{key}` is a text in some lines and a number in others")
    text = str(value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"{where}: `{key}` holds half of a surrogate pair, which is no character")
    return text
