"""Pairs by the name of their set, or from a user's file.

A user's file is JSON Lines, CSV or TSV with ``id group more less``, maybe ``set context type``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tda_bias.pairs.pair import Pair, PairSet, checked
from tda_bias.pairs.published import SETS
from tda_bias.sources import chosen, hash_of, text_of
from tda_bias.store.files import csv_objects, delimiter_of, json_objects
from tda_bias.store.settings import validated
from tda_bias.types import InputError


class _Line(BaseModel):
    """A pair of a user's file; in JSON Lines an ``id`` may be a whole number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str | int
    group: str
    more: str
    less: str
    set: str | None = None
    context: str | None = None
    type: str | None = None


_NEEDED = ("id", "group", "more", "less")


def load_pairs(
    source: str | Path,
    *,
    data: str | Path | None = None,
    groups: Sequence[str] | None = None,
    limit: int | None = None,
) -> PairSet:
    """The pairs of a set, in its order.

    Args:
        source: ``crows``, ``winobias``, ``winogender``, ``blimp``, ``crows-fr``, ``crows-nl``,
            ``crows-en-revised``, or a user's file.
        data: Where a named set is read: ``packaged`` (WinoBias dev, Winogender, a sample of BLiMP),
            ``hub`` (CrowS-Pairs, all of BLiMP), or a file or folder in the set's own form. What
            ships if left out, else the folder that ``TDABIAS_PAIRS`` names, else the hub.
        groups: Only these groups.
        limit: At most so many pairs of each group and type, the first ones.

    Raises:
        InputError: if the source cannot be read or is of another form, a pair cannot be compared,
            or a group does not occur.
    """
    if str(source) in SETS:
        read = SETS[str(source)](data)
    elif data is not None:
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)} where `data` is given; got {source}"
        )
    else:
        read = _user_pairs(Path(source))
    pairs = tuple(chosen(read.pairs, groups, limit, of="pairs", division="type"))
    return replace(read, pairs=pairs, uneven=read.uneven & {pair.id for pair in pairs})


def _user_pairs(path: Path) -> PairSet:
    """Pairs of a user's file; an empty field of an optional column of CSV counts as left out."""
    if not path.is_file():
        raise InputError(
            f"`pairs` must be one of {', '.join(SETS)}, or a readable file; got {str(path)!r}"
        )
    text, source = text_of(path), str(path)
    pairs: list[Pair] = []
    first: tuple[str, frozenset[str]] | None = None
    seen: dict[str, str] = {}
    texts: dict[Pair, str] = {}
    for where, item in _items(text, source):
        if {"stereotype", "anti-stereotype"} <= set(item):
            raise InputError(
                f"{where}: this is a triple of StereoSet; `tdabias stereoset` scores those"
            )
        try:
            fields = validated(_Line, item, given_as="file").model_dump(exclude_none=True)
        except InputError as error:
            message = str(error).replace("unknown setting", "unknown key")
            raise InputError(f"{where}: {message}") from None
        form = frozenset(fields)
        first = first or (where, form)
        if form != first[1]:
            differing = sorted(form ^ first[1])[0]
            raise InputError(
                f"{where}: `{differing}` stands in some lines only (not as in {first[0]}); all "
                "pairs of a file must be of the same form"
            )
        fields = {"set": path.stem, **fields, "id": str(fields["id"])}
        if fields["id"] in seen:
            raise InputError(f"{where}: the id {fields['id']!r} stands in {seen[fields['id']]} too")
        seen[fields["id"]] = where
        pair = Pair(**fields, source=where)
        content = replace(pair, id="", source="")
        if content in texts:
            raise InputError(
                f"{where}: says the same as {texts[content]}; a pair that stands twice counts twice"
            )
        texts[content] = where
        pairs.append(checked(pair))
    if not pairs:
        raise InputError(f"`data` {source} holds no pair")
    names = {pair.set for pair in pairs}
    name = names.pop() if len(names) == 1 else path.stem
    if name in SETS:
        raise InputError(
            f"`pairs` {source}: {name!r} is the name of a published set; give pairs of your own "
            "another `set`, or the file another name"
        )
    return PairSet(name, tuple(pairs), source, hash_of(text))


def _items(text: str, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    delimiter = delimiter_of(source)
    if delimiter is None:
        yield from json_objects(text, source)
        return
    for where, row in csv_objects(text, source, columns=_NEEDED, delimiter=delimiter):
        yield where, {key: value for key, value in row.items() if value or key in _NEEDED}
