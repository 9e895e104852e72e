"""What can happen to a saved file: seeded, so that every run of the tests sees the same."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

OTHER_VALUES = (None, True, -1, 3, 1e308, "x", "", [], {}, [None], {"x": None}, [[1]])
NO_RECORDS = ("", " ", "{", "[]", "3", "null", '"x"', "{}", "[" * 5000, "\ufeff{}", "NaN")


def damaged(content: bytes, rng: np.random.Generator, *, flips: int) -> Iterator[tuple[str, bytes]]:
    """The bytes of a file after one misfortune each, with what it was."""
    for place in rng.integers(0, len(content), flips):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(0, 8))
        yield f"bit flipped at {place}", bytes(changed)
    yield "emptied", b""
    yield "zeros", bytes(len(content))
    for share in (0.1, 0.5, 0.99):
        yield f"cut to {share:.0%}", content[: int(share * len(content))]
    start = int(rng.integers(0, len(content)))
    yield "a hole", content[:start] + content[start + 40 :]
    yield "twice", content * 2


def changed_records(
    values: dict[str, Any], rng: np.random.Generator, *, number: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A record with one entry missing or of another kind each, at any depth."""
    places = list(_places(values, ()))
    for index in rng.choice(len(places), size=min(number, len(places)), replace=False):
        path = places[index]
        copy = json.loads(json.dumps(values))
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        if rng.random() < 0.25:
            del inner[path[-1]]
            yield f"without {path}", copy
        else:
            other = OTHER_VALUES[int(rng.integers(0, len(OTHER_VALUES)))]
            inner[path[-1]] = other
            yield f"{path} is {other!r}", copy


def changed_tables(text: str, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """A CSV after changes that leave it a CSV."""
    lines = text.splitlines()
    header, rows = lines[0], lines[1:]
    yield "no rows", header + "\n"
    yield "half of the rows", "\n".join([header, *rows[: len(rows) // 2]]) + "\n"
    yield "a row twice", "\n".join([header, *rows, rows[0]]) + "\n"
    yield "other order", "\n".join([header, *rows[::-1]]) + "\n"
    yield "no header", "\n".join(rows) + "\n"
    columns = len(header.split(","))
    for column in rng.choice(columns, size=min(2, columns), replace=False):
        for other in ("x", "", "-1", "inf", "nan"):
            changed = [row.split(",") for row in rows]
            for row in changed:
                if len(row) == columns:
                    row[column] = other
            yield f"column {column} is {other!r}", "\n".join([header, *map(",".join, changed)])
        cells = [[c for i, c in enumerate(line.split(",")) if i != column] for line in lines]
        yield f"without column {column}", "\n".join(map(",".join, cells)) + "\n"


def _places(values: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    inside = values.items() if isinstance(values, dict) else enumerate(values)
    for name, value in inside:
        yield (*path, name)
        if isinstance(value, dict | list) and value and len(path) < 4:
            yield from _places(value, (*path, name))
