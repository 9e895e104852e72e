"""SIGKILL at any moment: the same command goes on, and its files are those of a run left alone."""

import json
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tdabias_cli.main import run

pytestmark = pytest.mark.thorough

MOMENTS = {"heads": 2, "pvf": 2}
# What takes long to import is there before a process begins.
PRELOADED = [
    "accelerate", "numba", "torch._dynamo", "transformers.generation.utils",
    "transformers.models.gpt2.modeling_gpt2", "transformer_lens.model_bridge.sources.transformers",
    "tda_bias.heads.head_bias", "tda_bias.plots.heads", "tda_bias.topology.persistence",
    "pvf.plots", "pvf.report", "pvf.reading",
    "tdabias_cli.heads", "tdabias_cli.main", "tdabias_cli.pvf",
]  # fmt: skip


@pytest.fixture(scope="module")
def started():
    """Starts a command line in a process of its own, with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def start(arguments: list[str]):
        process = context.Process(target=run, args=(arguments,))
        process.start()
        return process

    with pytest.MonkeyPatch.context() as patch:
        # Threads of a tiny model wait for each other more than they work.
        patch.setenv("OMP_NUM_THREADS", "1")
        start(["--version"]).join()
        yield start


@pytest.fixture
def arguments(tiny_folder, tmp_path) -> dict[str, list[str]]:
    """Command lines by name, without where they write."""
    words = {"classes.yaml": "male: [man, boy]\nfemale: [woman, girl]\n", "x.txt": "nurse\ncook\n"}
    words["templates.csv"] = "template,count\nThe [X] was [Y],5\nThe [X] said [Y],3\n"
    for name, text in words.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    model = ["-m", str(tiny_folder), "--quiet"]
    triples = "--n-permutations 100 -c gender --data starter -L 4 --twins none --batch-size 1"
    sources = f"-a {tmp_path}/classes.yaml --words {tmp_path}/x.txt"
    return {
        "heads": ["heads", *model, *triples.split()],
        "pvf": ["pvf", *model, *sources.split(), "--templates", f"{tmp_path}/templates.csv"],
    }


def hashes(folder: Path) -> dict[str, str]:
    """Of every file of a finished run, figures included."""
    files = json.loads((folder / "run.json").read_text(encoding="utf-8"))["files"]
    return {name: entry["hash"] for name, entry in files.items()}


def n_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def killed_and_gone_on(start, words: list[str], folder: Path, moments: int) -> None:
    """Kill a command after so many numbers of written files, and compare what it then leaves.

    Files are counted, not seconds: how fast a machine is changes from one moment to the next.

    Raises:
        AssertionError: if the same command, gone on, leaves other files than one left alone.
    """
    start([*words, "--out", str(folder / "whole")]).join()
    whole = hashes(folder / "whole")
    assert whole
    rng, unfinished = np.random.default_rng(0), 0
    for number in range(moments):
        out = folder / str(number)
        process = start([*words, "--out", str(out)])
        enough = len(whole) * (number + rng.random()) / moments
        while process.is_alive() and n_files(out) < enough:
            time.sleep(0.005)
        process.kill()
        process.join()
        unfinished += not (out / "run.json").exists() or hashes(out) != whole
        again = start([*words, "--out", str(out)])
        again.join(120)
        assert again.exitcode == 0
        assert hashes(out) == whole, number
        assert not list(out.rglob(".unfinished*"))
    assert unfinished


@pytest.mark.slow
def test_runs_that_were_killed_at_any_moment_end_with_the_same_files(started, arguments, tmp_path):
    with ThreadPoolExecutor(len(MOMENTS)) as together:
        tasks = [
            together.submit(
                killed_and_gone_on, started, words, tmp_path / command, MOMENTS[command]
            )
            for command, words in arguments.items()
        ]
    for task in tasks:
        task.result()
