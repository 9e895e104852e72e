"""Results that are tables and a record: saved as a finished run, and loaded again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tda_bias.progress import Progress
from tda_bias.runs.files import RECORD
from tda_bias.runs.record import RunRecord, updated
from tda_bias.runs.run import Run, open_run
from tda_bias.runs.writing import writing_run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tda_bias.runs.tables import Columns


# Rows of a table that are shown.
ROWS = 8


def summary_html(
    title: str, lines: Sequence[str] = (), tables: Mapping[str, pd.DataFrame] | None = None
) -> str:
    """A few kilobytes of HTML; names of models and targets are escaped.

    Args:
        title: What the result is.
        lines: What must be read beside it.
        tables: By what they show; of long ones the first rows.
    """
    parts = [f"<div><strong>{escape(title)}</strong>"]
    parts += [f"<p>{escape(line)}</p>" for line in lines]
    for name, table in (tables or {}).items():
        left = len(table) - ROWS
        more = f" (first {ROWS} of {len(table)})" if left > 0 else ""
        parts.append(f"<p>{escape(name)}{more}</p>")
        parts.append(
            table.head(ROWS).to_html(index=False, float_format="{:.3g}".format, na_rep="", border=0)
        )
    return "\n".join([*parts, "</div>"])


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar for whatever takes ``progress``, in a notebook and in a terminal.

    ```python
    with progress_bar("heads") as progress:
        result = tda_bias.head_bias(model, triples, progress=progress)
    ```

    Args:
        title: What is being done.

    Yields:
        What to call with what is done and with all there is.
    """
    from tqdm import tqdm

    with tqdm(desc=title) as bar:

        def moved(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield moved


# Field of a result, its file and its columns.
Table = tuple[str, str, "Columns"]


class Recorded:
    """A result with the record of the run that found it; a subclass is a frozen dataclass.

    Attributes:
        record: Everything needed to repeat the run.
    """

    record: Any

    def with_record(self, **entries: Any) -> Self:
        """The same with further entries in its record; new ones win.

        Raises:
            TypeError: if the record has no such entry.
            InputError: if a value does not fit.
        """
        return replace(self, record=updated(self.record, entries))  # type: ignore[type-var]


class SavedResult(Recorded):
    """Result of a command.

    A subclass is a frozen dataclass: its fields are the tables that ``TABLES`` names, and
    ``record``.

    Attributes:
        COMMAND: The command that finds it.
        RECORD: Kind of its record.
        TABLES: Field, file and columns of each table.
        OPTIONAL: Fields whose table may be empty; it then has no file.
        SHOWN: What a notebook prints: a caption and the field of each table.
    """

    COMMAND: ClassVar[str]
    RECORD: ClassVar[type[RunRecord]]
    TABLES: ClassVar[Sequence[Table]]
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    SHOWN: ClassVar[Sequence[tuple[str, str]]] = ()

    def _repr_html_(self) -> str:
        tables = {caption: getattr(self, field) for caption, field in self.SHOWN}
        return summary_html(repr(self), tables=tables)

    def save(
        self, folder: str | Path, *, figures: Mapping[str, Figure] | None = None
    ) -> list[Path]:
        """Write the tables, figures and ``run.json``: all of them, or none.

        Args:
            folder: Where to.
            figures: By name, drawn from this result.

        Returns:
            The files, ``run.json`` last: where it is, the others are.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            for attribute, name, _ in self._tables():
                run.table(name, getattr(self, attribute))
            for name, figure in (figures or {}).items():
                run.figure(name, figure)
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, cls.COMMAND)
        return cls(**cls._read(run), record=run.record_as(cls.RECORD))  # type: ignore[call-arg]

    def _tables(self) -> Sequence[Table]:
        """The tables that are there to be saved."""
        return [
            (name, file, columns)
            for name, file, columns in self.TABLES
            if name not in self.OPTIONAL or not getattr(self, name).empty
        ]

    @classmethod
    def _read(cls, run: Run) -> dict[str, pd.DataFrame]:
        """Every table by its field."""
        import pandas as pd

        return {
            name: run.table(file, columns)
            if name not in cls.OPTIONAL or run.has(file)
            else pd.DataFrame(columns=[*columns])
            for name, file, columns in cls.TABLES
        }
