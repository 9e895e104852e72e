"""Pages of the docs show what the commands print: every command of every page is run again."""

import re
from pathlib import Path

import pytest

from tests.support.bbq import bbq_folder
from tests.support.pages import (
    NOT_SHOWN,
    STORED,
    difference,
    long_steps,
    renewed,
    replay,
    steps,
    stored_steps,
    write_files,
)

pytestmark = pytest.mark.thorough

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted(DOCS.glob("commands/*.md"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all pages: a run that one page made is resumed by the next."""
    return tmp_path_factory.mktemp("pages")


def _replayed():
    for page in PAGES:
        if steps(page.read_text(encoding="utf-8")):
            # One of them draws a dozen figures, each in three formats.
            marks = [pytest.mark.slow] if page.stem == "reproduce" else []
            # A minute and more each, of commands that have real-model tests of their own.
            marks += [pytest.mark.long] if page.stem in ("unqover", "crossref") else []
            yield pytest.param(page, id=page.stem, marks=marks)


@pytest.fixture(scope="module")
def left() -> set[str]:
    """Commands that were run, and are not run again by a page that does not show their output."""
    return set()


@pytest.mark.real
@pytest.mark.parametrize("page", list(_replayed()))
def test_a_page_shows_what_its_commands_print(page, folder, left):
    text = page.read_text(encoding="utf-8")
    write_files(text, folder)
    for step in steps(text):
        leaves = re.sub(r" --top \d+", "", step.command)  # whatever it prints of that
        if step.output.strip() == NOT_SHOWN and leaves in left:
            continue
        changed = difference(step.output, replay(step.command, folder))
        assert changed is None, f"{step.command}\n{changed}\n`make pages` writes it anew"
        left.add(leaves)


def test_what_took_too_long_is_shown_as_it_is_printed_from_the_run_it_left():
    compared = set()
    for page in PAGES:
        for step in stored_steps(page.read_text(encoding="utf-8")):
            assert difference(step.output, replay(step.command, STORED)) is None, step.command
            compared.add(step.command.split()[-1])
    assert compared == {str(path.parent.relative_to(STORED)) for path in STORED.rglob("run.json")}


# What the runs of a page are made from.
MADE_BEFORE = {"ablate": "tdabias heads --model smollm2-135m --category gender --data starter"}


@pytest.mark.long
@pytest.mark.real
@pytest.mark.parametrize("name", ["debias", "ablate", "bbq"])
def test_what_took_too_long_is_what_the_command_still_prints(name, tmp_path):
    """Minutes: trainings and removals. A training differs between processors by more than this."""
    text = (DOCS / "commands" / f"{name}.md").read_text(encoding="utf-8")
    write_files(text, tmp_path)
    if name == "bbq":
        (tmp_path / "bbq").symlink_to(bbq_folder())
    if name in MADE_BEFORE:
        replay(MADE_BEFORE[name], tmp_path)
    for step in long_steps(text):
        assert difference(step.output, replay(step.command, tmp_path)) is None, step.command


def test_the_pages_with_stored_runs_are_those_that_are_run_anew_on_request():
    stored = {page.stem for page in PAGES if long_steps(page.read_text(encoding="utf-8"))}
    assert stored == {"debias", "ablate", "bbq"}


PAGE = """\
```console
$ tdabias --version
tdabias 9.9.9
```
"""


def test_another_output_is_noticed_and_written_anew(tmp_path):
    [step] = steps(PAGE)
    printed = replay(step.command, tmp_path)
    assert difference(step.output, printed) == f"'9.9.9' became {printed.split()[1]!r}"
    assert difference(printed, printed) is None
    assert renewed(PAGE, tmp_path) == PAGE.replace("tdabias 9.9.9\n", printed)


def test_numbers_may_differ_by_what_another_processor_changes_and_words_may_not():
    assert difference("│ L20H3 │ 0.0903 │", "│ L20H3 │  0.0911 │") is None
    assert difference("10 of 270 heads", "12 of 270 heads") is not None
    assert difference("10 of 270 heads", "10 of 270 texts") is not None
    assert difference("one two", "one two three") == "'' became 'three'"


SHORTENED = """\
first 1
...
in between
...
last 2.00
"""


def test_a_line_of_three_points_stands_for_lines_and_the_others_are_compared():
    assert difference("...\n", "anything") is None
    assert difference(SHORTENED, "first 1\nmore\nin between\nlast 2.01\n") is None
    assert difference("first\n...\n", "first\nmore\n") is None
    for printed in (
        "second 1\nin between\nlast 2.00\n",
        "first 1\nlast 2.00\n",
        "first 1\nlast 2.00\nin between\n",
        "first 1\nin between\nlast 2.20\n",
        "first 1\nin between\n",
    ):
        assert difference(SHORTENED, printed) is not None, printed
    assert "in between" in difference(SHORTENED, "first 1\nlast 2.00\n")


def test_a_shortened_output_stays_while_it_is_true(tmp_path):
    printed = replay("tdabias ls categories", tmp_path)
    heading, *_, last = printed.splitlines()
    shortened = f"```console\n$ tdabias ls categories\n{heading}\n...\n{last}\n```\n"
    assert renewed(shortened, tmp_path) == shortened
    assert renewed(shortened.replace(last, "other"), tmp_path) == shortened.replace(
        f"...\n{last}\n", "\n".join(printed.splitlines()[1:]) + "\n"
    )
