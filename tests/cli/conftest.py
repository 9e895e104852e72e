"""Runs that several commands follow."""

import pytest

from tdabias_cli.main import run
from tests.support.models import tiny_hf_model


@pytest.fixture(scope="session")
def words_folder(subwords, tmp_path_factory):
    """A tiny GPT-2 on disk whose tokenizer can spell every word."""
    folder = tmp_path_factory.mktemp("words") / "tiny"
    tiny_hf_model("gpt2", len(subwords), n_positions=512).save_pretrained(folder)
    subwords.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def heads(tiny_folder, tmp_path_factory):
    """A run of ``tdabias heads`` on four triples of each group; nobody changes it."""
    out = tmp_path_factory.mktemp("heads") / "run"
    command = ["heads", "--data", "starter", "--model", str(tiny_folder), "--category", "gender"]
    assert run([*command, "--n-permutations", "99", "-L", "4", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def reproduced(tiny_folder, tmp_path_factory):
    """A run of the head paper on a tiny model, with its page."""
    out = tmp_path_factory.mktemp("reproduce")
    more = ["--data", "starter", "--limit", "3", "--n-permutations", "99", "--out", str(out)]
    assert run(["reproduce", "--model", str(tiny_folder), *more]) == 0
    return out
