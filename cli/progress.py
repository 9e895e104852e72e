"""Progress on standard error: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0

Moved = Callable[[int, int | None], None]


def say(console: Console, text: str) -> None:
    """Print a line as it is, whatever characters it holds and however wide the terminal is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show what is being done: a spinner in a terminal; elsewhere a line while it takes long."""
    start = time.monotonic()

    def line() -> None:
        say(console, f"{what}: {_clock(time.monotonic() - start)}")

    with console.status(what) if console.is_terminal else _repeated(line):
        yield


@contextmanager
def _repeated(line: Callable[[], None]) -> Iterator[None]:
    """Write a line every few seconds, also while the program waits for something."""
    ended = Event()

    def write() -> None:
        while not ended.wait(SECONDS_BETWEEN_LINES):
            line()

    writing = Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


@contextmanager
def progress_bar(console: Console, title: str, what: str) -> Iterator[Moved]:
    """Show how far something is, with its rate and the time left.

    Args:
        console: Where; a quiet one shows nothing.
        title: What is being done.
        what: Of which there are so many: texts, pairs, ...

    Yields:
        What to call with what is done and with all there is, if that is known.
    """
    if console.is_terminal:
        yield from _bar(console, title, what)
    else:
        log = _Log(console, title, what)
        with _repeated(log.line):
            yield log.moved
        log.last_line()


def _bar(console: Console, title: str, what: str) -> Iterator[Moved]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=None, what=what)

        def moved(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            rate = f"{what}, {speed:.1f} a second," if speed else what
            bar.update(task, completed=done, total=total, what=rate)

        yield moved


class _Log:
    """Progress for a log: a line every few seconds, and one at the end.

    The rate is that since the last line: what an earlier run finished is there at once, and says
    nothing of the speed.
    """

    def __init__(self, console: Console, title: str, what: str) -> None:
        self._console, self._title, self._what = console, title, what
        self._start = self._time = time.monotonic()
        self._done: int | None = None
        self._total: int | None = None
        self._said_done = 0

    def moved(self, done: int, total: int | None) -> None:
        """Note what is done."""
        if self._done is None:
            self._time, self._said_done = time.monotonic(), done
        self._done, self._total = done, total

    def line(self) -> None:
        """Say how far it is."""
        now, done, total = time.monotonic(), self._done, self._total
        if done is None:
            say(self._console, f"{self._title}: {_clock(now - self._start)}")
            return
        text = f"{done} {self._what}" if total is None else f"{done}/{total} {self._what}"
        seconds, new = now - self._time, done - self._said_done
        if new > 0 and seconds > 0:
            text += f", {new / seconds:.1f} a second"
            if total is not None and done < total:
                text += f", {_clock((total - done) * seconds / new)} left"
            self._time, self._said_done = now, done
        say(self._console, f"{self._title}: {text}")

    def last_line(self) -> None:
        """Say that all is done, if it is."""
        if self._done is not None and self._done == self._total:
            self.line()


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
