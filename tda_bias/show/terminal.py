"""Tables and sentences in a terminal, and remarks on standard error."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table

from tda_bias.show.table import TableSpec

# For terminals without these characters, as rich draws tables there.
_PLAIN = str.maketrans({"█": "#", "░": ".", "·": "-", "→": ">"})


def print_table(spec: TableSpec) -> None:
    """Print a table, wider than the terminal where its words need it.

    A number that is cut is another number: -5.71... for -5.71e-05.
    """
    table = _drawn(spec)
    width = Console().width
    # At any width; at the terminal's own, what does not fit counts as narrow enough.
    measuring = Console(markup=False, emoji=False, width=100_000)
    needed = max(width, measuring.measure(table).minimum)
    _keep_words_whole(table, measuring, needed)
    Console(highlight=False, markup=False, emoji=False, width=needed).print(table)


def _drawn(spec: TableSpec) -> Table:
    """The table as rich draws it."""
    table = Table(title=spec.title, title_justify="left")
    for column in spec.columns:
        table.add_column(column.heading, justify="left" if column.left else "right")
    for row, cells in zip(spec.records, spec.cells(), strict=True):
        faint = spec.faint is not None and spec.faint(row)
        table.add_row(*cells, style="dim" if faint else None)
    for column, drawn in zip(spec.columns, table.columns, strict=True):
        if spec.uncut and not column.left:
            # The heading too: what may shrink is taken from its neighbours as well.
            texts = [str(cell) for cell in (drawn.header, *drawn.cells)]
            drawn.min_width = max(len(line) for text in texts for line in text.split("\n"))
    return table


def _keep_words_whole(table: Table, measuring: Console, width: int) -> None:
    """Set the columns' widths: the widest break their lines first, and none below its words.

    Rich's own widths do not do: it takes from the widest column even where that is one long word,
    gives the word its room again, and cuts the last columns off the line.
    """
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
        console.print(line if console.encoding.startswith("utf") else line.translate(_PLAIN))


def say(console: Console, text: str) -> None:
    """Print a line on standard error, above a bar; a quiet console prints nothing."""
    from tqdm import tqdm

    if not console.quiet:
        tqdm.write(text, file=console.file)


def program_here() -> str:
    """How this program is called in the shell it was called from, for commands that are printed.

    ``tdabias`` where that is found; else, as where its environment is not activated, the path by
    which it was called. Python and notebooks, which call no script, say ``tdabias``.
    """
    called, name = Path(sys.argv[0]), "tdabias"
    if called.stem != name or not called.is_file():
        return name
    found = shutil.which(name)
    return name if found is not None and called.samefile(found) else quote(str(called))
