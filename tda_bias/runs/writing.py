"""A run's files, written beside and put in place together; the record, which lists them, last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tda_bias.runs.figures import save_figure
from tda_bias.runs.files import (
    RECORD,
    make_folder,
    put_in_place,
    staged,
    to_json,
    write_errors,
)
from tda_bias.runs.record import FileRecord, RunRecord, sealed, updated
from tda_bias.runs.run import file_hash, open_run
from tda_bias.runs.tables import csv_text
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class RunWriter:
    """Takes the files of a run; they are in their places when the run is complete."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._names: list[str] = []

    @property
    def names(self) -> list[str]:
        """Files so far."""
        return list(self._names)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """A table, as CSV or Parquet by the ending of its name."""
        path = self._path(name)
        if path.suffix == ".csv":
            path.write_text(csv_text(table), encoding="utf-8")
        else:
            table.to_parquet(path, index=False)

    def arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Arrays as ``.npz``."""
        with self._path(name).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Plain values as JSON."""
        self._path(name).write_text(to_json(content), encoding="utf-8")

    def figure(self, name: str, figure: Figure) -> None:
        """A figure as ``name.png`` and ``name.svg``."""
        for suffix in ("png", "svg"):
            save_figure(self._path(f"{name}.{suffix}"), figure)

    def entries(self, *, added: bool = False) -> dict[str, FileRecord]:
        """Entries of the files so far, for the record."""
        return {
            name: FileRecord(hash=file_hash((self._stage / name).read_bytes()), added=added)
            for name in self._names
        }

    def _path(self, name: str) -> Path:
        if name == RECORD or Path(name).name != name:
            raise ValueError(f"{name!r} cannot be a file of a run")
        if name not in self._names:
            self._names.append(name)
        return self._stage / name


@contextmanager
def writing_run(folder: str | Path, record: RunRecord) -> Iterator[RunWriter]:
    """Write a run: all its files, or none where the block fails.

    The record goes first and comes last, so that a process that is killed in between leaves a
    folder without a finished run, never one with files of two. What an earlier run left there and
    this one does not have is deleted, as long as nobody changed it.

    Args:
        folder: Where to; it is made if need be.
        record: What the run says of itself; its ``files`` are filled in.

    Raises:
        InputError: if the folder cannot be written; a run that was there is still there unless
            that happened while files were being put in place.
    """
    folder = Path(folder)
    with staged(folder) as stage:
        writer = RunWriter(stage)
        with write_errors(folder):
            yield writer
            entries = writer.entries()
            stale = _listed(folder)
            _write_record(stage, updated(record, {"files": entries}))
            (folder / RECORD).unlink(missing_ok=True)
            for name in entries:
                put_in_place(stage / name, folder / name)
            put_in_place(stage / RECORD, folder / RECORD)
        _delete(folder, {name: e for name, e in stale.items() if name not in entries})


@contextmanager
def adding_to_run(folder: str | Path, *, anew: bool = False) -> Iterator[RunWriter]:
    """Add files to a finished run, or replace some of them.

    Args:
        folder: Where it is.
        anew: Whether these replace everything that was added before.

    Raises:
        InputError: if the folder holds no finished run or cannot be written.
    """
    folder = Path(folder)
    run = open_run(folder)
    with staged(folder) as stage:
        writer = RunWriter(stage)
        with write_errors(folder):
            yield writer
            entries = writer.entries(added=True)
            kept = {n: e for n, e in run.record.files.items() if not (anew and e.added)}
            _write_record(stage, updated(run.record, {"files": {**kept, **entries}}))
            # Killed from here on, the old record does not match the new files: that is noticed.
            for name in entries:
                put_in_place(stage / name, folder / name)
            put_in_place(stage / RECORD, folder / RECORD)
        kept |= entries
        _delete(folder, {name: e for name, e in run.record.files.items() if name not in kept})


def _write_record(stage: Path, record: RunRecord) -> None:
    (stage / RECORD).write_text(sealed(record), encoding="utf-8")


def _listed(folder: Path) -> dict[str, FileRecord]:
    """The files of the run that is in a folder, as far as it can be read."""
    make_folder(folder)
    try:
        return open_run(folder).record.files
    except InputError:
        return {}


def _delete(folder: Path, files: Mapping[str, FileRecord]) -> None:
    for name, entry in files.items():
        path = folder / name
        with suppress(OSError):  # it is of no run any more, and nothing reads it
            if file_hash(path.read_bytes()) == entry.hash:
                path.unlink()
