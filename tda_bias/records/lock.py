"""One process at a time writes to a folder."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tda_bias.records.files import make_folder, write_errors, write_text
from tda_bias.records.record import now
from tda_bias.types import InputError

NAME = ".tdabias.lock"
_HOLDER = ".tdabias.holder"


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Hold a folder as long as the block runs; the same process may hold it several times.

    The operating system lets go of the lock when its process ends, however it ends. The file stays:
    deleting it would let two processes hold what each takes for the lock.

    Raises:
        InputError: if another process holds it, saying which; or if the folder cannot be written.
    """
    path, holder = Path(folder) / NAME, Path(folder) / _HOLDER
    with write_errors(path.parent):
        make_folder(path.parent)
        lock = FileLock(path, timeout=0, is_singleton=True)
        try:
            lock.acquire()
        except Timeout:
            raise InputError(
                f"{folder} is being written by {_named(holder)}; wait until it is done, or choose "
                "another --out"
            ) from None
    try:
        about = {"process": os.getpid(), "host": socket.gethostname(), "since": now()}
        write_text(holder, json.dumps(about))
        yield
    finally:
        if lock.lock_counter == 1:
            holder.unlink(missing_ok=True)
        lock.release()


def _named(holder: Path) -> str:
    try:
        held = json.loads(holder.read_text(encoding="utf-8"))
        return f"process {held['process']} on {held['host']} (since {held['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
