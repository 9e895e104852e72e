"""Progress: a bar in a terminal, few plain lines in a log, nothing where it is quiet."""

import io
import re
import time

import pytest
from rich.console import Console

from tdabias_cli import output
from tdabias_cli.output import doing, progress_bar


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.6)


def lines(steps, total: int | None = 100, **more) -> list[str]:
    """What stands in a log after steps of (seconds, done)."""
    log = io.StringIO()
    with progress_bar(Console(file=log, width=40, **more), "a [title]", "texts") as moved:
        for seconds, done in steps:
            time.sleep(seconds)
            moved(done, total)
    return log.getvalue().splitlines()


@pytest.mark.parametrize(
    ("steps", "total", "said"),
    [
        (
            [(0, 0), (0.3, 10), (0.6, 100)],
            100,
            [r"10/100 texts, \d+\.\d a second, 0:00:0\d left", r"100/100 texts, \d+\.\d a second"],
        ),
        # What an earlier run finished says nothing of the speed.
        ([(0, 90), (0.9, 90)], 100, ["90/100 texts"]),
        ([(0, 0), (0.3, 3), (0.6, 3)], None, [r"3 texts, \d+\.\d a second"]),
        # Nothing is silent, neither before the first step nor while one takes long.
        ([(0.9, 0), (0.6, 0)], 100, ["0:00:00", "0/100 texts"]),
        ([(0, 100)], 100, ["100/100 texts"]),
        # What follows the last text may take long too.
        (
            [(0, 0), (0, 100), (0.9, 100)],
            100,
            [
                r"100/100 texts, \d+\.\d a second",
                "all texts done, results follow: 0:00:00",
            ],
        ),
    ],
)
def test_a_log_has_a_line_every_few_seconds_with_rate_and_time_left(steps, total, said):
    found = lines(steps, total)
    assert len(found) == len(said)
    for line, expected in zip(found, said, strict=True):
        assert re.fullmatch(rf"a \[title\]: {expected}", line)


def test_quiet_is_quiet():
    assert lines([(0, 0), (0.9, 100)], quiet=True) == []


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


@pytest.mark.parametrize(("seconds", "quiet"), [(0, False), (1.5, False), (1.5, True)])
def test_a_log_says_what_takes_long(seconds, quiet):
    log = io.StringIO()
    with doing(Console(file=log, quiet=quiet), "loading a [model]"):
        time.sleep(seconds)
    said = log.getvalue().splitlines()
    assert bool(said) == bool(seconds and not quiet)
    assert all(re.fullmatch(r"loading a \[model\]: 0:00:0\d", line) for line in said)
