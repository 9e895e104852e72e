"""A run is written whole: killed at any moment it is the old run, the new one, or none."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tda_bias.store import result
from tda_bias.store.files import prepare_folder
from tda_bias.store.result import adding_to_run, writing_run
from tda_bias.store.run import open_run
from tda_bias.types import InputError
from tests.support.runs import COLUMNS, record_of, table_of, write_run

FILES = ("a.csv", "b.parquet", "c.csv")


class KilledError(BaseException):
    """What ends a process between two files; no handler of errors sees it."""


def killed_after(monkeypatch, steps: int) -> None:
    """Let the process end after so many files were put in place."""
    done = []
    put = result.put_in_place

    def put_or_die(temporary, path):
        if len(done) == steps:
            raise KilledError
        done.append(path)
        put(temporary, path)

    monkeypatch.setattr(result, "put_in_place", put_or_die)


@pytest.mark.parametrize("steps", range(len(FILES) + 2))
def test_a_run_killed_between_two_files_is_never_read_as_finished(tmp_path, monkeypatch, steps):
    write_run(tmp_path, 1, 2, 3, files=FILES)
    killed_after(monkeypatch, steps)
    try:
        write_run(tmp_path, 7, 8, files=FILES)
    except KilledError:
        with pytest.raises(InputError, match="holds no finished run"):
            open_run(tmp_path)
        monkeypatch.undo()
        write_run(tmp_path, 7, 8, files=FILES)
    run = open_run(tmp_path)
    for name in FILES:
        pd.testing.assert_frame_equal(run.table(name, COLUMNS), table_of(7, 8))
    prepare_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "run.json"}


@pytest.mark.parametrize("steps", range(4))
def test_an_addition_killed_between_two_files_is_noticed_or_not_there(tmp_path, monkeypatch, steps):
    write_run(tmp_path, 1, 2, files=("a.csv",))
    with adding_to_run(tmp_path) as run:
        run.table("x.csv", table_of(1))
        run.table("y.csv", table_of(1))
    killed_after(monkeypatch, steps)
    try:
        with adding_to_run(tmp_path) as run:
            run.table("x.csv", table_of(2))
            run.table("y.csv", table_of(2))
    except KilledError:
        opened = open_run(tmp_path)
        pd.testing.assert_frame_equal(opened.table("a.csv", COLUMNS), table_of(1, 2))
        for name in ("x.csv", "y.csv"):
            try:
                pd.testing.assert_frame_equal(opened.table(name, COLUMNS), table_of(1))
            except InputError as error:
                assert "is not as the run wrote it" in str(error)  # noqa: PT017
    else:
        opened = open_run(tmp_path)
        for name in ("x.csv", "y.csv"):
            pd.testing.assert_frame_equal(opened.table(name, COLUMNS), table_of(2))


def test_a_run_that_cannot_be_made_leaves_the_old_one(tmp_path):
    write_run(tmp_path, 1, 2)
    with pytest.raises(ZeroDivisionError), writing_run(tmp_path, record_of()) as run:
        run.table("a.csv", table_of(9))
        raise ZeroDivisionError
    assert open_run(tmp_path).table("a.csv", COLUMNS)["n"].tolist() == [1, 2]
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "b.parquet", "run.json"}


def test_files_of_the_earlier_run_go_and_the_users_stay(tmp_path):
    write_run(tmp_path, 1, 2, files=("a.csv", "old.csv", "noted.csv"))
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "noted.csv").write_text("somebody wrote into it")
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "old.csv").write_text("a part")
    write_run(tmp_path, 3, files=("a.csv",))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.csv", "run.json", "mine.txt", "noted.csv", "groups"}
    assert list(open_run(tmp_path).record.files) == ["a.csv"]
    assert (tmp_path / "groups" / "old.csv").is_file()


def test_what_is_added_anew_replaces_what_was_added(tmp_path):
    write_run(tmp_path, 1, files=("a.csv",))
    for names in (("x.csv", "y.csv"), ("x.csv",)):
        with adding_to_run(tmp_path) as run:
            for name in names:
                run.table(name, table_of(len(names)))
    assert set(open_run(tmp_path).record.files) == {"a.csv", "x.csv"}
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "x.csv", "run.json"}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write"):
        write_run(tmp_path / "out")


@pytest.mark.parametrize("name", ["run.json", "a/b.csv", "../a.csv"])
def test_names_that_are_no_files_of_a_run_are_a_mistake_of_the_program(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be a file of a run"):
        write_run(tmp_path, files=(name,))


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        figure = Figure()
        figure.subplots().plot(np.arange(5), label="$a_1$")
        figure.legend()
        with writing_run(tmp_path / folder, record_of()) as run:
            run.figure("map", figure)
    for name in ("map.svg", "map.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert set(open_run(tmp_path / "a").record.files) == {"map.svg", "map.png"}
    assert b"<dc:date>" not in (tmp_path / "a" / "map.svg").read_bytes()
