"""Progress: a bar in a terminal, few plain lines in a log, nothing where it is quiet."""

import io
import re
import time

import pytest
from rich.console import Console

from tdabias_cli import progress
from tdabias_cli.progress import doing, progress_bar


class Clock:
    """Time that moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(steps, clock, total: int | None = 100, **more) -> list[str]:
    """What stands in a log after steps of (seconds, done)."""
    log = io.StringIO()
    with progress_bar(Console(file=log, width=40, **more), "a [title]", "texts") as moved:
        for seconds, done in steps:
            clock.now += seconds
            moved(done, total)
    return log.getvalue().splitlines()


@pytest.mark.parametrize(
    ("steps", "total", "said"),
    [
        (
            [(0, 0), *((1, n) for n in range(1, 13))],
            100,
            ["5/100 texts, 1.0 a second, 0:01:35 left", "10/100 texts, 1.0 a second, 0:01:30 left"],
        ),
        # The end is always said, and once.
        ([(0, 0), (2, 100), (3, 100)], 100, ["100/100 texts, 50.0 a second"]),
        # What an earlier run finished says nothing of the speed.
        ([(0, 90), (10, 95)], 100, ["95/100 texts, 0.5 a second, 0:00:10 left"]),
        ([(0, 0), (6, 3)], None, ["3 texts, 0.5 a second"]),
    ],
)
def test_a_log_has_a_line_every_few_seconds_with_rate_and_time_left(clock, steps, total, said):
    assert lines(steps, clock, total) == [f"a [title]: {line}" for line in said]


def test_quiet_is_quiet(clock):
    assert lines([(0, 0), (60, 100)], clock, quiet=True) == []


def test_a_terminal_has_a_bar_with_the_rate():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    with progress_bar(console, "a [title]", "texts") as moved:
        for done in range(0, 101, 10):
            moved(done, 100)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "a [title]" in shown
    assert "100/100" in shown
    assert re.search(r"texts, [\d.]+ a second,", shown)
    times = [re.findall(r"(?:-:--:--|\d:\d\d:\d\d)(?: left)?", row) for row in shown.splitlines()]
    assert all(time.endswith(" left") for row in times for time in row)  # and no time gone
    assert any(times)


@pytest.mark.parametrize(("seconds", "quiet"), [(0, False), (0.4, False), (0.4, True)])
def test_a_log_says_what_takes_long(monkeypatch, seconds, quiet):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.2)
    log = io.StringIO()
    with doing(Console(file=log, quiet=quiet), "loading a [model]"):
        time.sleep(seconds)
    assert log.getvalue() == ("loading a [model]\n" if seconds and not quiet else "")
