"""Memory that a process has freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back_memory() -> None:
    """Give freed memory back to the system, where the C library keeps it.

    glibc keeps what tensors of some megabytes leave behind, in pieces that add up over many tasks
    of other sizes. Elsewhere this does nothing.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
