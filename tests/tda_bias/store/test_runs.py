"""Finished runs: every file is checked, none is taken for another's, none is written over."""

import shutil

import numpy as np
import pandas as pd
import pytest

from tda_bias.heads.result import HeadsRecord
from tda_bias.store.record import DataRecord
from tda_bias.store.result import adding_to_run, writing_run
from tda_bias.store.run import (
    content_hash,
    open_run,
    refuse_file_of_a_run,
    refuse_other_run,
    with_parts,
)
from tda_bias.types import InputError
from tests.support.runs import COLUMNS, record_of, table_of, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


# -- what cannot be read --


def test_a_folder_without_a_run_is_one_line(tmp_path):
    with pytest.raises(InputError, match="holds no finished run of `tdabias heads`$"):
        open_run(tmp_path, "heads")
    with pytest.raises(InputError, match="holds no finished run; `tdabias ls runs` lists"):
        open_run(tmp_path / "nowhere")


def test_a_run_of_another_command_is_one_line(folder):
    with pytest.raises(
        InputError, match="is a run of `tdabias stereoset`, not of `tdabias pvf` or `tdabias heads`"
    ):
        open_run(folder, "pvf", "heads")


def test_an_entry_that_the_command_needs_is_named(folder):
    with pytest.raises(
        InputError, match=r"run/run.json: `model.dtype`: input should be a valid string"
    ):
        open_run(folder).record_as(HeadsRecord)


@pytest.mark.parametrize("name", ["a.csv", "b.parquet"])
def test_every_flipped_bit_of_a_table_is_noticed(folder, name):
    run, path = open_run(folder), folder / name
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{name} is not as the run wrote it.*run the same"):
            run.table(name, COLUMNS)


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "folder", "swapped"])
def test_a_damaged_file_is_named_with_the_way_out(folder, damage):
    path = folder / "a.csv"
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-8])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "swapped":
            path.write_bytes(
                write_run(folder.parent / "other", 7, 8, 9).joinpath("a.csv").read_bytes()
            )
    with pytest.raises(
        InputError, match="a.csv .*; run the same `tdabias stereoset` command again"
    ):
        open_run(folder).table("a.csv", COLUMNS)


def test_a_file_that_is_not_the_runs_is_not_read(folder):
    (folder / "c.csv").write_bytes((folder / "a.csv").read_bytes())
    run = open_run(folder)
    assert not run.has("c.csv")
    with pytest.raises(InputError, match="has no c.csv; run the same"):
        run.table("c.csv", COLUMNS)


def test_a_table_may_have_other_columns_than_are_asked_for_and_texts_stay_texts(tmp_path):
    table = pd.DataFrame({"x": ["007", "1e3"], "r": [0.5, 0.25]})
    with writing_run(tmp_path, record_of()) as run:
        run.table("words.csv", table)
        run.table("words.parquet", table)
    run = open_run(tmp_path)
    pd.testing.assert_frame_equal(run.table("words.csv", {"x": str}), table)
    pd.testing.assert_frame_equal(run.table("words.parquet"), table)


def test_arrays_and_json_are_checked_too(tmp_path):
    with writing_run(tmp_path, record_of()) as run:
        run.arrays("x.npz", {"a": np.arange(3)})
        run.json("y.json", {"a": 1})
    run = open_run(tmp_path)
    assert run.arrays("x.npz")["a"].tolist() == [0, 1, 2]
    assert run.json("y.json") == {"a": 1}
    (tmp_path / "y.json").write_text('{"a": 2}')
    with pytest.raises(InputError, match="y.json is not as the run wrote it"):
        run.json("y.json")


# -- what a run is --


def test_a_run_is_read_as_it_was_written(folder):
    run = open_run(folder, "stereoset")
    for name in ("a.csv", "b.parquet"):
        pd.testing.assert_frame_equal(run.table(name, COLUMNS), table_of(1, 2, 3))
    assert (run.command, run.model) == ("stereoset", "tiny")
    assert set(run.record.files) == {"a.csv", "b.parquet"}


def test_content_is_that_of_the_tables_whenever_they_were_written(tmp_path):
    first = open_run(write_run(tmp_path / "a", created="yesterday"))
    again = open_run(write_run(tmp_path / "b", created="today"))
    other = open_run(write_run(tmp_path / "c", 1, 2, 4))
    assert content_hash(first.record) == content_hash(again.record) != content_hash(other.record)
    assert first.id != again.id
    with adding_to_run(tmp_path / "a") as run:
        run.table("later.csv", table_of(5))
    assert content_hash(open_run(tmp_path / "a").record) == content_hash(first.record)
    assert content_hash(record_of()) is None


# -- runs inside runs --


