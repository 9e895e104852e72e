"""SIGKILL at any moment: the same command goes on, and its files are those of a run left alone."""

import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest

from tdabias_cli.main import run

# Twenty moments in all.
MOMENTS = {"heads": 14, "pvf": 6}
# What takes long to import is there before a process begins.
PRELOADED = ["tdabias_cli.main", "tda_bias.heads", "tda_bias.plots.heat_map", "transformer_lens"]


@pytest.fixture(scope="module")
def started():
    """Starts a command line in a process of its own, with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def start(arguments: list[str]):
        process = context.Process(target=run, args=(arguments,))
        process.start()
        return process

    return start


@pytest.fixture
def arguments(tiny_folder, tmp_path) -> dict[str, list[str]]:
    """Command lines by name, without where they write."""
    words = {"classes.yaml": "male: [man, boy]\nfemale: [woman, girl]\n", "x.txt": "nurse\ncook\n"}
    words["templates.csv"] = "template,count\nThe [X] was [Y],5\nThe [X] said [Y],3\n"
    for name, text in words.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    model = ["-m", str(tiny_folder), "--n-resamples", "100", "--quiet"]
    triples = [*model, "-c", "gender", "--data", "starter", "-L", "4", "--twins", "none"]
    sources = ["-a", "classes.yaml", "--words", "x.txt", "--templates", "templates.csv"]
    sources = [str(tmp_path / word) if "." in word else word for word in sources]
    return {
        "heads": ["heads", *triples, "--batch-size", "1", "--share-prefix", "never"],
        "pvf": ["pvf", *model, *sources],
    }


def hashes(folder: Path) -> dict[str, str]:
    """Of every file of a finished run, figures included."""
    files = json.loads((folder / "run.json").read_text(encoding="utf-8"))["files"]
    return {name: entry["hash"] for name, entry in files.items()}


@pytest.mark.slow
@pytest.mark.parametrize("command", MOMENTS)
def test_a_run_that_was_killed_at_any_moment_ends_with_the_same_files(
    command, started, arguments, tmp_path
):
    words = arguments[command]
    started([*words, "--out", str(tmp_path / "first")]).join()  # compiles for the first time
    begun = time.monotonic()
    started([*words, "--out", str(tmp_path / "whole")]).join()
    seconds = time.monotonic() - begun
    whole = hashes(tmp_path / "whole")
    assert whole
    rng, unfinished = np.random.default_rng(0), 0
    for number in range(MOMENTS[command]):
        out = tmp_path / str(number)
        process = started([*words, "--out", str(out)])
        process.join(seconds * (number + rng.random()) / MOMENTS[command])
        process.kill()
        process.join()
        unfinished += not (out / "run.json").exists()
        again = started([*words, "--out", str(out)])
        again.join(120)
        assert again.exitcode == 0
        assert hashes(out) == whole, number
        assert not list(out.rglob(".unfinished*"))
    assert unfinished
