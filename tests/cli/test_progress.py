"""Progress: a bar in a terminal, few plain lines in a log, nothing where it is quiet."""

import io
import re
import time

import pytest
from rich.console import Console

from tdabias_cli import progress
from tdabias_cli.progress import doing, not_silent, progress_bar


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


def test_a_log_has_a_line_every_few_seconds_with_rate_and_time_left(clock):
    found = lines([(0, 0), *((1, n) for n in range(1, 13))], clock)
    assert found == [
        "a [title]: 5/100 texts, 1.0 a second, 0:01:35 left",
        "a [title]: 10/100 texts, 1.0 a second, 0:01:30 left",
    ]


def test_the_end_is_always_said(clock):
    assert lines([(0, 0), (2, 100)], clock) == ["a [title]: 100/100 texts, 50.0 a second"]


def test_the_end_is_said_once(clock):
    found = lines([(0, 0), (2, 100), (3, 100)], clock)
    assert found == ["a [title]: 100/100 texts, 50.0 a second"]


def test_what_an_earlier_run_finished_does_not_count_for_the_rate(clock):
    found = lines([(0, 90), (10, 95)], clock)
    assert found == ["a [title]: 95/100 texts, 0.5 a second, 0:00:10 left"]


def test_no_total_no_time_left(clock):
    assert lines([(0, 0), (6, 3)], clock, total=None) == ["a [title]: 3 texts, 0.5 a second"]


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


def test_what_is_there_at_once_says_nothing_of_the_speed(clock):
    """Parts that an earlier run finished come one by one, each in no time."""
    found = lines([(0, 0), (0.01, 30), (0.01, 60), (10, 65)], clock)
    assert found == ["a [title]: 65/100 texts, 0.5 a second, 0:01:10 left"]


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_is_silent_for_long(monkeypatch, quiet):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.2)
    log = io.StringIO()
    console = Console(file=log, quiet=quiet)
    with not_silent(console), doing(console, "loading a [model]"):
        time.sleep(1.2)
    said = log.getvalue().splitlines()
    assert bool(said) != quiet
    assert all(re.fullmatch(r"loading a \[model\]: 0:00:0\d since the start", one) for one in said)


def test_a_bar_that_moves_is_enough(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.2)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    with not_silent(console), progress_bar(console, "a title", "texts"):
        time.sleep(0.8)
    assert "since the start" not in screen.getvalue()
