"""One process at a time writes to a folder; one that died does not hold it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tda_bias.runs.writing import locked
from tda_bias.types import InputError

HOLD = """
import sys, time
from tda_bias.runs.writing import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_told_who_holds_the_folder(holder, tmp_path):
    message = rf"{tmp_path} is being written by process {holder.pid} on .+ \(since 20.+\); wait"
    start = time.monotonic()
    with pytest.raises(InputError, match=message), locked(tmp_path):
        pass
    assert time.monotonic() - start < 5


def test_a_process_that_was_killed_holds_nothing(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        pass


def test_the_same_process_may_hold_a_folder_several_times(tmp_path):
    with locked(tmp_path):
        with locked(tmp_path):
            pass
        assert (tmp_path / ".tdabias.holder").is_file()
    assert not (tmp_path / ".tdabias.holder").exists()


def test_other_folders_are_free(holder, tmp_path):
    with locked(tmp_path / "inside"):
        pass


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    message = "cannot write .*Not a directory|File exists"
    with pytest.raises(InputError, match=message), locked(tmp_path / "file"):
        pass
