"""Results of runs: their files, written all together, and a record of how they came about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from tda_bias.store.files import RECORD, put_in_place, staged, to_json, write_errors
from tda_bias.store.hashes import file_hash
from tda_bias.store.letters import drawn_with_all_letters
from tda_bias.store.record import FileRecord, RunRecord, sealed, updated
from tda_bias.store.run import Run, open_run
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tda_bias.store.run import Columns


# -- writing a run ---------------------------------------------------------------------------------


@dataclass
class RunWriter:
    """Takes the files of a run, and holds them in ``stage`` until the run is complete."""

    stage: Path
    names: list[str] = field(default_factory=list)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table, as CSV, JSON Lines or Parquet by the ending of its name."""
        path = self._path(name)
        if path.suffix == ".csv":
            table.to_csv(path, index=False)
        elif path.suffix == ".jsonl":
            table.to_json(path, orient="records", lines=True, force_ascii=False)
        else:
            table.to_parquet(path, index=False)

    def arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays as ``.npz``."""
        with self._path(name).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write plain values as JSON."""
        self._path(name).write_text(to_json(content), encoding="utf-8")

    def figure(self, name: str, figure: Figure) -> None:
        """Write a figure as ``name.png`` and ``name.svg``."""
        for suffix in ("png", "svg"):
            save_figure(self._path(f"{name}.{suffix}"), figure)

    def figures(self, figures: Mapping[str, Figure]) -> None:
        """Write figures by name."""
        for name, figure in figures.items():
            self.figure(name, figure)

    def entries(self, *, added: bool = False) -> dict[str, FileRecord]:
        """Entries of the files so far, for the record."""
        return {
            name: FileRecord(hash=file_hash(self.stage / name), added=added) for name in self.names
        }

    def _path(self, name: str) -> Path:
        if name == RECORD or Path(name).name != name:
            raise ValueError(f"{name!r} cannot be a file of a run")
        if name not in self.names:
            self.names.append(name)
        return self.stage / name


