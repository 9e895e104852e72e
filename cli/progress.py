"""Progress on standard error: a bar in a terminal, a line every few seconds elsewhere.

Nothing is silent for longer: where neither a bar nor a spinner moves, a line says what goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0
# What is done within so little time of the last was not computed, but finished by an earlier run.
_AT_ONCE = 0.05

Moved = Callable[[int, int | None], None]


def say(console: Console, text: str) -> None:
    """Print a line as it is, whatever characters it holds and however wide the terminal is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    _SPOKEN.now()


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show what is being done: a spinner in a terminal; elsewhere the lines of ``not_silent``."""
    before, _SPOKEN.about = _SPOKEN.about, what
    try:
        with _moving(console), console.status(what):
            yield
    finally:
        _SPOKEN.about = before


@contextmanager
def not_silent(console: Console) -> Iterator[None]:
    """See to it that a line is printed whenever nothing else was for some seconds."""
    if console.quiet:
        yield
        return
    ended, start = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(0.5):
            now = time.monotonic()
            if not _SPOKEN.moving and now - _SPOKEN.last >= SECONDS_BETWEEN_LINES:
                say(console, f"{_SPOKEN.about}: {_clock(now - start)} since the start")

    _SPOKEN.now()
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


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
    if not console.is_terminal:
        before, _SPOKEN.about = _SPOKEN.about, title
        try:
            yield _Lines(console, title, what).moved
        finally:
            _SPOKEN.about = before
        return

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
    with _moving(console), bar:
        task = bar.add_task(title, total=None, what=what)

        def moved(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            rate = f"{what}, {speed:.1f} a second," if speed else what
            bar.update(task, completed=done, total=total, what=rate)

        yield moved


@dataclass
class _Spoken:
    """When something was last shown, and what the program is doing."""

    last: float = 0.0
    about: str = "at work"
    moving: int = 0

    def now(self) -> None:
        self.last = time.monotonic()


_SPOKEN = _Spoken()


@contextmanager
def _moving(console: Console) -> Iterator[None]:
    """A bar or a spinner moves as long as the block runs, where there is a terminal."""
    shown = int(console.is_terminal)
    _SPOKEN.moving += shown
    try:
        yield
    finally:
        _SPOKEN.moving -= shown
        _SPOKEN.now()


class _Lines:
    """Progress for a log: plain lines, and not many of them."""

    def __init__(self, console: Console, title: str, what: str) -> None:
        self._console, self._title, self._what = console, title, what
        self._start = self._last_line = time.monotonic()
        self._last_move = 0.0
        self._first: int | None = None
        self._latest: int | None = None
        self._ended = False

    def moved(self, done: int, total: int | None) -> None:
        """Say so, if the last line is some seconds old, or this is the end."""
        now = time.monotonic()
        if self._first is None or (
            now - self._last_move < _AT_ONCE and self._first == self._latest
        ):
            # It says nothing of the speed.
            self._first, self._start = done, now
        self._last_move, self._latest = now, done
        end = done == total
        if self._ended if end else now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line, self._ended = now, end
        text = f"{done} {self._what}" if total is None else f"{done}/{total} {self._what}"
        since, seconds = done - self._first, now - self._start
        if since > 0 and seconds > 0:
            rate = since / seconds
            text += f", {rate:.1f} a second"
            if total is not None and not end:
                text += f", {_clock((total - done) / rate)} left"
        say(self._console, f"{self._title}: {text}")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
