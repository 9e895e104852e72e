"""What a command prints: its finding in four labelled parts, then tables; or JSON, or CSV."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from string import Formatter
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.types import HeadId

from .settings import OutputSettings

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
# Takes what is done, and all there is where that is known.
Moved = Callable[[int, int | None], None]
# Headings, each with a template of a row's values or a function of the row.
Columns = Sequence[tuple[str, str | Callable[[Row], str]]]
# Groups that are printed.
_GROUPS = 12


@dataclass(frozen=True)
class Output:
    """One result in every format."""

    # Printed after the finding; where there is one for each category or model, those too.
    shown: Sequence[Finding | Table | str]
    values: Mapping[str, Any]  # for JSON; tables, records and findings as they are
    rows: pd.DataFrame  # the main table, for CSV
    finding: Finding | None = None
    folder: Path | None = None
    files: str = ""  # names of the most important ones in the folder

    @property
    def parts(self) -> list[Finding | Table | str]:
        """Everything that is printed but where the files are."""
        return [*([self.finding] if self.finding is not None else []), *self.shown]

    def print(self, settings: OutputSettings) -> None:
        """Print it as the settings say; nothing else goes to standard output."""
        if settings.format == "json":
            from tda_bias.store.files import plain

            about = {"folder": self.folder, "finding": self.finding}
            given = {name: value for name, value in about.items() if value is not None}
            values = plain(_as_json({**given, **self.values}))
            typer.echo(json.dumps(values, indent=2, allow_nan=False))
        elif settings.format == "csv":
            typer.echo(self.rows.to_csv(index=False), nl=False)
        elif not settings.quiet:
            for part in self.parts:
                if isinstance(part, Table):
                    print_table(part)
                elif isinstance(part, Finding):
                    print_lines(*part.lines(verbose=settings.verbose))
                else:
                    print_lines(part)
            if self.files:
                print_lines(f"Files: {self.folder}/ ({self.files})")


def _as_json(value: Any) -> Any:
    """Tables as lists of rows, records and findings as mappings."""
    if isinstance(value, Finding):
        return value.as_values()
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if hasattr(value, "to_dict"):  # a data frame, without importing pandas
        return value.to_dict("records")
    return value


def report_of(folder: Path) -> str:
    """The command that follows every run: its page."""
    return f"tdabias report {quote(str(folder))}"


def rounded_lines(precision: str) -> list[str]:
    """Remark on numbers that come from rounded matrix products."""
    if precision == "float32":
        return []
    return [f"Matrix products were computed in {precision}: numbers are rounded."]


# -- tables and sentences --------------------------------------------------------------------------


def table_of(table: pd.DataFrame, title: str = "") -> Table:
    """A data frame for the terminal, numbers to three digits."""
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(name, justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    return shown


def rows_table(
    title: str, rows: pd.DataFrame | Sequence[Row], columns: Columns, *, left: int = 1
) -> Table:
    """A table with a line for each row; all but the first ``left`` columns are right-justified.

    Of each column the heading, and a template (see ``_Cells``) or a function of a row.
    """
    shown = Table(title=title, title_justify="left")
    for number, (heading, _) in enumerate(columns):
        shown.add_column(heading, justify="left" if number < left else "right")
    records: list[Row] = list(rows if isinstance(rows, Sequence) else rows.to_dict("records"))
    for row in records:
        shown.add_row(
            *(_Cells().vformat(c, (), row) if isinstance(c, str) else c(row) for _, c in columns)
        )
    return shown


def uncut_table(
    title: str, rows: pd.DataFrame | Sequence[Row], columns: Columns, *, left: int = 1
) -> Table:
    """As ``rows_table``, with numbers that keep their lines at any width of the terminal."""
    shown = rows_table(title, rows, columns, left=left)
    for column in shown.columns[left:]:
        # The heading too: what may shrink is taken from its neighbours as well.
        texts = [str(cell) for cell in (column.header, *column.cells)]
        column.min_width = max(len(line) for text in texts for line in text.split("\n"))
    return shown


def groups_table(title: str, rows: pd.DataFrame, columns: Columns, file: str) -> list[Table | str]:
    """A short table of a run's groups, which ``file`` has all; nothing where there are none."""
    if rows.empty:
        return []
    more = len(rows) - _GROUPS
    left_out = [f"{counted(more, 'further group')} in {file}."] if more > 0 else []
    return [rows_table(title, rows.head(_GROUPS), columns), *left_out]


def head_name(row: Row) -> str:
    """Name of a head in a row of a table with its layer and number: ``L5H3``."""
    return str(HeadId(int(row["layer"]), int(row["head"])))


class _Cells(Formatter):
    """Templates of cells: ``str.format`` with ``{p:p}`` for p-values and ``{r:n2}`` for numbers.

    Both say ``undefined`` where there is none.
    """

    def format_field(self, value: Any, spec: str) -> str:
        if spec == "p":
            return p_text(value)
        if spec.startswith("n"):
            return number_text(value, int(spec[1:]))
        return format(value, spec)


def interval_of(low: str, high: str) -> Callable[[Row], str]:
    """A cell with an interval, or ``no interval``."""
    return lambda row: interval_text(row[low], row[high])


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


# -- on standard error -----------------------------------------------------------------------------


def say(console: Console, text: str) -> None:
    """Print a line, above a bar that is shown; a quiet console prints nothing."""
    from tqdm import tqdm

    if not console.quiet:
        tqdm.write(text, file=console.file)


def progress_bar(settings: OutputSettings, title: str, unit: str) -> AbstractContextManager[Moved]:
    """Show how far something is: at once in a terminal, every ten seconds in a log."""
    from tda_bias.show.progress import progress_bar

    log = not settings.console.is_terminal
    return progress_bar(title, unit, log=log, quiet=settings.quiet)