def save_figure(
    file: Path | BytesIO,
    figure: Figure,
    *,
    dpi: int = 200,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a figure in the format of the path's ending, or as PNG into memory.

    The same figure gives the same bytes. It is laid out when it is first written, and then stays as
    it is.
    """
    import matplotlib as mpl
    from matplotlib.text import Text

    for text in figure.findobj(Text):  # also of what was drawn in another style
        text.set_parse_math(False)
    undated = {"Date": None} if isinstance(file, Path) and file.suffix == ".svg" else None
    with mpl.rc_context({"svg.hashsalt": "tdabias", "text.parse_math": False}):
        drawn_with_all_letters(
            figure, lambda: figure.savefig(file, dpi=dpi, metadata=metadata or undated)
        )
    figure.set_layout_engine("none")  # which costs as much as drawing does


@contextmanager
def writing_run(folder: str | Path, record: RunRecord) -> Iterator[RunWriter]:
    """Write a run: all its files, or none where the block fails.

    The record goes first and comes last, so that a process that is killed in between leaves a
    folder without a finished run, never one with files of two. What an earlier run left there and
    this one does not have is deleted, as long as nobody changed it.

    Raises:
        InputError: if the folder cannot be written; a run that was there is still there unless
            that happened while files were being put in place.
    """
    folder = Path(folder)
    with staged(folder) as stage, write_errors(folder):
        run = RunWriter(stage)
        yield run
        files = run.entries()
        before: Mapping[str, FileRecord] = {}
        with suppress(InputError):  # no run, or none that can be read
            before = open_run(folder).record.files
        (stage / RECORD).write_text(
            sealed(updated(record, {"files": files, "sources": record.reads()})), encoding="utf-8"
        )
        (folder / RECORD).unlink(missing_ok=True)
        _put_in_place(folder, stage, before, files, kept=files)


@contextmanager
def adding_to_run(folder: str | Path) -> Iterator[RunWriter]:
    """Add files to a finished run, in the place of everything that was added before.

    Raises:
        InputError: if the folder holds no finished run or cannot be written.
    """
    folder = Path(folder)
    record = open_run(folder).record
    with staged(folder) as stage, write_errors(folder):
        run = RunWriter(stage)
        yield run
        files = run.entries(added=True)
        kept = {name: file for name, file in record.files.items() if not file.added} | files
        (stage / RECORD).write_text(sealed(updated(record, {"files": kept})), encoding="utf-8")
        # Killed from here on, the old record does not match the new files: that is noticed.
        _put_in_place(folder, stage, record.files, files, kept=kept)


def _put_in_place(
    folder: Path,
    stage: Path,
    before: Mapping[str, FileRecord],
    new: Mapping[str, FileRecord],
    *,
    kept: Mapping[str, FileRecord],
) -> None:
    """Put new files and then the record in place, and delete the unchanged old ones not kept."""
    for name in (*new, RECORD):
        put_in_place(stage / name, folder / name)
    for name in set(before) - set(kept):
        with suppress(OSError):  # it is of no run any more, and nothing reads it
            if file_hash(folder / name) == before[name].hash:
                (folder / name).unlink()


# -- in a notebook ---------------------------------------------------------------------------------

# Rows of a table that are shown.
ROWS = 8


def summary_html(
    title: str, lines: Sequence[str] = (), tables: Mapping[str, pd.DataFrame] | None = None
) -> str:
    """A few kilobytes of HTML: a title, sentences, and of each table the first rows."""
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


# -- results ---------------------------------------------------------------------------------------

Extra = TypeVar("Extra")
# Field of a result, its file and its columns.
Table = tuple[str, str, "Columns"]


class Written:
    """What has declared files, and a view in notebooks; a subclass is a frozen dataclass."""

    TABLES: ClassVar[Sequence[Table]] = ()
    # Fields whose table may be empty; it then has no file.
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    # Fields of plain values, each with its JSON file.
    DOCUMENTS: ClassVar[Sequence[tuple[str, str]]] = ()
    # What a notebook prints: a caption and the field of each table.
    SHOWN: ClassVar[Sequence[tuple[str, str]]] = ()

    def _repr_html_(self) -> str:
        return summary_html(repr(self), self._lines(), self._shown())

    def _lines(self) -> Sequence[str]:
        """Sentences in front of the tables of a notebook."""
        return ()

    def _shown(self) -> Mapping[str, pd.DataFrame]:
        """The tables of a notebook, by caption."""
        return {caption: getattr(self, field) for caption, field in self.SHOWN}

    def _write(self, run: RunWriter) -> None:
        """Write the declared files; a subclass adds what is no table of its own."""
        for attribute, name, _ in self.TABLES:
            table = getattr(self, attribute)
            if attribute not in self.OPTIONAL or not table.empty:
                run.table(name, table)
        for attribute, name in self.DOCUMENTS:
            run.json(name, getattr(self, attribute))


class Result(Written):
    """The result of a command: its record, and what else it consists of, declared once.

    A subclass is a frozen dataclass without a ``repr`` of its own, whose fields are those that
    ``TABLES`` and ``DOCUMENTS`` name, and ``record``. One that consists of something else, as
    arrays, says how it is written (``_write``) and read (``_read``).

    Examples:
        A result with one table; its folder then holds ``scores.csv`` and ``run.json``:

        >>> @dataclass(frozen=True, repr=False)
        ... class Scores(Result):
        ...     COMMAND, RECORD = "scores", RunRecord
        ...     TABLES = (("scores", "scores.csv", {"text": str, "score": float}),)
        ...     scores: Any
        ...     record: RunRecord
    """

    COMMAND: ClassVar[str]
    RECORD: ClassVar[type[RunRecord]]
    record: Any

    def with_record(self, **entries: Any) -> Self:
        """The same with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))  # type: ignore[type-var]

    def __repr__(self) -> str:
        rows = ", ".join(f"{field} {len(getattr(self, field))}" for field, *_ in self.TABLES)
        return f"{type(self).__name__}({self.record.model.name}; rows: {rows})"

    def save(
        self, folder: str | Path, *, figures: Mapping[str, Figure] | None = None
    ) -> list[Path]:
        """Write every file, figures (by name) and ``run.json``: all of them, or none.

        Returns:
            The files, ``run.json`` last.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            self._write(run)
            run.figures(figures or {})
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, cls.COMMAND)
        record = run.record_as(cls.RECORD)
        return cls(**cls._read(run, record), record=record)  # type: ignore[call-arg]

    @classmethod
    def _read(cls, run: Run, record: Any) -> dict[str, Any]:
        """Every field but the record."""
        import pandas as pd

        tables = {
            attribute: run.table(file, columns)
            if attribute not in cls.OPTIONAL or run.has(file)
            else pd.DataFrame(columns=[*columns])
            for attribute, file, columns in cls.TABLES
        }
        return tables | {attribute: run.json(file) for attribute, file in cls.DOCUMENTS}


class LazyResult(Result):
    """A result with files that are read when they are first asked for.

    A subclass has the fields ``run``, from which it was loaded (None for a new one), and
    ``extras``: by file, what is not in the folder of ``run``.
    """

    run: Run | None
    extras: Mapping[str, Any]

    @classmethod
    def _read(cls, run: Run, record: Any) -> dict[str, Any]:
        return {**super()._read(run, record), "run": run}

    def _has(self, name: str) -> bool:
        return name in self.extras or (self.run is not None and self.run.has(name))

    def _extra(self, name: str, read: Callable[[Run], Extra]) -> Extra:
        """What a file holds: as it was made, or as ``read`` reads it."""
        if self.run is None or name in self.extras:
            extra: Extra = self.extras[name]
            return extra
        return read(self.run)


class Addition(Written):
    """What is computed from a saved run, and added to its folder."""

    def save(self, folder: str | Path, *, figures: Mapping[str, Figure] | None = None) -> None:
        """Add every file and figures (by name) to the run: all of them, or none.

        What was added before goes.

        Raises:
            InputError: if the folder holds no finished run, or cannot be written.
        """
        with adding_to_run(folder) as run:
            self._write(run)
            run.figures(figures or {})
