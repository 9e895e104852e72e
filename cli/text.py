"""Tables and sentences as commands print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd


def table_of(table: pd.DataFrame, title: str) -> Table:
    """A data frame for the terminal, numbers to three digits."""
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(name, justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    return shown


def uncut_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 2
) -> Table:
    """A table whose cells keep their lines at any width of the terminal.

    Args:
        title: What stands above it.
        headings: Of the columns.
        rows: The cells, each of one or several lines.
        left: Columns that are not right-justified.
    """
    shown = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        # The heading too: what may shrink is taken from its neighbours as well.
        cells = [heading, *(row[number] for row in rows)]
        width = max(len(line) for cell in cells for line in cell.split("\n"))
        shown.add_column(heading, justify="left" if number < left else "right", min_width=width)
    for row in rows:
        shown.add_row(*row)
    return shown


def print_table(table: Table) -> None:
    """Print a table, wider than the terminal where its words need it.

    A number that is cut is another number: -5.71... for -5.71e-05.
    """
    width = Console().width
    # At any width; at the terminal's own, what does not fit counts as narrow enough.
    measuring = Console(markup=False, emoji=False, width=100_000)
    needed = max(width, measuring.measure(table).minimum)
    _keep_words_whole(table, measuring, needed)
    Console(highlight=False, markup=False, emoji=False, width=needed).print(table)


def _keep_words_whole(table: Table, measuring: Console, width: int) -> None:
    """Set the columns' widths: the widest break their lines first, and none below its words."""
    inner = [
        [measuring.measure(cell) for cell in (column.header, *column.cells)]
        for column in table.columns
    ]
    longest_word = [
        max(column.min_width or 0, *(cell.minimum for cell in cells))
        for column, cells in zip(table.columns, inner, strict=True)
    ]
    whole = [max(cell.maximum for cell in cells) for cells in inner]
    room = width - (measuring.measure(table).minimum - sum(longest_word))
    widths = whole
    for widest in range(max(whole, default=0), 0, -1):
        widths = [max(a, min(b, widest)) for a, b in zip(longest_word, whole, strict=True)]
        if sum(widths) <= room:
            break
    for column, chosen in zip(table.columns, widths, strict=True):
        column.min_width = column.max_width = chosen


def print_lines(*lines: str) -> None:
    """Print sentences, which a terminal breaks where it likes; square brackets are no markup."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        console.print(line)
