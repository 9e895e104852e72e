"""Files that are whole or not there, and folders that one process holds at a time."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout

from tda_bias.types import InputError

# What stands in a folder whose run is finished.
RECORD = "run.json"
_TEMPORARY = ".unfinished-"
_LEFTOVER = f"{_TEMPORARY}{'[0-9a-f]' * 8}~"
_STAGE = "run"


def temporary_name(path: Path) -> Path:
    """A hidden name beside a path, whose file or folder is a leftover if the process is killed."""
    # The suffix stays, because some writers choose the format by it.
    return path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}~{path.name}")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that becomes ``path`` when the block ends well.

    Raises:
        InputError: if the folder cannot be written or the disk is full; ``path`` is as it was.
    """
    temporary = temporary_name(path)
    try:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            put_in_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty hidden folder inside ``folder``, gone when the block ends."""
    stage = temporary_name(folder / _STAGE)
    with write_errors(folder):
        stage.mkdir(parents=True)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn whatever the file system refuses into one line that names the path."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another --out"
        ) from error


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a finished file its name, once its content is on the disk."""
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(temporary, path)


def prepare_folder(folder: Path) -> None:
    """Make sure, before hours of work, that results can be written to a folder.

    What a process left that was killed while it wrote there, or into a folder inside, is deleted.
    Only for the process that holds the folder: what another one is just writing looks like the
    leftover of a killed one.

    Raises:
        InputError: if it cannot be made or written.
    """
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix=_TEMPORARY):
            pass
    for path in (*folder.glob(f"{_LEFTOVER}*"), *folder.glob(f"*/{_LEFTOVER}*")):
        if path.is_dir() and path.name.endswith(f"~{_STAGE}"):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):  # another folder of such a name is the user's
                path.unlink()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def arrays_from(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file.

    Raises:
        ValueError: if the bytes are none, or hold anything but plain arrays.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}
    except Exception as error:
        # What a damaged archive makes zipfile, zlib and NumPy stumble over has no common class.
        raise ValueError(f"no archive of arrays: {error}") from error


def read_text(source: str | Path, *, setting: str, named: Sequence[str]) -> str:
    """The text of a user's file, given as ``setting``; instead, one of ``named`` could have been.

    Raises:
        InputError: if it cannot be read or is not UTF-8.
    """
    return read_content(source, setting=setting, named=named)[0]


