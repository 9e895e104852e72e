"""Preferences of a model without bias, where equal ones are not meant: shares of classes by word.

Source: [BVF] equation 1, whose p* is uniform only where the context says nothing about the class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import BeforeValidator

from pvf.risk import REFERENCE_TOLERANCE
from tda_bias.sources import packaged
from tda_bias.store.files import csv_objects, delimiter_of, read_text, rows_of
from tda_bias.store.record import RecordPart
from tda_bias.types import InputError

BLS = "bls"
# What preferences are compared with where there is no reference.
EQUALITY = "equality"
# The column of a file that has the share of women, in per cent, in place of the shares of two
# classes of these names.
_WOMEN, _MEN_AND_WOMEN = "women", ("male", "female")


def _tuples(nested: Any) -> Any:
    return tuple(map(_tuples, nested)) if isinstance(nested, (list, tuple)) else nested


class ReferenceRecord(RecordPart):
    """A reference with its shares, by word and class or by word, template and class.

    ``source`` is what ``--reference`` was given; None for shares that are of no file.
    """

    name: str
    source: str | None = None
    shares: Annotated[tuple[Any, ...], BeforeValidator(_tuples)]


@dataclass(frozen=True)
class Reference:
    """Shares of classes that count as unbiased, for every word x, or word and template."""

    record: ReferenceRecord

    @classmethod
    def of(
        cls, shares: Float[np.ndarray, "*x_context y"], name: str, source: str | None = None
    ) -> Reference:
        """A reference of an array of the shape (y), (x, y) or (x, context, y)."""
        nested = tuple(np.asarray(shares, dtype=float).tolist())
        return cls(ReferenceRecord(name=name, source=source, shares=nested))

    @property
    def name(self) -> str:
        """Its name in tables: ``bls``, or that of its file."""
        return self.record.name

    @property
    def shares(self) -> Float[np.ndarray, "*x_context y"]:
        """The shares, as ``decompose`` takes them."""
        try:
            return np.array(self.record.shares, dtype=float)
        except (TypeError, ValueError):
            raise InputError("`reference` must hold rows of numbers, all as long") from None

    def equal(self) -> Reference:
        """Equal shares, on the same scale."""
        shares = np.full(self.shares.shape, 1.0 / self.shares.shape[-1])
        return replace(self, record=Reference.of(shares, EQUALITY).record)


def named(reference: Reference | None) -> str:
    """The name of what preferences are compared with."""
    return EQUALITY if reference is None else reference.name


def load_reference(
    source: str | Path,
    x: Sequence[str],
    templates: Sequence[str],
    classes: Sequence[str],
    *,
    printed: bool = True,
) -> Reference:
    """Shares of classes from a CSV file, or official ones.

    A file has the columns ``x``, one for each class and perhaps ``template``; or, for the classes
    male and female, ``x,women`` with per cent. ``bls`` are the shares of women by occupation of the
    US Bureau of Labor Statistics (2015/16) that come with Winogender. Rows of other words or
    templates do not count. Classes that are not ``printed`` are not named in messages.

    Raises:
        InputError: naming the line or the word, if a column is missing or names no class, a share
            is no number above 0 or they do not sum to 1, or a word (or template) has no row or two.
    """
    named = str(source) == BLS
    where = f"`reference` {source}"
    if named:
        rows = [(where, row) for row in official_rows()]
    else:
        text = read_text(source, setting="reference", named=(BLS,))
        delimiter = delimiter_of(source) or ","
        rows = list(csv_objects(text, where, columns=("x",), delimiter=delimiter))
        if not rows:
            raise InputError(f"{where} has no row")
    by_template = "template" in rows[0][1]
    shares: dict[tuple[str, str], list[float]] = {}
    known = ", ".join(classes) if printed else f"{len(classes)} that are not named"
    for line, row in rows:
        key = row["x"].strip(), row.get("template", "").strip()
        if key in shares:
            raise InputError(f"{line}: {key[0]!r} stands twice")
        columns = {name: row[name] for name in row if name not in ("x", "template")}
        shares[key] = _shares(columns, classes, where, line, known)
    used = templates if by_template else ("",)
    missing = [
        (word, template) for word in x for template in used if (word, template) not in shares
    ]
    if missing:
        word, template = missing[0]
        lacking = len({word for word, _ in missing})
        of = f" with the template {template!r}" if by_template else ""
        other = "--words winogender has those it knows" if named else "leave the word out"
        raise InputError(
            f"{where} has no row for {word!r}{of} ({lacking} of {len(x)} words lack one); {other}"
        )
    table = np.array([[shares[word, template] for template in used] for word in x])
    table = table if by_template else table[:, 0]
    return Reference.of(table, BLS if named else Path(source).name, str(source))


def official_rows() -> list[dict[str, str]]:
    """The shares of women by occupation that come with Winogender, as rows of a file.

    Returns:
        Columns ``x women``, per cent.

    Source: US Bureau of Labor Statistics (2015/16), in Rudinger et al. (2018).
    """
    name = "occupations-stats.tsv"
    columns = ("occupation", "bls_pct_female")
    rows = rows_of(packaged("winogender", name), name, columns=columns, delimiter="\t")
    return [{"x": row[columns[0]], _WOMEN: row[columns[1]]} for row in rows]


def _shares(
    columns: dict[str, str], classes: Sequence[str], where: str, line: str, known: str
) -> list[float]:
    """The shares of one row, in the order of the classes; ``known`` names these in messages."""
    if set(columns) == {_WOMEN} and _WOMEN not in classes:
        if set(classes) != set(_MEN_AND_WOMEN):
            raise InputError(
                f"{where} has shares of women, for the classes male and female; the run's are "
                f"{known}"
            )
        women = _number(columns[_WOMEN], line, _WOMEN) / 100.0
        of_class = {"male": 1.0 - women, "female": women}
    else:
        unknown = [name for name in columns if name not in classes]
        absent = [name for name in classes if name not in columns]
        if unknown or absent:
            column = repr(absent[0]) if absent and absent[0] in known else "of one class"
            fault = f"{unknown[0]!r} is no class" if unknown else f"no column {column}"
            raise InputError(f"{where}: {fault}; the classes are {known}")
        of_class = {name: _number(value, line, name) for name, value in columns.items()}
    for name, value in of_class.items():
        if not value > 0:
            raise InputError(
                f"{line}: the share of {name} must be above 0 (against 0 every preference is "
                f"infinite); got {value:g}"
            )
    if abs(sum(of_class.values()) - 1.0) > REFERENCE_TOLERANCE:
        raise InputError(
            f"{line}: the shares must sum to 1; they sum to {sum(of_class.values()):.8g}"
        )
    return [of_class[name] for name in classes]


def _number(text: str, line: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{line}: {name} must be a number; got {text!r}")
    return value
