"""Arrays that wait for the rest of their group: in memory, or beyond a size in a file as memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from math import prod
from typing import Any

import numpy as np

from tda_bias.types import InputError

# Beyond this an array is in a file without a name in the temporary folder, which the system removes
# whatever happens.
MOST_BYTES = 256_000_000


class Room:
    """Room for an array.

    Attributes:
        array: What is kept, not set to anything at first.
        in_file: Whether it is in a file.

    Raises:
        InputError: if the temporary folder is full.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        size = prod(shape) * dtype.itemsize
        self._file: mmap.mmap | None = None
        self.in_file = size > MOST_BYTES
        if self.in_file:
            self._file = _temporary_file(size)
            self.array = np.frombuffer(self._file, dtype).reshape(shape)
        else:
            self.array = np.empty(shape, dtype)

    def forget(self) -> None:
        """What is in the file shall not count as memory of this process."""
        if self._file is not None:
            self._file.madvise(mmap.MADV_DONTNEED)


def _temporary_file(size: int) -> mmap.mmap:
    """A file of some bytes in the temporary folder, without a name, as memory."""
    try:
        with tempfile.TemporaryFile() as file:
            # Room is taken now: a mapped file that grows on a full disk kills the process.
            reserve: Any = getattr(os, "posix_fallocate", lambda _, __, size: file.truncate(size))
            reserve(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise InputError(
            f"what is read of a group's patterns needs {size / 1e9:.1f} GB in "
            f"{tempfile.gettempdir()}: {error.strerror}; let TMPDIR name a larger folder, or use "
            "--limit"
        ) from error
