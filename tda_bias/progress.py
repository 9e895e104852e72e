"""Progress of a long call: how much is done so far, and where the time went."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Progress = Callable[[int, int], None]
T = TypeVar("T")


class Counter:
    """Texts done so far."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total = 0, total
        self._progress = progress

    def add(self, texts: int) -> None:
        """Tell of so many more."""
        self.reach(self._done + texts)

    def reach(self, texts: int) -> None:
        """Tell that so many are done, unless more are."""
        if texts > self._done:
            self._done = texts
            if self._progress is not None:
                self._progress(texts, self._total)


class Stopwatch:
    """Seconds by stage.

    Attributes:
        seconds: What each stage has taken so far.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def each(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """Count what it takes to make each item, not what is done with it."""
        iterator = iter(items)
        while True:
            with self.stage(name):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
            del item  # it may be large, and the next one is made now
