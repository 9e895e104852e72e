"""The program as the shell starts it: its names, its exit codes, and what stops it."""

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from tdabias_cli.main import run

ENVIRONMENT = {**os.environ, "COLUMNS": "100", "PYTHONPATH": os.getcwd()}


def started(*arguments: str, code: str = "") -> subprocess.Popen:
    """The program in a process; ``code`` runs before it."""
    source = f"import sys; {code}\nfrom tdabias_cli.main import main\nmain()"
    call = [sys.executable, "-c", source, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(call, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT)


def test_the_version_is_printed(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"tdabias {version('tdabias')}"


def test_python_m_starts_the_command_line():
    call = [sys.executable, "-m", "tda_bias", "heads"]
    done = subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: `model` is missing; give --model\n"


def test_a_mistyped_command_is_told_what_it_may_be(capsys):
    assert run(["head"]) == 2
    assert capsys.readouterr().err == "Error: No such command 'head'. Did you mean 'heads'?\n"


# -- where it prints --


def printing(arguments: str, redirected: str, **environment: str) -> tuple[int, str, str]:
    """Exit code and both outputs of a command line whose streams go somewhere else."""
    call = f"{sys.executable} -m tda_bias {arguments} {redirected}"
    given = {
        "env": {**ENVIRONMENT, **environment},
        "capture_output": True,
        "text": True,
        "timeout": 300,
    }
    done = subprocess.run(call, shell=True, **given)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_one_line():
    status, _, error = printing("ls models", "> /dev/full")
    assert (status, error.count("\n")) == (2, 1)
    assert error.startswith("Error: cannot write to standard output: No space left on device")
    assert printing("show nowhere", "2> /dev/full") == (2, "", "")


def test_streams_may_be_closed_or_know_few_characters(tmp_path):
    assert printing("ls models", ">&- 2>&-") == (0, "", "")
    name = tmp_path / "\u2264"
    status, output, error = printing(f"ls runs --folder {name}", "", PYTHONIOENCODING="ascii")
    assert (status, output) == (2, "")
    assert "\\u2264 is no folder" in error


def test_what_a_message_quotes_sends_no_commands_to_the_terminal(tmp_path, capsys):
    assert run(["ls", "runs", "--folder", "a\nb\x1b[31m\x9b2J\u202ec"]) == 2
    error = capsys.readouterr().err
    assert r"`folder` a\nb\x1b[31m\x9b2J\u202ec is no folder" in error
    assert error.count("\n") == 1


# -- stopping --

# A command that works, keeps something, and waits to be stopped.
_WAITING = """
import time, tdabias_cli.run as work
from tda_bias.store.files import write_text
def hooked_model(self, name):
    if {kept}:
        write_text(self.kept / 'finished.npz', 'x')
    print('at work', flush=True)
    for _ in range(600):  # one long sleep would miss a signal that comes just before it
        time.sleep(0.1)
work.Work.hooked_model = hooked_model
"""


def skip_where_ignored(*names: str) -> None:
    """In the background of a shell some signals are ignored, and children inherit that."""
    for name in names:
        if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
            pytest.skip(f"{name} is ignored by the process that runs the tests")


def waiting(tiny_folder, out, before: str = "", *, kept: bool = True) -> subprocess.Popen:
    """The program at work, with or without something that is kept."""
    texts = ["-c", "gender", "--data", "starter", "--twins", "none", "--out", str(out)]
    code = f"{before}exec({_WAITING.format(kept=kept)!r})"
    return started("heads", "-m", str(tiny_folder), *texts, code=code)


@pytest.mark.parametrize(("name", "kept"), [("SIGINT", True), ("SIGHUP", False)])
def test_a_signal_ends_with_130_and_says_what_is_kept(tiny_folder, tmp_path, name, kept):
    skip_where_ignored(name)
    process = waiting(tiny_folder, tmp_path / "out", kept=kept)
    assert process.stdout.readline() == "at work\n"
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    said = f"Interrupted. 1 finished part is kept in {tmp_path / 'out' / 'groups'}; the same"
    promised = f"{said} command goes on."
    nothing = "Interrupted before a finished part was there: nothing is kept."
    assert errors == (promised if kept else nothing) + "\n"
    assert (tmp_path / "out").exists() == kept


def test_what_is_ignored_stays_ignored(tiny_folder, tmp_path):
    """As under nohup: a terminal that closes stops nothing."""
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    process = waiting(tiny_folder, tmp_path / "out", ignore)
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 130


def test_a_signal_that_a_library_turns_into_another_error_ends_with_130():
    """During the start; an import does it, as C extensions do."""
    skip_where_ignored("SIGTERM")
    module = "import os, signal, time\\nos.kill(os.getpid(), signal.SIGTERM)\\ntime.sleep(1)\\n"
    code = (
        "import builtins\n"
        "whole = builtins.__import__\n"
        "def stopped(name, *more):\n"
        "    if name == 'rich.console':\n"
        f"        try: exec('{module}')\n"
        "        except KeyboardInterrupt: raise ImportError('cannot load the extension')\n"
        "    return whole(name, *more)\n"
        "builtins.__import__ = stopped"
    )
    process = started("heads", "--help", code=code)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output, errors) == (130, "", "")


def test_an_error_that_nobody_asked_for_keeps_its_traceback():
    code = "import tdabias_cli.heads as h; h.texts = lambda settings: 1 / 0"
    process = started("heads", "-m", "x", "-c", "gender", code=code)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "ZeroDivisionError" in errors