def read_content(source: str | Path, *, setting: str, named: Sequence[str]) -> tuple[str, bytes]:
    """The text of a user's file and its bytes, read once, as a pipe can be; as ``read_text``."""
    try:
        content = Path(source).read_bytes()
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        return text, content
    except UnicodeDecodeError:
        raise InputError(f"`{setting}` {source} is not a UTF-8 text file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        names = f"{', '.join(named)} or " if named else ""
        raise InputError(
            f"`{setting}` must be {names}a readable file; {str(source)!r}: {reason}"
        ) from None


def json_objects(text: str, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines text, each with where it stands.

    Raises:
        InputError: if a line is no object, or has a key twice.
    """
    # Split at line feeds alone: other line separators may stand inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{source} line {number}"
        try:
            item = json.loads(line, object_pairs_hook=each_key_once)
        except KeyError as error:
            raise InputError(f"{where}: the key {error} stands twice") from None
        except (ValueError, RecursionError):
            raise InputError(f"{where}: not a JSON object") from None
        if not isinstance(item, dict):
            raise InputError(f"{where}: expected a JSON object, got {type(item).__name__}")
        yield where, item


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its entries; of a key that stands twice, json would keep the last.

    Raises:
        KeyError: if a key stands twice.
    """
    item: dict[str, Any] = {}
    for key, value in pairs:
        if key in item:
            raise KeyError(key)
        item[key] = value
    return item


def rows_of(
    text: str, where: str, *, columns: Sequence[str], delimiter: str = ","
) -> list[dict[str, str]]:
    """The rows of a CSV text with a heading, as ``csv_objects`` reads them, without their places.

    Raises:
        InputError: as ``csv_objects``.
    """
    return [row for _, row in csv_objects(text, where, columns=columns, delimiter=delimiter)]


def delimiter_of(path: str | Path) -> str | None:
    """What separates the fields of a file of rows, told by its name; None of another file.

    Example:
        >>> delimiter_of("own.csv"), delimiter_of("own.jsonl")
        (',', None)
    """
    return {".csv": ",", ".tsv": "\t"}.get(Path(path).suffix.lower())


def csv_objects(
    text: str, source: str, *, columns: Sequence[str] = (), delimiter: str = ","
) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV text with a heading, each with where it stands, the heading on line 1.

    Every CSV is read here, strictly: what other readers mend in silence (a quotation mark that
    nothing closes takes the next rows into its text) changes what is measured.

    Args:
        text: The text, whose lines end with line feeds.
        source: What it is called in messages.
        columns: Those that it must have; it may have others.
        delimiter: What separates the fields of a row.

    Raises:
        InputError: naming the line, if a column is missing or stands twice, a quotation mark is
            not closed or stands before the end of its field, or a row is longer or shorter than the
            heading.
    """
    records = _csv_records(text, source, delimiter)
    _, heading = next(records, (source, []))
    _check_heading(heading, source, columns, delimiter)
    for where, fields in records:
        if len(fields) != len(heading):
            raise InputError(
                f"{where}: {len(fields)} fields, where the heading has {len(heading)}; a field "
                f"that holds {delimiter!r} must stand in quotation marks"
            )
        yield where, dict(zip(heading, fields, strict=True))


def _csv_records(text: str, source: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """The records of a CSV text, without empty lines, each with the line where it begins."""
    lines = text.split("\n")
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    width = 0
    while True:
        begun = reader.line_num
        where = f"{source} line {begun + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{where}: {_csv_fault(str(error), delimiter)}") from None
        width = width or len(fields)
        taken = _row_taken(lines[begun : reader.line_num], width, delimiter)
        if taken is not None:
            raise InputError(
                f"{where}: a quotation mark that opens here takes line {begun + 1 + taken}, which "
                "looks like a row, into its field; close it, or, if the text has several lines, "
                "give the file as JSON Lines"
            )
        if fields:
            yield where, fields


def _row_taken(lines: Sequence[str], width: int, delimiter: str) -> int | None:
    """Which line of a record of several lines would be a row on its own, if one would.

    A later mark may close a quotation that was left open; texts of several lines are rare here, and
    what they are refused for in vain is said.
    """
    if len(lines) == 1:
        return None
    counts = [len(next(csv.reader([line], delimiter=delimiter), [])) for line in lines]
    if counts[0] == 1:  # a text of several lines in the first column: the row ends its last line
        counts.pop()
    return next((n for n, count in enumerate(counts) if n and count == width), None)


def _csv_fault(error: str, delimiter: str) -> str:
    """What a person can do about an error of the ``csv`` module."""
    if "expected after" in error:
        return (
            'a field that begins with a quotation mark (") goes on after the closing one; put '
            f'{delimiter!r} there, write a mark inside a field twice (""), or close the field'
        )
    if "field limit" in error:
        return (
            f"a field of more than {csv.field_size_limit():,} characters; is a quotation mark "
            '(") not closed?'
        )
    if "end of data" in error:
        return 'a quotation mark (") opens a field here and nothing closes it'
    return f"no row of CSV ({error})"


def _check_heading(
    heading: Sequence[str], source: str, columns: Sequence[str], delimiter: str
) -> None:
    """Make sure that a heading has the columns that are needed, and each of its columns once."""
    twice = [name for number, name in enumerate(heading) if name in heading[:number]]
    if twice:
        raise InputError(
            f"{source} line 1: the column `{twice[0]}` stands twice; give each a name of its own"
        )
    missing = [name for name in columns if name not in heading]
    if missing:
        needed = f"{source} has no column `{missing[0]}`; it needs {', '.join(columns)}"
        other = next((mark for mark in (";", "\t", ",") if mark in "".join(heading)), None)
        if other is not None:
            needed += f", separated by {delimiter!r}, not by {other!r}"
        raise InputError(needed)


def to_json(record: Mapping[str, Any]) -> str:
    """Readable JSON; NaN, which JSON does not know, becomes null."""
    return json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The same without NumPy's types, and with None for NaN and infinities."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case np.generic():
            return plain(value.item())
        case Path():
            return str(value)
        case float():
            return value if np.isfinite(value) else None
        case _:
            return value


# -- one process at a time -------------------------------------------------------------------------

# How long a share waits for others that are just beginning.
_PATIENCE_SECONDS = 5.0


@contextmanager
def locked(folder: str | Path, share: str = "") -> Iterator[None]:
    """Hold a folder as long as the block runs; the same process may hold it several times.

    The operating system lets go of the lock when its process ends, however it ends. The file stays:
    deleting it would let two processes hold what each takes for the lock.

    Args:
        folder: Which; it is made if need be.
        share: Which part of the work in it is held, ``2-of-4``: others may hold other shares,
            nobody the whole. Empty for the whole.

    Raises:
        InputError: if another process holds the whole, this share, or any share of what is wanted
            as a whole, saying which; or if the folder cannot be written.
    """
    folder = Path(folder)
    whole = _acquired(folder, "", patience=_PATIENCE_SECONDS if share else 0.0)
    lock, holder = whole, _lock_file(folder, share, "holder")
    if share:
        # The whole is held while a share begins: a whole run begins before it or after it.
        try:
            lock = _acquired(folder, share)
        finally:
            whole.release()
    try:
        if not share:
            for path in folder.glob(_lock_file(folder, "*", "lock").name):
                other = path.name.removeprefix(".tdabias.share-").removesuffix(".lock")
                _acquired(folder, other).release()
        about = {"process": os.getpid(), "host": socket.gethostname(), "since": now()}
        write_text(holder, json.dumps(about))
        yield
    finally:
        if lock.lock_counter == 1:
            holder.unlink(missing_ok=True)
        lock.release()


def _acquired(folder: Path, share: str, *, patience: float = 0.0) -> BaseFileLock:
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(_lock_file(folder, share, "lock"), is_singleton=True)
        try:
            lock.acquire(timeout=patience, poll_interval=0.01)
        except Timeout:
            raise _held(folder, share) from None
    return lock


def _held(folder: Path, share: str) -> InputError:
    try:
        held = json.loads(_lock_file(folder, share, "holder").read_text(encoding="utf-8"))
        who = f"process {held['process']} on {held['host']} (since {held['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    what = f"{folder} is being written by {who}"
    if share:
        what = f"shard {share.replace('-of-', '/')} of {folder} is being computed by {who}"
    return InputError(f"{what}; wait until it is done, or choose another --out")


def _lock_file(folder: Path, share: str, kind: str) -> Path:
    return folder / (f".tdabias.share-{share}.{kind}" if share else f".tdabias.{kind}")
