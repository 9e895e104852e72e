"""Files are whole or not there; the user's stay; one process at a time writes to a folder."""

import csv
import errno
import io
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tda_bias.store.files import (
    arrays_from,
    atomic,
    csv_objects,
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


# -- CSV, read strictly --

HEADING = "id,more,less\n"
SHE, HE = "1,She sang.,He sang.\n", "2,She ran.,He ran.\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,more,less,more\n" + SHE, "t line 1: the column `more` stands twice; give each a name"),
        (HEADING + '1,She sang.,"He sang.\n' + HE, "line 2: a quotation mark .* nothing closes"),
        (HEADING + SHE + '2,x,"He ran.\u201d\n3,a,b\n', "line 3: a quotation mark .* nothing clo"),
        (HEADING + SHE + '2,"She ran.,b\n3,"x",y\n', "line 3: a field that begins with .* goes on"),
        (
            HEADING + SHE + '2,a,"He\n3,c,He is 6"\n',
            "line 3: .* takes line 4, which looks like a row, into",
        ),
        (
            HEADING + SHE + '2,a,"He\n3,c,d\n4,e", f\n',
            "line 3: .* takes line 4, which looks like a row",
        ),
        (HEADING + '"a\n1,b,c\nd",e,f\n', "line 2: .* takes line 3, which looks like a row, into"),
        (
            HEADING + '1,"Go on" she said.,b\n',
            'line 2: .* goes on .* inside a field twice \\(""\\)',
        ),
        (HEADING + '1,a,"' + "b" * 200_000 + '"\n', "line 2: a field of more than 131,072 charac"),
        (HEADING + '1,"a\nb",c\n2,d\n', "line 4: 2 fields, where the heading has 3; a field that"),
        (HEADING + SHE + "2,She, too, ran.,He\n", "line 3: 5 fields, where the heading has 3"),
        ("id;more;less\n", "t has no column `id`; it needs id, more, less, separated by ',', not"),
        ("", "t has no column `id`; it needs id, more, less$"),
    ],
)
def test_a_csv_that_is_not_read_as_it_was_meant_is_refused_by_its_line(text, message):
    with pytest.raises(InputError, match=message):
        list(csv_objects(text, "t", columns=("id", "more", "less")))


@pytest.mark.parametrize("cut", [",", '"', "\n", "x"])
def test_a_csv_that_lacks_any_mark_is_refused_or_keeps_its_rows(cut):
    rows = [{"id": str(n), "more": f'"x" said she {n}, late', "less": "he\nx"} for n in range(4)]
    file = io.StringIO()
    table = csv.DictWriter(file, HEADING.strip().split(","), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    whole = file.getvalue()
    assert [row for _, row in csv_objects(whole, "t")] == rows
    for place in (n for n, character in enumerate(whole) if character == cut and n > len(HEADING)):
        with suppress(InputError):
            assert len(list(csv_objects(whole[:place] + whole[place + 1 :], "t"))) >= len(rows)


def test_rows_of_csv_stand_where_they_begin_with_their_quotation_marks():
    text = (
        HEADING + '1,"She said ""no"", and sang",b\n\n2,"two\nlines of text","c"\n3,"", 6" long\n'
    )
    assert list(csv_objects(text, "t", columns=("more",))) == [
        ("t line 2", {"id": "1", "more": 'She said "no", and sang', "less": "b"}),
        ("t line 4", {"id": "2", "more": "two\nlines of text", "less": "c"}),
        ("t line 6", {"id": "3", "more": "", "less": ' 6" long'}),
    ]
    ends_in_first = 'text,a,b\n"one\ntwo",1,2\n'
    assert [row["text"] for _, row in csv_objects(ends_in_first, "t")] == ["one\ntwo"]


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
