"""Progress on standard error: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0

Moved = Callable[[int, int | None], None]


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
        yield _Lines(console, title, what).moved
        return

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=None, what=what)

        def moved(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            rate = f"{what}, {speed:.1f} a second," if speed else what
            bar.update(task, completed=done, total=total, what=rate)

        yield moved


@dataclass
class _Lines:
    """Progress for a log: plain lines, and not many of them."""

    console: Console
    title: str
    what: str
    start: float = field(default_factory=lambda: time.monotonic())
    first: int | None = None
    last_line: float = field(default_factory=lambda: time.monotonic())
    ended: bool = False

    def moved(self, done: int, total: int | None) -> None:
        """Say so, if the last line is some seconds old, or this is the end."""
        now = time.monotonic()
        if self.first is None:
            # What an earlier run finished is there at once, and says nothing of the speed.
            self.first, self.start = done, now
        end = done == total
        if self.ended if end else now - self.last_line < SECONDS_BETWEEN_LINES:
            return
        self.last_line, self.ended = now, end
        self.console.print(
            f"{self.title}: {self._text(done, total, now - self.start)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _text(self, done: int, total: int | None, seconds: float) -> str:
        text = f"{done}/{total} {self.what}" if total is not None else f"{done} {self.what}"
        since = done - (self.first or 0)
        if since <= 0 or seconds <= 0:
            return text
        rate = since / seconds
        text += f", {rate:.1f} a second"
        if total is not None and done < total:
            left = int((total - done) / rate)
            text += f", {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        return text
