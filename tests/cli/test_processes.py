"""One command in several processes: the same to the last digit, and one line where one dies."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tda_bias import HeadBias
from tda_bias.records.work import ALONE, Shard, ShareDone
from tdabias_cli.main import run
from tdabias_cli.processes import Processes, launched

COMMAND = "from tdabias_cli.main import main; main()"
# A process that dies as soon as it has something to compute.
DYING = (
    "import os, tda_bias.heads as heads; heads.computed_group = lambda *_: os.kill(os.getpid(), 9);"
)


@pytest.fixture
def arguments(tiny_folder) -> list[str]:
    return [
        *("heads", "--model", str(tiny_folder), "--category", "gender", "--data", "starter"),
        *("--limit", "3", "--n-resamples", "99", "--device", "cpu"),
    ]


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.csv"))}


def launch(
    arguments: list[str], count: int, *, dying: int | None = None
) -> list[subprocess.CompletedProcess]:
    """The same command in several processes, as a launcher starts it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    running = []
    for rank in range(count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
        environment = {**os.environ, **{k: str(v) for k, v in place.items()}}
        environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        code = (DYING if rank == dying else "") + COMMAND
        running.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", code, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    found = []
    for process in running:
        out, error = process.communicate(timeout=300)
        found.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    return found


# -- bad input --


@pytest.mark.parametrize("value", ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"])
def test_a_shard_that_cannot_be_is_one_line(arguments, tmp_path, capsys, value):
    assert run([*arguments, "--out", str(tmp_path), f"--shard={value}"]) == 2
    assert "`shard` must be i/n with i from 1 to n, as in 2/8" in capsys.readouterr().err


def test_a_shard_does_not_delete_what_others_made(arguments, tmp_path, capsys):
    assert run([*arguments, "--out", str(tmp_path), "--shard", "1/2", "--no-resume"]) == 2
    assert "shard cannot go with --no-resume" in capsys.readouterr().err


def test_processes_of_a_launcher_take_no_shard(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run([*arguments, "--out", str(tmp_path), "--shard", "1/2"]) == 2
    assert capsys.readouterr().err.startswith("Process 1 of 2: Error: --shard is for commands")


# -- a launcher's processes --


def test_nobody_launched_is_one_process_and_so_is_what_makes_no_sense(monkeypatch):
    for rank, size, expected in (("1", "3", (1, 3)), ("3", "3", (0, 1)), ("x", "2", (0, 1))):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        assert launched() == expected


def test_only_the_first_process_runs_what_is_not_shared(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["ls", "models"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_processes_gives_the_same_to_the_last_digit(
    arguments, count, tmp_path, capsys
):
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    found = launch([*arguments, "--out", str(tmp_path / "several")], count)
    assert [process.returncode for process in found] == [0] * count, found
    assert tables(tmp_path / "several") == tables(tmp_path / "one")
    assert len(tables(tmp_path / "one")) > 1
    assert "heads ranked by" in found[0].stdout
    assert [(p.stdout, p.stderr) for p in found[1:]] == [("", "")] * (count - 1)


def test_when_a_process_dies_the_others_say_so_in_one_line_and_the_same_command_goes_on(
    arguments, tmp_path
):
    out = ["--out", str(tmp_path / "several"), "--quiet"]
    first, second, died = launch([*arguments, *out], 3, dying=2)
    assert died.returncode == -9
    for number, process in enumerate((first, second), start=1):
        assert process.returncode == 2
        lines = process.stderr.strip().splitlines()
        assert len(lines) == 1, process.stderr
        assert lines[0].startswith(f"Process {number} of 3: Error: another of the 3 processes has")
        assert lines[0].endswith("finished parts are kept, the same command goes on")
        assert process.stdout == ""
    kept = len(list((tmp_path / "several" / "groups").glob("*.npz")))
    assert 0 < kept < 4
    assert run([*arguments, *out]) == 0
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    assert tables(tmp_path / "several") == tables(tmp_path / "one")


# -- shards --


def test_shards_of_heads_gather_to_the_same_also_with_random_weights(arguments, tmp_path, capsys):
    arguments = [*arguments, "--untrained"]
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    shared = [*arguments, "--out", str(tmp_path / "shared")]
    capsys.readouterr()
    for index in (2, 1):
        assert run([*shared, "--shard", f"{index}/2", "--quiet"]) == 0
        captured = capsys.readouterr()
        assert captured.err.startswith(f"Shard {index}/2 is done.")
        assert captured.out == ""
        assert not (tmp_path / "shared" / "run.json").exists()
    assert run([*shared, "--quiet"]) == 0
    for inside in (".", "untrained"):
        assert tables(tmp_path / "shared" / inside) == tables(tmp_path / "one" / inside)
    assert HeadBias.load(tmp_path / "shared").record.settings["shard"] is None


SHARED = {
    "pvf": ["pvf", "--attribute", "pronouns", "--n-resamples", "100"],
    "pvf score": ["pvf", "score", "--attribute", "pronouns", "--untrained"],
    "stereoset": ["stereoset", "--category", "all", "--data", "starter"],
    "unqover": ["unqover", "--class", "gender", "--subjects", "4", "--attributes", "3"],
}


@pytest.mark.parametrize("name", SHARED)
def test_shards_of_other_commands_gather_to_the_same(name, tiny_lm, tmp_path, capsys):
    model = tiny_lm("gpt2")
    model.hf_model.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    arguments = [*SHARED[name], "--model", str(tmp_path / "model"), "--device", "cpu", "--quiet"]
    assert run([*arguments, "--out", str(tmp_path / "one")]) == 0
    shared = [*arguments, "--out", str(tmp_path / "shared")]
    for index in (1, 2):
        assert run([*shared, "--shard", f"{index}/2"]) == 0
        assert capsys.readouterr().err.strip().startswith(f"Shard {index}/2 is done.")
    assert len(list((tmp_path / "shared").glob("**/parts/*.npz"))) >= 2
    assert run(shared) == 0
    assert tables(tmp_path / "shared") == tables(tmp_path / "one")


def test_a_process_that_only_shares_ends_when_the_others_are_done():
    assert ALONE.done() is None
    with pytest.raises(ShareDone):
        Shard(1, 2).done()
    assert Processes(1, 2).count == 2