def test_inner_runs_of_other_results_are_left_out(tmp_path):
    heads = write_run(tmp_path / "heads", command="heads")
    content = content_hash(open_run(heads).record)
    write_run(heads / "ablate", command="ablate", made_from={"heads": content})
    write_run(heads / "crossref", command="crossref", made_from={"heads": "another"})
    assert [run.command for run in with_parts([heads])] == ["heads", "ablate"]
    write_run(heads, 7, 8, command="heads")  # another model or data into the same folder
    assert [run.command for run in with_parts([heads])] == ["heads"]


def test_a_folder_of_runs_stands_for_the_runs_inside_it(tmp_path):
    """Those that several models of one command, or a whole folder of results, leave."""
    for name in ("several/one", "several/two", "other"):
        write_run(tmp_path / "runs" / name, command="heads")
    heads = tmp_path / "runs" / "other"
    content = content_hash(open_run(heads).record)
    write_run(heads / "ablate", command="ablate", made_from={"heads": content})
    write_run(heads / "ablate-random", command="heads", made_from={"heads": "another"})
    found = [str(run.folder.relative_to(tmp_path / "runs")) for run in with_parts([tmp_path])]
    assert found == ["other", "several/one", "several/two", "other/ablate"]
    assert len(with_parts([tmp_path / "runs", heads])) == 4  # each once


def test_of_several_folders_those_that_cannot_be_read_are_said(tmp_path):
    good, damaged, empty = (tmp_path / name for name in ("good", "damaged", "empty"))
    write_run(good)
    empty.mkdir()
    write_run(damaged)
    (damaged / "run.json").write_text("{")
    said = []
    assert [run.folder for run in with_parts([good, damaged, empty], left_out=said.append)] == [
        good
    ]
    assert [line.split(" ")[0] for line in said] == [str(damaged / "run.json"), str(empty)]
    with pytest.raises(InputError, match="is not JSON"):
        with_parts([damaged, empty], left_out=said.append)
    with pytest.raises(InputError, match="missing holds no finished run"):
        with_parts([good, tmp_path / "missing"], left_out=said.append)
    with pytest.raises(InputError, match="is not JSON"):
        with_parts([good, damaged])


# -- what is not written over --

SETTINGS = {"category": "gender", "seed": 0, "group": ("girl",)}
DATA = DataRecord(source="d.jsonl", revision="1")


@pytest.fixture
def finished(tmp_path):
    return write_run(tmp_path / "run", settings=SETTINGS, data=DATA)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {**SETTINGS, "seed": 1}}, "other settings .seed was 0, now 1."),
        ({"settings": {**SETTINGS, "limit": 3}}, "limit was None, now 3"),
        ({"data": DataRecord(source="d.jsonl", revision="2")}, "other data"),
        ({"weights": "v"}, "other weights"),
        ({"command": "heads"}, "holds a finished run of `tdabias stereoset`;"),
    ],
)
def test_a_finished_run_of_something_else_is_not_written_over(finished, changes, message):
    arguments = {"command": "stereoset", "settings": SETTINGS, "data": DATA, **changes}
    with pytest.raises(InputError, match=f"{message}.*choose another --out, or .*--overwrite"):
        refuse_other_run(finished, **arguments)
    refuse_other_run(finished, **arguments, overwrite=True)


def test_the_same_run_may_be_repeated(finished, tmp_path):
    refuse_other_run(finished, "stereoset", settings=SETTINGS, data=DATA, weights="w")
    refuse_other_run(tmp_path / "nowhere", "heads", settings=SETTINGS)


def test_a_record_that_cannot_be_read_is_not_written_over_either(finished):
    (finished / "run.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON.*to write there, choose another --out, or"):
        refuse_other_run(finished, "stereoset", settings=SETTINGS)
    refuse_other_run(finished, "stereoset", settings=SETTINGS, overwrite=True)


def test_a_file_of_a_run_is_not_written_over(folder):
    (folder / "parts").mkdir()
    part = folder / "parts" / "girl.npz"
    part.write_bytes(b"x")
    for path in (folder / "run.json", folder / "a.csv", part):
        with pytest.raises(InputError, match="`--to` .* is a file of the run there; choose"):
            refuse_file_of_a_run(path, setting="--to")
    (folder / "run.json").write_text("{")
    with pytest.raises(InputError, match="`--to` .* is a file of the run there; choose"):
        refuse_file_of_a_run(folder / "a.csv", setting="--to")


@pytest.mark.parametrize("path", ["", ".", "run"])
def test_a_folder_is_no_file(folder, path, monkeypatch):
    from pathlib import Path

    monkeypatch.chdir(folder.parent)
    with pytest.raises(InputError, match="`--to` must name a file; got"):
        refuse_file_of_a_run(Path(path), setting="--to")


def test_other_files_may_be_written_also_into_the_folder_of_a_run(folder):
    (folder / "heads.json").write_text("{}")
    for name in ("heads.json", "new.json"):
        refuse_file_of_a_run(folder / name, setting="--to")
    shutil.rmtree(folder)
    refuse_file_of_a_run(folder.parent / "run.json", setting="--to")
