"""A run's folder, held by one process at a time, and its files, put in place together.

Files are written beside their places; the record, which lists them, comes last.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from tda_bias.runs.figures import save_figure
from tda_bias.runs.files import (
    RECORD,
    make_folder,
    put_in_place,
    staged,
    to_json,
    write_errors,
    write_text,
)
from tda_bias.runs.record import FileRecord, RunRecord, now, sealed, updated
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


# -- one process at a time -------------------------------------------------------------------------

_LOCK = ".tdabias.lock"
_HOLDER = ".tdabias.holder"
_SHARE = ".tdabias.share-"
# How long a share waits for others that are just beginning.
_PATIENCE_SECONDS = 5.0


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold a folder as long as the block runs; the same process may hold it several times.

    The operating system lets go of the lock when its process ends, however it ends. The file stays:
    deleting it would let two processes hold what each takes for the lock.

    Raises:
        InputError: if another process holds it or a share of it, saying which; or if the folder
            cannot be written.
    """
    folder = Path(folder)
    lock = _acquired(folder, "")
    try:
        _refuse_held_shares(folder)
        _name_holder(folder, "")
        yield
    finally:
        if lock.lock_counter == 1:
            _holder(folder, "").unlink(missing_ok=True)
        lock.release()


@contextmanager
def locked_share(folder: str | Path, share: str) -> Iterator[None]:
    """Hold one share of a folder: others may hold other shares, nobody the whole.

    Args:
        folder: Where the parts are.
        share: A name that is a part of a file name: ``2-of-4``.

    Raises:
        InputError: if another process holds the folder or this share, saying which; or if the
            folder cannot be written.
    """
    folder = Path(folder)
    # Whoever begins a share holds the folder for that moment: a whole run then begins before it or
    # after it.
    whole = _acquired(folder, "", patience=_PATIENCE_SECONDS)
    try:
        lock = _acquired(folder, share)
    finally:
        whole.release()
    try:
        _name_holder(folder, share)
        yield
    finally:
        _holder(folder, share).unlink(missing_ok=True)
        lock.release()


def _acquired(folder: Path, share: str, *, patience: float = 0.0) -> BaseFileLock:
    with write_errors(folder):
        make_folder(folder)
        lock = FileLock(_path(folder, share), is_singleton=True)
        try:
            lock.acquire(timeout=patience, poll_interval=0.01)
        except Timeout:
            raise _held(folder, share) from None
    return lock


def _refuse_held_shares(folder: Path) -> None:
    for path in folder.glob(f"{_path(folder, '*').name}"):
        share = path.name.removeprefix(_SHARE).removesuffix(".lock")
        _acquired(folder, share).release()


def _name_holder(folder: Path, share: str) -> None:
    about = {"process": os.getpid(), "host": socket.gethostname(), "since": now()}
    write_text(_holder(folder, share), json.dumps(about))


def _held(folder: Path, share: str) -> InputError:
    try:
        held = json.loads(_holder(folder, share).read_text(encoding="utf-8"))
        who = f"process {held['process']} on {held['host']} (since {held['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    what = f"{folder} is being written by {who}"
    if share:
        what = f"shard {share.replace('-of-', '/')} of {folder} is being computed by {who}"
    return InputError(f"{what}; wait until it is done, or choose another --out")


def _path(folder: Path, share: str) -> Path:
    return folder / (f"{_SHARE}{share}.lock" if share else _LOCK)


def _holder(folder: Path, share: str) -> Path:
    return folder / (f"{_SHARE}{share}.holder" if share else _HOLDER)
