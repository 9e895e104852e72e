"""Results that are tables and a record: saved as a finished run, and loaded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tda_bias.runs.files import RECORD
from tda_bias.runs.notebook import summary_html
from tda_bias.runs.record import RunRecord, updated
from tda_bias.runs.run import Run, open_run
from tda_bias.runs.writing import writing_run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tda_bias.runs.tables import Columns

# Field of a result, its file and its columns.
Table = tuple[str, str, "Columns"]


class Recorded:
    """What carries the record of the run that found it; a subclass is a frozen dataclass.

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
    """What a command found.

    A subclass is a frozen dataclass: its fields are the tables that ``TABLES`` names, and
    ``record``.

    Attributes:
        COMMAND: The command that finds it.
        RECORD: Kind of its record.
        TABLES: Field, file and columns of each table.
        SHOWN: What a notebook prints: a caption and the field of each table.
    """

    COMMAND: ClassVar[str]
    RECORD: ClassVar[type[RunRecord]]
    TABLES: ClassVar[Sequence[Table]]
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
        """The tables that are there to be saved; a subclass may have fewer in some runs."""
        return self.TABLES

    @classmethod
    def _read(cls, run: Run) -> dict[str, pd.DataFrame]:
        """Every table by its field; a subclass says what stands for one that a run lacks."""
        return {name: run.table(file, columns) for name, file, columns in cls.TABLES}
