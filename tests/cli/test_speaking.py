"""How all commands speak: formats, silence, completion, examples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tdabias_cli.commands import COMMANDS
from tdabias_cli.main import run
from tdabias_cli.program import loaded
from tests.support.models import tiny_hf_model
from tests.support.pages import shown_steps

DOCS = Path(__file__).parents[2] / "docs" / "commands"


def every_command():
    for name in COMMANDS:
        command = loaded(name)
        yield name, command
        for part, inner in getattr(command, "commands", {}).items():
            yield f"{name} {part}", inner


def options(command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_can_be_silent_and_speaks_json_and_csv():
    for name, command in every_command():
        assert {"--quiet", "--format"} <= options(command), name


LOADING = """
import sys
from tdabias_cli.main import _prepare_libraries
_prepare_libraries()
from tda_bias.models.load import load_language_model
lacking = [load_language_model(name, device="cpu").not_in_checkpoint for name in sys.argv[1:]]
assert [bool(names) for names in lacking] == [name in sys.argv[2:4] for name in sys.argv[1:]]
"""


@pytest.mark.real
def test_libraries_say_nothing_of_a_model_that_is_read(tiny_folder, subwords, tmp_path):
    """Of an encoder without its head, transformers prints a report; of any model, a bar."""
    encoder = tiny_hf_model("bert", len(subwords))
    encoder.bert.save_pretrained(tmp_path)
    subwords.save_pretrained(tmp_path)
    names = ["smollm2-135m", "minilm-l6", str(tmp_path), str(tiny_folder)]
    left_alone = ("TRANSFORMERS_VERBOSITY", "HF_HUB_DISABLE_PROGRESS_BARS")
    environment = {name: value for name, value in os.environ.items() if name not in left_alone}
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *names], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_quiet_command_does_not_warn(quiet, tiny_folder, tmp_path, caplog, capsys):
    command = f"stereoset --model {tiny_folder} --dtype bfloat16 --data starter --category gender"
    few = f"--limit 2 --twins none --out {tmp_path / 'run'}"
    assert run([*f"{command} {few}".split(), *(["--quiet"] if quiet else [])]) == 0
    warned = any("can be inexact" in record.getMessage() for record in caplog.records)
    assert warned == (not quiet)
    assert capsys.readouterr().err.count(f"loading {tiny_folder}\n") == (not quiet)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("tdabias", "he"), ["heads"]),
        (("tdabias", "ls", "mo"), ["models"]),
        (("tdabias", "heads", "--pvalue", "pa"), ["paired", "paper"]),
        (("tdabias", "heads", "--keep"), ["--keep-patterns"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(words, offered, capsys, monkeypatch):
    monkeypatch.setenv("_TDABIAS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("COLORTERM", True)])
def test_no_color_means_none(variable, coloured):
    done = subprocess.run(
        [sys.executable, "-c", "from tdabias_cli.main import run; run(['ls', '--help'])"],
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", variable: "1"},
        capture_output=True,
        text=True,
    )
    assert ("\x1b[1;3" in done.stdout) == coloured


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_with_the_example_that_ends_its_help(name, capsys, monkeypatch):
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    # A command's words, wherever its lines break.
    shown = [step.command.replace("\\\n", " ").split() for step in shown_steps(text)]
    assert COMMANDS[name].example.split() in shown
    monkeypatch.setenv("COLUMNS", "200")
    assert run([name, "--help"]) == 0
    assert COMMANDS[name].example in capsys.readouterr().out
