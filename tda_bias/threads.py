"""Work that several threads of this process share: as many as torch uses.

Each thread takes the next task when it is done with its last: where another program has a core, the
others do its share. Torch's own threads would wait for each other after every small step, and would
be as many again in each of these; they are shared out meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Task = Callable[[], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(tasks: Sequence[Task]) -> None:
    """Run tasks that release the interpreter most of their time.

    Raises:
        Exception: the first that a task raised; tasks not yet begun are dropped.
    """
    for _ in each_in_threads(lambda task: task(), tasks, ahead=len(tasks)):
        pass


def each_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int | None = None
) -> Iterator[Result]:
    """Call a function with each item in as many threads as torch uses; yield results in order.

    Args:
        function: Releases the interpreter most of its time.
        items: Its arguments.
        ahead: Results that wait to be taken at most; by default one per thread.

    Raises:
        Exception: the first that the function raised, in the order of the items; what has not
            begun is dropped.
    """
    items = list(items)
    before = torch.get_num_threads()
    threads = min(before, len(items))
    if threads <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(max(1, before // threads))
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > (ahead or threads):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(before)
