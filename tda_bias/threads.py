"""Work that several threads of this process share: as many as torch uses.

Each thread takes the next task when it is done with its last: where another program has a core, the
others do its share. Torch's own threads would wait for each other after every small step, and would
be as many again in each of these; they are shared out meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

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
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    ahead: int | None = None,
    threads: int | None = None,
) -> Iterator[Result]:
    """What a function returns for each item, in their order.

    Args:
        function: Releases the interpreter most of its time.
        items: Its arguments.
        ahead: Results that wait to be taken at most; by default one per thread.
        threads: How many share torch's threads, however few the items are: what is computed must
            not depend on that. If None, as many as torch uses and there are items.

    Raises:
        Exception: the first that the function raised, in the order of the items; what has not
            begun is dropped, and what is running may end early (``stop_if_unwanted``).
    """
    items = list(items)
    threads = threads or min(torch.get_num_threads(), len(items))
    if threads <= 1:
        yield from map(function, items)
        return
    waiting: deque[Future[Result]] = deque()
    unwanted = threading.Event()
    workers = ThreadPoolExecutor(
        max(1, min(threads, len(items))),
        initializer=_wanted_until,
        initargs=((*_signs_here(), unwanted),),
    )
    with torch_shared_by(threads), workers as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > (ahead or threads):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            unwanted.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class UnwantedError(Exception):
    """Nobody wants the result of a task any more."""


_here = threading.local()


def _wanted_until(signs: tuple[threading.Event, ...]) -> None:
    _here.signs = signs


def _signs_here() -> tuple[threading.Event, ...]:
    signs: tuple[threading.Event, ...] = getattr(_here, "signs", ())
    return signs


def stop_if_unwanted() -> None:
    """End the task of this thread if another has failed, or the whole was interrupted.

    For functions that are called with each of many parts of a long task.

    Raises:
        UnwantedError: which nobody waits for.
    """
    if any(sign.is_set() for sign in _signs_here()):
        raise UnwantedError("nobody wants this result any more")


class Pool(Generic[Item]):
    """Equal things of which a thread needs one for itself, made when they are needed.

    Args:
        first: The first of them.
        copied: Makes another.
    """

    def __init__(self, first: Item, copied: Callable[[], Item]) -> None:
        self._copied = copied
        self._free = [first]
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[Item]:
        """One that nobody else uses meanwhile."""
        with self._lock:
            # One copy after the other: making it may change settings of whole libraries.
            item = self._free.pop() if self._free else self._copied()
        try:
            yield item
        finally:
            with self._lock:
                self._free.append(item)


@contextmanager
def torch_shared_by(threads: int) -> Iterator[None]:
    """Torch with its share of its threads, also in those that begin meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)
