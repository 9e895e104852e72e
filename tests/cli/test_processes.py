"""One command in several processes: the same to the last digit, also where one of them dies."""

import re

import dask
import pytest
import torch

from tda_bias import HeadBias
from tdabias_cli.main import run
from tests.support.pairs import write_lines
from tests.support.processes import results


@pytest.fixture
def arguments(tiny_folder) -> list[str]:
    return [
        *("heads", "--model", str(tiny_folder), "--category", "gender", "--data", "starter"),
        *("--limit", "3", "--n-permutations", "99", "--device", "cpu"),
    ]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As many as every worker has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- bad input --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--shard auto", "`shard` auto is for a task of a Slurm array .* or of srun"),
        ("--shard 1/2 --cluster local:2", "shard and cluster share the work in two ways"),
        ("--cluster 2", "`cluster` must be local:N for .*, or the address of a Dask scheduler"),
        ("--cluster local:0", "`cluster` must be local:N"),
        ("--cluster tcp://127.0.0.1:9", "`cluster` tcp://127.0.0.1:9: no scheduler answers there"),
    ],
)
def test_what_cannot_be_shared_so_is_one_line(
    options, message, arguments, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tda_bias.store.cluster._PATIENCE_SECONDS", 0.5)
    out = tmp_path / "out"
    assert run([*arguments, *options.split(), "--out", str(out), "--quiet"]) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(f"Error: {message}.*\n", captured.err), captured.err
    assert captured.out == ""
    assert not out.exists()


def test_processes_of_a_launcher_are_told_what_to_type(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch("Error: .*WORLD_SIZE.* --cluster local:3, .* --shard auto\n", said), said
    # What leaves no run does no harm.
    assert run(["ls", "models"]) == 0


# -- arrays --


@pytest.mark.thorough
def test_an_array_from_0_gathers_to_the_same_also_with_random_weights(
    arguments, tmp_path, capsys, monkeypatch
):
    arguments = [*arguments, "--untrained"]
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    shared = [*arguments, "--out", str(tmp_path / "shared")]
    capsys.readouterr()
    array = {"MIN": "0", "MAX": "1", "STEP": "1", "COUNT": "2"}
    for name, value in array.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    for task in (1, 0):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        assert run([*shared, "--shard", "auto", "--quiet"]) == 0
        captured = capsys.readouterr()
        assert captured.err.startswith(f"Shard {task + 1}/2 is done.")
        assert captured.out == ""
        assert not (tmp_path / "shared" / "run.json").exists()
    # Slurm is read where that is asked for: an array over models is no array of shards.
    assert run([*shared, "--quiet"]) == 0
    for inside in (".", "untrained"):
        assert results(tmp_path / "shared" / inside) == results(tmp_path / "one" / inside)
    assert HeadBias.load(tmp_path / "shared").record.settings["shard"] is None


# -- clusters --


@pytest.mark.thorough
def test_a_worker_that_is_killed_costs_its_part_and_no_digit(
    arguments, workers, tmp_path, monkeypatch
):
    options = [*arguments, "--summary", "tests.support.processes:to_the_first", "--quiet"]
    assert run([*options, "--out", str(tmp_path / "one")]) == 0
    on_workers = ["--cluster", workers.scheduler_address]
    assert run([*options, "--out", str(tmp_path / "two"), *on_workers]) == 0
    assert workers.n_ended("to_the_first") == 1
    assert results(tmp_path / "two") == results(tmp_path / "one")


@pytest.mark.thorough
def test_workers_of_this_machine_need_no_scheduler(arguments, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert run([*arguments, "--out", str(tmp_path / "one"), "--quiet"]) == 0
    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}):  # its default
        assert run([*arguments, "--out", str(tmp_path / "two"), "--cluster", "local:1"]) == 0
    assert "cluster local:1" in capsys.readouterr().err
    assert results(tmp_path / "two") == results(tmp_path / "one")


SHARED = {
    "heads": [
        *("--category", "gender", "--data", "starter", "--limit", "3"),
        *("--n-permutations", "99"),
    ],
    "ablate": [
        *("--top", "1", "--n-permutations", "99", "--limit", "3", "--batch-size", "8"),
    ],
    "ablate --curve": [
        *("--rank-by", "effect,evidence", "--windows", "2", "--width", "32"),
        *("--most", "2", "--limit", "3"),
    ],
    "pairs": ["--pairs", "winobias", "--limit", "6"],
    "stereoset": ["--category", "all", "--data", "starter", "--limit", "3"],
    "sentences": ["--task", "intrasentence", "--category", "all"],
    "pvf score": ["--attribute", "pronouns", "--untrained"],
    "unqover": ["--class", "gender", "--subjects", "4", "--attributes", "3"],
    "debias": [
        *("--category", "gender", "--data", "starter", "--limit", "3", "--top", "2"),
        *("--rank-by", "effect,gates", "--n-random", "2", "--folds", "2"),
        *("--controls", "placebo,leace"),
        *("--epochs", "1", "--train-items", "8"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def commands(tiny_lm, tmp_path_factory):
    """The arguments of every command that is shared, without --out."""
    folder = tmp_path_factory.mktemp("shared")
    model = tiny_lm("gpt2")
    model.hf_model.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    sentences = [
        {
            "id": str(number), "target": ("girl", "boy")[number % 2], "bias_type": "gender",
            "context": f"Number {number} is BLANK", "stereotype": f"Number {number} is kind",
            "anti-stereotype": f"Number {number} is strong",
            "unrelated": f"Number {number} is rain",
        }
        for number in range(200)
    ]  # fmt: skip
    items = write_lines(folder, *sentences, name="items.jsonl")
    text = folder / "text.txt"
    text.write_text("\n\n".join(["The nurse said that he knew that she felt it."] * 900))
    of_model = ["--model", str(folder / "model"), "--device", "cpu", "--quiet"]
    made = {name: [*name.split(), *of_model, *own] for name, own in SHARED.items()}
    made["sentences"][:1] = ["stereoset", "--data", str(items)]
    made["debias"] += ["--text", str(text)]
    assert run([*made["heads"], "--out", str(folder / "run")]) == 0
    for name in ("ablate", "ablate --curve"):
        made[name] = [*name.split(), str(folder / "run"), "--quiet", *SHARED[name]]
    made["ablate --curve"] += ["--text", str(text)]
    return made


@pytest.fixture(scope="module")
def alone(commands, tmp_path_factory):
    """What every command leaves in one process."""
    folder = tmp_path_factory.mktemp("alone")
    for name, arguments in commands.items():
        assert run([*arguments, "--out", str(folder / name)]) == 0, name
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(SHARED))
def test_workers_of_a_cluster_give_the_same_to_the_last_digit(
    name, commands, alone, workers, tmp_path
):
    on_workers = ["--cluster", workers.scheduler_address]
    assert run([*commands[name], "--out", str(tmp_path), *on_workers]) == 0
    assert results(tmp_path) == results(alone / name)
    assert results(alone / name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(SHARED)[1:])
def test_shards_in_any_order_gather_to_the_same(name, commands, alone, tmp_path, capsys):
    shared = [*commands[name], "--out", str(tmp_path)]
    for index in (2, 1):
        assert run([*shared, "--shard", f"{index}/2"]) == 0
        assert f"Shard {index}/2 is done. When all are, the same" in capsys.readouterr().err
    assert not (tmp_path / "run.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(kept) >= 2
    assert run(shared) == 0
    assert results(tmp_path) == results(alone / name)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
