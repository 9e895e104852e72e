"""What ``--help`` says, and that saying it loads nothing heavy."""

import math
import os
import re
import subprocess
import sys

import pytest

from tdabias_cli.commands import COMMANDS
from tdabias_cli.main import run
from tdabias_cli.program import loaded

HEAVY = {
    "datasets", "matplotlib", "pandas", "pyarrow", "scipy", "spacy", "torch", "transformer_lens",
    "transformers",
}  # fmt: skip


def rows(command: str, capsys, monkeypatch) -> list[str]:
    """The lines of a help text, each option on one."""
    monkeypatch.setenv("COLUMNS", "500")
    assert run([*command.split(), "--help"]) == 0
    return [re.sub(r"\s+", " ", row) for row in capsys.readouterr().out.splitlines()]


def options_of(command: str, rows: list[str]) -> dict[str, str]:
    options = {}
    for row in rows:
        found = re.match(r"│ (--[a-z-]+)", row)
        if found and found[1] != "--help":
            options[found[1]] = row
    assert options, command
    return options


def test_the_programs_help_lists_each_command_with_its_first_sentence(capsys, monkeypatch):
    shown = rows("", capsys, monkeypatch)
    for name, spec in COMMANDS.items():
        sentence = spec.summary
        assert any(row.startswith(f"│ {name} {sentence}") for row in shown), name
        assert (loaded(name).help or "").split("\n\n")[0].replace("\n", " ") == sentence


def test_the_program_alone_prints_its_help(capsys):
    assert run([]) == 0
    captured = capsys.readouterr()
    assert "Usage: tdabias [OPTIONS] COMMAND" in captured.out
    assert captured.err == ""


def test_choices_are_listed_and_what_must_be_given_is_marked(capsys, monkeypatch):
    options = options_of("heads", rows("heads", capsys, monkeypatch))
    for name, choices in {
        "--pvalue": "paired, label, paper",
        "--dtype": "float32, float64, float16, bfloat16",
        "--format": "table, json, csv",
    }.items():
        assert f"(one of {choices}; default: " in options[name]
    assert options["--model"].rstrip(" │").endswith("(required).")
    assert options["--category"].rstrip(" │").endswith("required without --pairs.")
    assert "<int 99.." in options["--n-permutations"]


def test_no_help_loads_what_only_work_needs():
    commands = [[], *([*name.split()] for name in COMMANDS)]
    code = (
        "import sys\n"
        "from tdabias_cli.main import run\n"
        f"for command in {commands}:\n"
        "    assert run([*command, '--help']) == 0\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--rank-by" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "heads --category gender --data starter --limit 1",
        "stereoset --category gender --data starter --limit 1",
        "pairs --pairs winogender --limit 1",
        "pvf --attribute pronouns",
        "unqover --class gender --subjects 2 --attributes 1",
    ],
)
def test_the_first_line_waits_for_nothing_heavy(command, tmp_path):
    code = (
        "import sys\n"
        "from tdabias_cli import loading\n"
        "from tdabias_cli.main import run\n"
        "def say(console, text):\n"
        f"    heavy = {HEAVY} & set(sys.modules)\n"
        "    sys.exit(f'{text} {sorted(heavy)}')\n"
        "loading.say = say\n"
        f"run({[*command.split(), '--model', 'smollm2-135m', '--out', str(tmp_path / 'out')]})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "loading smollm2-135m []"


@pytest.mark.parametrize(("command", "seconds"), [([], 0.3), (["heads"], 0.5)])
def test_help_is_there_at_once(command, seconds):
    """The bar is for an idle core: on a busy machine the processor's time, and twice as much."""
    call = [sys.executable, "-c", "from tdabias_cli.main import main; main()", *command, "--help"]
    taken = [math.inf]
    while min(taken) >= 2 * seconds and len(taken) < 20:
        before = os.times()
        subprocess.run(call, check=True, capture_output=True)
        after = os.times()
        used = after.children_user - before.children_user
        taken.append(used + after.children_system - before.children_system)
    assert min(taken) < 2 * seconds
