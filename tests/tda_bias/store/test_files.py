"""Files are whole or not there; the user's stay; one process at a time writes to a folder."""

import errno
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tda_bias.store.files import (
    arrays_from,
    atomic,
    locked,
    prepare_folder,
    staged,
    write_text,
)
from tda_bias.types import InputError


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# -- folders that cannot be used --


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write .*Not a directory|File exists"):
        prepare_folder(tmp_path / "file" / "out")


def test_a_full_disk_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match="No space left on device; free space or choose another"),
        atomic(tmp_path / "a.txt"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert listing(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 99])
def test_what_is_no_archive_of_arrays_is_refused(content):
    with pytest.raises(ValueError, match="no archive of arrays"):
        arrays_from(content)


def test_an_archive_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([{"b": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        arrays_from((tmp_path / "a.npz").read_bytes())


# -- whole or not there --


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    with atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "a.txt").exists()
    assert listing(tmp_path) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(KeyError), atomic(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
        raise KeyError
    assert (tmp_path / "a.txt").read_text() == "old"
    assert listing(tmp_path) == ["a.txt"]


# -- what a killed process leaves, and what is the user's --


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    killed = atomic(tmp_path / "groups" / "a.npz")
    killed.__enter__().write_text("half")
    stage = staged(tmp_path).__enter__()
    write_text(stage / "heads.csv", "half")
    write_text(tmp_path / "kept.txt", "whole")
    assert len(listing(tmp_path)) == 3
    prepare_folder(tmp_path)
    assert listing(tmp_path) == ["kept.txt"]
    assert not stage.exists()


def test_files_of_the_user_are_neither_deleted_nor_changed(tmp_path):
    mine = ["writable", ".unfinished-notes", ".unfinished-mine~x", ".unfinished-0123456~a"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    folder = tmp_path / ".unfinished-01234567~thesis"
    folder.mkdir()
    (folder / "chapter").write_text("mine")
    prepare_folder(tmp_path)
    assert all((tmp_path / name).read_text() == "mine" for name in mine)
    assert (folder / "chapter").read_text() == "mine"


# -- one process at a time --

HOLD = """
import sys, time
from tda_bias.store.files import locked
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


def test_the_same_process_may_hold_a_folder_several_times(tmp_path):
    with locked(tmp_path):
        with locked(tmp_path):
            pass
        assert (tmp_path / ".tdabias.holder").is_file()
    assert not (tmp_path / ".tdabias.holder").exists()


def test_other_folders_are_free(holder, tmp_path):
    with locked(tmp_path / "inside"):
        pass
