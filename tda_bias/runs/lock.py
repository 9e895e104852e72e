"""One process at a time writes to a folder."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from tda_bias.runs.files import make_folder, write_errors, write_text
from tda_bias.runs.record import now
from tda_bias.types import InputError

NAME = ".tdabias.lock"
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
    return folder / (f"{_SHARE}{share}.lock" if share else NAME)


def _holder(folder: Path, share: str) -> Path:
    return folder / (f"{_SHARE}{share}.holder" if share else _HOLDER)
