"""Commands with their output in the pages of the docs: replayed, compared, and written anew.

In a block that begins with ```` ```console ````, a line that begins with ``$ `` is a command, and
what follows is what it prints on standard output; a line ``...`` stands for lines that are not
shown. In a block that begins with ```` ```text ````, commands take too long to be run again; where
the run that one left is stored in ``tests/golden/pages``, it is printed again by ``tdabias show``
and compared.
A block with a title, ```` ```json title="mine.jsonl" ````, is a file that the commands find, and so
are the text files in ``tests/golden/pages``, of which a reader has their own.

    python -m tests.support.pages FOLDER docs/commands/*.md

replays the pages in FOLDER, where the runs are left, and writes what came out into them.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from unittest import mock

# Runs that took too long to be made again; of each what `tdabias show` reads.
STORED = Path(__file__).parents[1] / "golden" / "pages"
NOT_SHOWN = re.compile(r"^\.\.\.$", re.MULTILINE)
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
LONG_BLOCK = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# Where a command says that it left its files.
FOLDER = re.compile(r"^(?:  Files |Files:) +(\S+)/ \(", re.MULTILINE)
BOX = re.compile(r"[─━│┃┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇╭╮╰╯╞╪╡┳╈█░]+")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Not TERMINAL_WIDTH, which typer reads once and keeps for all later tests of a process.
TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
# A page says what anybody gets.
TERMINAL |= {"TDABIAS_STEREOSET": "", "TDABIAS_PAIRS": "", "TDABIAS_BBQ": ""}


@dataclass(frozen=True)
class Step:
    """A command as it stands in a page, and the output below it."""

    command: str
    output: str


def steps(text: str) -> list[Step]:
    """The commands of a page that are run again, in order."""
    return [step for block in BLOCK.findall(text) for step in steps_of_block(block)]


def shown_steps(text: str) -> list[Step]:
    """These, and commands that take too long to be run again."""
    long = [block for block in LONG_BLOCK.findall(text) if block.startswith("$ ")]
    return [*steps(text), *(step for block in long for step in steps_of_block(block))]


def long_steps(text: str) -> list[Step]:
    """Commands that take too long, whose runs are stored."""
    long = [step for step in shown_steps(text) if step not in steps(text)]
    return [step for step in long if _shown_again(step)]


def stored_steps(text: str) -> list[Step]:
    """The same, as what prints the stored runs again."""
    return [Step(shown, s.output) for s in long_steps(text) if (shown := _shown_again(s))]


def _shown_again(step: Step) -> str | None:
    said = FOLDER.search(step.output)
    return f"tdabias show {said[1]}" if said and (STORED / said[1]).is_dir() else None


def steps_of_block(block: str) -> Iterator[Step]:
    nothing, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not nothing.strip(), f"a console block must begin with a command: {block!r}"
    for part in parts:
        # A command goes on behind a backslash at the end of a line.
        command, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n(.*)", part, re.DOTALL).groups()
        yield Step(command, output)


def write_files(text: str, folder: Path) -> None:
    """Put the files that a page shows, and those that any reader has, into a folder."""
    for path in STORED.glob("*.txt"):
        shutil.copy(path, folder)
    for name, content in FILE.findall(text):
        (folder / name).write_text(content, encoding="utf-8")


def replay(command: str, folder: Path) -> str:
    """What a command prints in a folder, in a terminal of 80 columns without colours."""
    from tdabias_cli.main import run

    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "tdabias", f"only tdabias is replayed: {command!r}"
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, TERMINAL),
        contextlib.redirect_stdout(printed),
    ):
        code = run(arguments)
    assert code == 0, f"{command!r} ended with {code}"
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"


def difference(expected: str, printed: str) -> str | None:
    """The first words that differ; numbers may, by what another processor changes."""
    parts = [BOX.sub(" ", part).split() for part in NOT_SHOWN.split(expected)]
    given = BOX.sub(" ", printed).split()
    if len(parts) == 1:
        return _first_difference(parts[0], given)
    first, *middle, last = parts
    changed = _first_difference(first, given[: len(first)])
    rest = given[len(first) :]
    for part in middle:
        starts = range(len(rest) - len(part) + 1)
        found = [i for i in starts if not _first_difference(part, rest[i : i + len(part)])]
        if not found:
            return changed or f"{' '.join(part[:12])!r} is not printed there"
        rest = rest[found[0] + len(part) :]
    return changed or _first_difference(last, rest[len(rest) - len(last) :] if last else [])


def _first_difference(wanted: list[str], given: list[str]) -> str | None:
    for place, pair in enumerate(zip_longest(wanted, given, fillvalue="")):
        if not _same(*pair):
            shown = (" ".join(words[place : place + 12]) for words in (wanted, given))
            return "{!r} became {!r}".format(*shown)
    return None


def _same(expected: str, printed: str) -> bool:
    if NUMBER.sub("#", expected) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True)
    return all(_close(*pair) for pair in pairs)


def _close(expected: str, printed: str) -> bool:
    fraction = expected.partition("e")[0].partition(".")[2]
    last_digit = 10.0 ** -len(fraction) if fraction and "e" not in expected else 0.0
    allowed = 1.001 * last_digit + 0.02 * abs(float(expected))
    return abs(float(expected) - float(printed)) <= allowed


def renewed(text: str, folder: Path) -> str:
    """A page with every command's output as it is now."""
    write_files(text, folder)

    def again(match: re.Match[str]) -> str:
        return "".join(_with_output(step, step.command, folder) for step in _steps_of(match))

    def shown_again(match: re.Match[str]) -> str:
        if not match.group().startswith("$ "):
            return match.group()
        return "".join(_with_output(step, _shown_again(step), STORED) for step in _steps_of(match))

    return LONG_BLOCK.sub(shown_again, BLOCK.sub(again, text))


def _steps_of(match: re.Match[str]) -> list[Step]:
    return list(steps_of_block(match.group()))


def _with_output(step: Step, command: str | None, folder: Path) -> str:
    """A step with what a command prints; with its own output where that is true, but shorter."""
    printed = replay(command, folder) if command is not None else step.output
    shortened = NOT_SHOWN.search(step.output) and not difference(step.output, printed)
    return f"$ {step.command}\n{step.output if shortened else printed}"


if __name__ == "__main__":
    where, *pages = map(Path, sys.argv[1:])
    where.mkdir(parents=True, exist_ok=True)
    for page in pages:
        text = renewed(page.read_text(encoding="utf-8"), where.resolve())
        page.write_text(text, encoding="utf-8")
