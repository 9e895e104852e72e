"""Results that are tables and a record: saved as a finished run, and loaded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tda_bias.records.files import RECORD
from tda_bias.records.notebook import summary_html
from tda_bias.records.record import RunRecord, updated
from tda_bias.records.runs import open_run
from tda_bias.records.writing import writing_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandera.pandas import DataFrameSchema


class SavedResult:
    """What a command found.

    A subclass is a frozen dataclass: its fields are the tables that ``TABLES`` names, and
    ``record``.

    Attributes:
        COMMAND: The command that finds it.
        RECORD: Kind of its record.
        TABLES: Field, file and columns of each table.
        SHOWN: What a notebook prints: a caption and the field of each table.
        record: Everything needed to repeat the run.
    """

    COMMAND: ClassVar[str]
    RECORD: ClassVar[type[RunRecord]]
    TABLES: ClassVar[Sequence[tuple[str, str, DataFrameSchema]]]
    SHOWN: ClassVar[Sequence[tuple[str, str]]]
    record: Any

    def _repr_html_(self) -> str:
        tables = {caption: getattr(self, field) for caption, field in self.SHOWN}
        return summary_html(repr(self), tables=tables)

    def with_record(self, **entries: Any) -> Self:
        """The same result with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))  # type: ignore[type-var]

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
            for attribute, name, _ in self.TABLES:
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
        tables = {name: run.table(file, schema) for name, file, schema in cls.TABLES}
        return cls(**tables, record=run.record_as(cls.RECORD))  # type: ignore[call-arg]
