"""What a command prints: its finding in four labelled parts, then tables; or JSON, or CSV.

On standard error how far it is: a bar in a terminal, a line every few seconds elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from string import Formatter
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from tda_bias.runs.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.types import HeadId

from .settings import OutputSettings

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
# Headings, each with a template of a row's values or a function of the row.
Columns = Sequence[tuple[str, str | Callable[[Row], str]]]
# Groups that are printed.
_GROUPS = 12


@dataclass(frozen=True)
class Output:
    """One result in every format.

    Attributes:
        shown: Tables and sentences, in the order in which they are printed after the finding. A
            command with a finding for each category or model puts those here too.
        values: The same for other programs, as JSON; tables, records and findings as they are.
        rows: The main table, as CSV.
        finding: What the run found.
        folder: Where its files are.
        files: Names of the most important ones.
    """

    shown: Sequence[Finding | Table | str]
    values: Mapping[str, Any]
    rows: pd.DataFrame
    finding: Finding | None = None
    folder: Path | None = None
    files: str = ""

    @property
    def parts(self) -> list[Finding | Table | str]:
        """Everything that is printed but where the files are."""
        return [*([self.finding] if self.finding is not None else []), *self.shown]

    def print(self, settings: OutputSettings) -> None:
        """Print it as the settings say; nothing else goes to standard output."""
        if settings.format == "json":
            from tda_bias.runs.files import plain

            typer.echo(json.dumps(plain(_as_json(self._values())), indent=2, allow_nan=False))
        elif settings.format == "csv":
            from tda_bias.runs.run import csv_text

            typer.echo(csv_text(self.rows), nl=False)
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

    def _values(self) -> dict[str, Any]:
        about: dict[str, Any] = {} if self.folder is None else {"folder": self.folder}
        if self.finding is not None:
            about["finding"] = self.finding
        return {**about, **self.values}


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
    """A table with a line for each row.

    Args:
        title: What stands above it.
        rows: The rows.
        columns: Of each its heading, and a template (see ``_Cells``) or a function of a row.
        left: Columns that are not right-justified.
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


# -- progress on standard error --------------------------------------------------------------------

SECONDS_BETWEEN_LINES = 5.0

Moved = Callable[[int, int | None], None]


def say(console: Console, text: str) -> None:
    """Print a line as it is, whatever characters it holds and however wide the terminal is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show what is being done: a spinner in a terminal; elsewhere a line while it takes long."""
    start = time.monotonic()

    def line() -> None:
        say(console, f"{what}: {_clock(time.monotonic() - start)}")

    with console.status(what) if console.is_terminal else _repeated(line):
        yield


@contextmanager
def _repeated(line: Callable[[], None]) -> Iterator[None]:
    """Write a line every few seconds, also while the program waits for something."""
    ended = Event()

    def write() -> None:
        while not ended.wait(SECONDS_BETWEEN_LINES):
            line()

    writing = Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


@contextmanager
def progress_bar(console: Console, title: str, what: str) -> Iterator[Moved]:
    """Show how far something is, with its rate and the time left.

    Args:
        console: Where; a quiet one shows nothing.
        title: What is being done.
        what: Of which there are so many: texts, pairs, ...

    Yields:
        What to call with what is done and with all there is, if that is known.
    """
    if console.is_terminal:
        yield from _bar(console, title, what)
    else:
        log = _Log(console, title, what)
        with _repeated(log.line):
            yield log.moved


def _bar(console: Console, title: str, what: str) -> Iterator[Moved]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=None, what=what)

        def moved(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            rate = f"{what}, {speed:.1f} a second," if speed else what
            bar.update(task, completed=done, total=total, what=rate)

        yield moved


@dataclass
class _Log:
    """Progress for a log: a line every few seconds, and one when all is done.

    The rate is that since the last line: what an earlier run finished is there at once, and says
    nothing of the speed.
    """

    console: Console
    title: str
    what: str
    done: int | None = None
    total: int | None = None
    said_done: int = 0
    start: float = field(default_factory=time.monotonic)
    said_at: float = 0.0
    ended: float = 0.0

    def moved(self, done: int, total: int | None) -> None:
        """Note what is done."""
        if self.done is None:
            self.said_at, self.said_done = time.monotonic(), done
        new = done != self.done
        self.done, self.total = done, total
        if new and done == total:
            self.line()

    def line(self) -> None:
        """Say how far it is."""
        now, done, total = time.monotonic(), self.done, self.total
        if done is None:
            say(self.console, f"{self.title}: {_clock(now - self.start)}")
            return
        text = f"{done} {self.what}" if total is None else f"{done}/{total} {self.what}"
        seconds, new = now - self.said_at, done - self.said_done
        if self.ended:
            text = f"all {self.what} done, results follow: {_clock(now - self.ended)}"
        elif done == total:
            self.ended = now
        if new > 0 and seconds > 0:
            text += f", {new / seconds:.1f} a second"
            if total is not None and done < total:
                text += f", {_clock((total - done) * seconds / new)} left"
            self.said_at, self.said_done = now, done
        say(self.console, f"{self.title}: {text}")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
