"""Progress on standard error: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console

SECONDS_BETWEEN_LINES = 5.0

Moved = Callable[[int, int | None], None]


def say(console: Console, text: str) -> None:
    """Print a line as it is, whatever characters it holds and however wide the terminal is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Show what is being done: a spinner in a terminal; elsewhere a line, if it takes a while."""
    slow = Timer(SECONDS_BETWEEN_LINES, say, (console, what))
    slow.daemon = True
    if not console.is_terminal:
        slow.start()
    try:
        with console.status(what):
            yield
    finally:
        slow.cancel()


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
        yield _lines(console, title, what)


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


def _lines(console: Console, title: str, what: str) -> Moved:
    """Progress for a log: a line every few seconds, and one at the end.

    The rate is that since the last line: what an earlier run finished is there at once, and says
    nothing of the speed.
    """
    last_time, last_done, ended = time.monotonic(), None, False

    def moved(done: int, total: int | None) -> None:
        nonlocal last_time, last_done, ended
        now = time.monotonic()
        if last_done is None:
            last_time, last_done = now, done
        seconds, new = now - last_time, done - last_done
        end = done == total
        if ended if end else seconds < SECONDS_BETWEEN_LINES:
            return
        text = f"{done} {what}" if total is None else f"{done}/{total} {what}"
        if new > 0 and seconds > 0:
            text += f", {new / seconds:.1f} a second"
            if total is not None and not end:
                text += f", {_clock((total - done) * seconds / new)} left"
        last_time, last_done, ended = now, done, end
        say(console, f"{title}: {text}")

    return moved


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
