"""A disk that is full or fails, and a home folder that is not there."""

import builtins
import errno
import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tdabias_cli.main import run

pytestmark = pytest.mark.thorough


class Disk:
    """What is done to files below a folder: counted, or refused at one of the calls.

    Attributes:
        below: The folder.
        calls: So far.
        fails_at: The number of the call that is refused, from 0; None for none.
        reading: Whether reading counts too.
    """

    def __init__(self, below: Path) -> None:
        self.below, self.calls = below, 0
        self.fails_at: int | None = None
        self.reading = False
        self.reason = errno.ENOSPC

    def touched(self, path) -> None:
        if isinstance(path, int) or not str(path).startswith(str(self.below)):
            return
        self.calls += 1
        if self.calls - 1 == self.fails_at:
            raise OSError(self.reason, os.strerror(self.reason), str(path))

    @contextmanager
    def failing(self, at: int | None, reason: int = errno.ENOSPC):
        self.calls, self.fails_at, self.reason = 0, at, reason
        yield
        self.fails_at = None


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Every place where Python's own functions write below the test's folder."""
    found = Disk(tmp_path)
    opening, replacing, making = io.open, os.replace, os.mkdir

    def opened(file, mode="r", *args, **options):
        if found.reading or set("wax+") & set(mode):
            found.touched(file)
        return opening(file, mode, *args, **options)

    def replaced(source, target, **options):
        found.touched(target)
        return replacing(source, target, **options)

    def made(path, *args, **options):
        if not os.path.isdir(path):
            found.touched(path)
        return making(path, *args, **options)

    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "mkdir", made)
    return found


@pytest.fixture
def words(tiny_folder):
    def of(out: Path) -> list[str]:
        texts = ["--data", "starter", "-c", "gender", "-L", "4", "--twins", "none"]
        more = ["--n-permutations", "99", "--quiet", "--out", str(out)]
        return ["heads", "-m", str(tiny_folder), *texts, *more]

    return of


def hashes(folder: Path) -> dict[str, str]:
    files = json.loads((folder / "run.json").read_text(encoding="utf-8"))["files"]
    return {name: entry["hash"] for name, entry in files.items()}


def test_whatever_write_a_full_disk_refuses_is_one_line_and_the_same_command_goes_on(
    disk, words, tmp_path, capsys
):
    with disk.failing(None):
        assert run(words(tmp_path / "whole")) == 0
        number = disk.calls
    assert number > 20
    whole = hashes(tmp_path / "whole")
    out = tmp_path / "out"
    for at in range(0, number, max(1, number // 5)):
        with disk.failing(at):
            status = run(words(out))
        error = capsys.readouterr().err
        if status == 2:
            assert error.startswith("Error: cannot write "), (at, error)
            assert "No space left on device" in error
            assert error.count("\n") == 1
        if (out / "run.json").exists():
            assert hashes(out) == whole, at
        assert status == 2 or (out / "run.json").exists(), at
        assert not [path for path in out.rglob(".unfinished*") if path.is_file()], at
    assert run(words(out)) == 0
    assert hashes(out) == whole


def test_a_file_that_the_disk_does_not_give_back_is_one_line(disk, words, tmp_path, capsys):
    assert run(words(tmp_path / "run")) == 0
    disk.reading = True
    folder = str(tmp_path / "run")
    for command in (
        ["show", folder],
        ["edit", folder, "--as", "slices", "--out", str(tmp_path / "x.json")],
    ):
        with disk.failing(None):
            assert run(command) == 0
            number = disk.calls
        assert number > 4
        capsys.readouterr()
        for at in range(0, number, 2):
            with disk.failing(at, errno.EIO):
                status = run(command)
            error = capsys.readouterr().err
            assert status == 2, (command, at)
            said = [line for line in error.splitlines() if not line.startswith("loading ")]
            assert len(said) == 1
            assert said[0].startswith("Error: "), error


def test_a_home_folder_that_cannot_be_made_ends_no_run(words, tmp_path):
    """A path below /proc is none that anybody can make, not even root."""
    if not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    nowhere = "/proc/nowhere"
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME")
    environment = {**os.environ, **dict.fromkeys(names, nowhere)}
    environment.pop("MPLCONFIGDIR", None)
    code = "import sys; from tdabias_cli.main import main; main()"
    call = [sys.executable, "-c", code]
    done = subprocess.run(
        [*call, *words(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")  # matplotlib has no folder for its fonts either
