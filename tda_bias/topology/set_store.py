"""The sorted sets of a group until all its texts have come: in memory, or in a temporary file."""

from __future__ import annotations

import tempfile
import weakref
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Float

from tda_bias.types import InputError


class SetStore:
    """An array with a row per layer and head that is filled by columns and read by rows.

    Up to ``most_bytes`` it lies in memory. Beyond, it lies in a file without a name in the
    temporary folder, which the system removes whatever happens; written and read, not mapped, so
    that it does not count as memory of the process.

    Args:
        rows: Layers times heads.
        columns: Values of all sets of one row.
        dtype: Of the values.
        most_bytes: See above.

    Attributes:
        array: The whole of it where it lies in memory, else None.
        row_bytes: Memory that reading a row takes: none where it lies there.
    """

    def __init__(self, rows: int, columns: int, dtype: np.dtype[Any], most_bytes: int) -> None:
        self.array: Float[np.ndarray, "row column"] | None = None
        self._columns, self._dtype = columns, dtype
        self._bytes = rows * columns * dtype.itemsize
        if self._bytes <= most_bytes:
            self.array = np.empty((rows, columns), dtype)
            self.row_bytes = 0
        else:
            self.row_bytes = columns * dtype.itemsize
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as the store
            weakref.finalize(self, self._file.close)
            self._lock = Lock()

    def write(self, row: int, column: int, values: Float[np.ndarray, "row size"]) -> None:
        """Fill in values from a row and a column on; several threads may do so at a time.

        Raises:
            InputError: if the temporary folder is full.
        """
        if self.array is not None:
            self.array[row : row + len(values), column : column + values.shape[1]] = values
            return
        try:
            for offset, piece in enumerate(np.ascontiguousarray(values)):
                left = memoryview(piece).cast("B")
                with self._lock:
                    self._file.seek(self._place(row + offset) + column * self._dtype.itemsize)
                    while left:
                        left = left[self._file.write(left) :]
        except OSError as error:
            raise InputError(
                f"a group's births and deaths need {self._bytes / 1e9:.1f} GB in "
                f"{tempfile.gettempdir()}: {error.strerror}; let TMPDIR name a larger folder, or "
                "use --limit"
            ) from error

    def read(self, rows: slice) -> Float[np.ndarray, "row column"]:
        """Some rows; a view where they lie in memory."""
        if self.array is not None:
            return self.array[rows]
        self._file.seek(self._place(rows.start))
        values = np.fromfile(self._file, self._dtype, (rows.stop - rows.start) * self._columns)
        return values.reshape(-1, self._columns)

    def _place(self, row: int) -> int:
        return row * self._columns * self._dtype.itemsize
