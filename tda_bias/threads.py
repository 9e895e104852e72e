"""Work that several threads of this process share: as many as torch uses.

Each thread takes the next task when it is done with its last: where another program has a core, the
others do its share. Torch's own threads would wait for each other after every small step, and would
be as many again in each of these; they are shared out meanwhile.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

Task = Callable[[], None]


def in_threads(tasks: Sequence[Task]) -> None:
    """Run tasks that release the interpreter most of their time.

    Raises:
        Exception: the first that a task raised, in their order; tasks not yet started are dropped.
    """
    before = torch.get_num_threads()
    threads = min(before, len(tasks))
    if threads <= 1:
        for task in tasks:
            task()
        return
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(max(1, before // threads))
    try:
        for future in [pool.submit(task) for task in tasks]:
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)


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
