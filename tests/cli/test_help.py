"""What ``--help`` says, held against version 0.1, and that saying it loads nothing heavy."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tdabias_cli.commands import COMMANDS, loaded
from tdabias_cli.main import run

VERSION_0_1 = json.loads((Path(__file__).parent / "help_0_1.json").read_text())

# What came since. Options that may be set in a file can be taken back: every switch has its --no-.
_RANKING = [
    "--edges",
    "--group",
    "--pvalue",
    "--distance",
    "--backend",
    "--combine",
    "--adjust",
    "--rank-by",
]
NEW_OPTIONS = {
    "ablate": [
        "--budget", "--config", "--format", "--model", "--overwrite", "--precision", "--quiet",
        "--shard", "--twins",
    ],
    "crossref": [
        "--config", "--format", "--items", "--overwrite", "--published", "--quiet", "--scoring",
    ],
    "export": ["--config", "--format", "--model", "--quiet"],
    "figures": ["--config", "--quiet"],
    "heads": [
        "--device-map", "--dry-run", "--edges", "--keep-patterns", "--overwrite", "--pairs",
        "--quiet", "--shard", "--twins", "--untrained",
    ],
    "pvf mine": ["--config", "--format", "--quiet"],
    "pvf plot": ["--config", "--format", "--quiet"],
    "pvf": ["--device-map", "--overwrite", "--quiet", "--resume", "--shard"],
    "pvf risk": ["--out", "--overwrite", "--quiet"],
    "pvf score": [
        "--device-map", "--format", "--overwrite", "--quiet", "--resume", "--seed", "--shard",
        "--untrained",
    ],
    "pvf social": ["--config", "--format", "--quiet"],
    "stereoset": [
        "--device-map", "--overwrite", "--quiet", "--resume", "--shard", "--start", "--task",
        "--twins",
    ],
    # A configuration file could set these before.
    "unqover": ["--device-map", "--overwrite", "--quiet", "--shard"],
    "reproduce": [
        "--category", "--device-map", "--format", "--quiet", "--share-prefix", *_RANKING,
    ],
}  # fmt: skip
# A third backend, and another ranking by default: what they are is said anew.
CHANGED = {("heads", "--backend"), ("heads", "--rank-by")}
# What had to be given and need not with another option: crossref RUN --published gpt2.
OPTIONAL = {("crossref", "behaviour"), ("figures", "runs")}
# What the device and the weights' type may be is said alike everywhere.
CHANGED |= {(c, o) for c in ("pvf", "pvf score", "unqover") for o in ("--device", "--dtype")}
NEW_SPELLINGS = {"--out": {"--output", "-o"}, "--survivors": {"--no-survivors"}}
NEW_COMMANDS = [
    "compare", "confirm", "debias", "edit", "ls", "pairs", "prune-curve", "report", "show",
    "twins",
]  # fmt: skip

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


@pytest.mark.parametrize("command", VERSION_0_1)
def test_flags_sentences_and_defaults_are_those_of_version_0_1(command, capsys, monkeypatch):
    before = VERSION_0_1[command]
    shown = rows(command, capsys, monkeypatch)
    assert any(before["about"] in row for row in shown)
    for name, text in before["arguments"].items():
        mark = "" if (command, name) in OPTIONAL else "* "
        assert any(row.startswith(f"│ {mark}{name}") and text in row for row in shown), name
    options = options_of(command, shown)
    for name, option in before["options"].items():
        row = options.pop(name)
        flags = set(re.findall(r"(?:^|[ ,])(--?[a-zA-Z][a-z-]*)", row.split("<")[0]))
        allowed = set(option["flags"].split())
        assert allowed <= flags <= allowed | NEW_SPELLINGS.get(name, set()), name
        if (command, name) in CHANGED:
            continue
        assert option["help"] in row, name
        if "default" in option:
            assert re.search(rf"[(;] ?default: {re.escape(option['default'])}\)", row), name
        else:
            # A default in words is part of the sentence.
            assert "default: " not in row.replace(option["help"], "") or name == "--survivors"
    assert sorted(options) == sorted(NEW_OPTIONS.get(command, []))


def test_every_command_is_compared():
    every = set(COMMANDS)
    every |= {f"pvf {name}" for name in loaded("pvf").commands}
    assert every == {*VERSION_0_1, *NEW_COMMANDS}


def test_the_programs_help_lists_each_command_with_its_first_sentence(capsys, monkeypatch):
    shown = rows("", capsys, monkeypatch)
    for name, sentence in COMMANDS.items():
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
        "--combine": "max, mean",
        "--format": "table, json, csv",
        "--backend": "mst, torch, gudhi",
    }.items():
        assert f"(one of {choices}; default: " in options[name]
    assert options["--model"].rstrip(" │").endswith("(required)")
    assert options["--category"].rstrip(" │").endswith("required without --pairs")
    assert "<int 99.." in options["--n-resamples"]


def test_no_help_loads_what_only_work_needs():
    commands = [[], *([*name.split()] for name in VERSION_0_1)]
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


@pytest.mark.parametrize(("command", "seconds"), [([], 0.3), (["heads"], 0.5)])
def test_help_is_there_at_once(command, seconds):
    """The bar is for an idle core: on a busy machine the processor's time, and twice as much."""
    call = [sys.executable, "-c", "from tdabias_cli.main import main; main()", *command, "--help"]
    taken = []
    for _ in range(5):
        before = os.times()
        subprocess.run(call, check=True, capture_output=True)
        after = os.times()
        used = after.children_user - before.children_user
        taken.append(used + after.children_system - before.children_system)
    assert min(taken) < 2 * seconds
