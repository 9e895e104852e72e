"""A table for a person: its title, its rows, and of each column the heading and the cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Any

from tda_bias.show.text import counted, interval_text, number_text, p_text
from tda_bias.types import HeadId

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
# Groups that are printed.
_GROUPS = 12


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the text of its cell in a row.

    ``cell`` is a function of the row, or a template that is filled with its values: as
    ``str.format`` does, with ``{p:p}`` for p-values and ``{r:n2}`` for numbers, which both say
    ``undefined`` where there is none.
    """

    heading: str
    cell: str | Callable[[Row], str]
    left: bool = False  # of words, which begin at the left; numbers end at the right

    def text(self, row: Row) -> str:
        """The cell of a row."""
        if isinstance(self.cell, str):
            return _Template().vformat(self.cell, (), row)
        return self.cell(row)


@dataclass(frozen=True)
class TableSpec:
    """A table that is shown: every renderer draws the same headings and cells.

    ``rows`` are records, or a data frame with a row for each.
    """

    title: str
    rows: pd.DataFrame | Sequence[Row] = field(repr=False)
    columns: Sequence[Column]
    uncut: bool = False  # numbers keep their lines, however narrow the terminal is
    faint: Callable[[Row], bool] | None = None  # rows that are there for comparison only

    @classmethod
    def of(
        cls, frame: pd.DataFrame, title: str = "", *, number: str = ".3g", undefined: str = "nan"
    ) -> TableSpec:
        """Every column of a data frame by its name.

        Floats are in the format ``number``; where there is none, stands ``undefined``.
        """
        columns = [
            Column(str(name), _value(name, number, undefined), left=values.dtype.kind not in "fiu")
            for name, values in frame.items()
        ]
        return cls(title, frame, columns)

    @property
    def records(self) -> Sequence[Row]:
        """The rows, one mapping each."""
        return self.rows if isinstance(self.rows, Sequence) else self.rows.to_dict("records")

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]

    def cells(self) -> list[list[str]]:
        """The texts of the table, row by row."""
        return [[column.text(row) for column in self.columns] for row in self.records]


class _Template(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if spec == "p":
            return p_text(value)
        if spec.startswith("n"):
            return number_text(value, int(spec[1:]))
        return format(value, spec)


def _value(name: Any, number: str, undefined: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row[name]
        if value is None or value != value:
            return undefined
        return format(value, number) if isinstance(value, float) else str(value)

    return cell


def head_name(row: Row) -> str:
    """Name of a head in a row with its layer and number: ``L5H3``."""
    return str(HeadId(int(row["layer"]), int(row["head"])))


def with_head_names(table: pd.DataFrame) -> pd.DataFrame:
    """A table of heads with their names in the place of layer and number."""
    names = [head_name(row) for row in table.to_dict("records")]
    named = table.drop(columns=["layer", "head"]).reset_index(drop=True)
    named.insert(0, "head", names)
    return named


def interval_of(low: str, high: str) -> Callable[[Row], str]:
    """A cell with the interval between two values of a row, or ``no interval``."""
    return lambda row: interval_text(row[low], row[high])


def groups_table(
    title: str, rows: pd.DataFrame, columns: Sequence[Column], file: str
) -> list[TableSpec | str]:
    """A short table of a run's groups, which ``file`` has all; nothing where there are none."""
    if rows.empty:
        return []
    more = len(rows) - _GROUPS
    left_out = [f"{counted(more, 'further group')} in {file}."] if more > 0 else []
    return [TableSpec(title, rows.head(_GROUPS), columns), *left_out]
