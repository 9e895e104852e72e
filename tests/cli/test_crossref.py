import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tda_bias import HeadBias, HeadBiasConfig, head_bias
from tda_bias.config import CrossrefConfig
from tda_bias.paper.rankings import PublishedAgreement, published_agreement
from tda_bias.store.record import RunRecord
from tda_bias.store.result import writing_run
from tdabias_cli.main import run
from tests.support.runs import file_names


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """Runs of one tiny model on starter triples: heads, StereoSet's scores; made-up risks."""
    base = tmp_path_factory.mktemp("runs")
    data = ["--data", "starter", "--model", str(tiny_folder), "--category", "profession"]
    assert run(["heads", *data, "--n-permutations", "99", "--out", str(base / "heads")]) == 0
    assert run(["stereoset", *data, "--out", str(base / "stereoset")]) == 0
    gender = [*data[:-1], "gender", "--out", str(base / "gender")]
    assert run(["stereoset", *gender]) == 0
    record = json.loads((base / "heads" / "run.json").read_text())
    targets = pd.read_csv(base / "heads" / "groups.csv")["group"]
    write_risks(base / "pvf", record["model"], list(targets))
    return base


def write_risks(folder: Path, model: dict, words: list[str]) -> None:
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"x": words, "toward": "male"})
    for name in ("r", "r_p", "r_v", "s_male", "s_female"):
        table[name] = generator.uniform(size=len(words))
    with writing_run(folder, RunRecord(command="pvf", model=model)) as run:
        run.table("by_x.csv", table)


def test_a_join_is_printed_and_saved(runs, tmp_path, capsys):
    command = ["crossref", str(runs / "heads"), str(runs / "pvf"), "--n-permutations", "99"]
    assert (
        run([*command, "--stereoset", str(runs / "stereoset"), "--out", str(tmp_path), "--verbose"])
        == 0
    )
    printed = capsys.readouterr().out
    for text in ("4 targets (own 4)", "POWER    |rho| must reach", "heads shuffled", "Partial"):
        assert text in printed
    names = file_names(tmp_path)
    assert {"targets.csv", "correlations.csv", "head_map.csv", "targets.png", "run.json"} <= names
    assert "targets.svg" in names
    found = pd.read_csv(tmp_path / "correlations.csv")
    assert {"log_odds", "abs_log_odds"} <= set(found["summary"])
    assert {"r", "s_male", "log_odds", "abs_beta"} <= set(found["quantity"])


def test_what_cannot_be_joined_is_one_line(runs, tmp_path, capsys):
    heads = str(runs / "heads")
    model = json.loads((runs / "heads" / "run.json").read_text())["model"]
    write_risks(tmp_path / "other", {**model, "weights": "else"}, ["nurse"] * 4)
    write_risks(tmp_path / "few", model, ["nurse", "zookeeper"])
    for folder, message in (
        (tmp_path / "other", "models with different weights"),
        (tmp_path / "few", "common targets, 4 are needed"),
    ):
        assert run(["crossref", heads, str(folder), "--out", str(tmp_path / "o")]) == 2
        assert message in capsys.readouterr().err
    few = [heads, str(runs / "gender"), "--items", "--out", str(tmp_path / "o")]
    assert run(["crossref", *few]) == 2
    assert "share 0 items of profession, 10 are needed" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


# -- item by item ----------------------------------------------------------------------------------


def test_items_are_compared_in_three_ways(runs, tmp_path, capsys):
    command = ["crossref", str(runs / "heads"), str(runs / "stereoset"), "--items"]
    options = ["--n-permutations", "99", "--out", str(tmp_path)]
    assert run([*command, *options]) == 0
    printed = capsys.readouterr().out
    for text in ("as they are", "less length", "less twins", "Profession: with"):
        assert text in printed
    table = [line for line in printed.splitlines() if line.startswith(("│ as they", "│ less"))]
    assert len(table) == 12
    assert all(re.search(r" L\d+H\d+ │$", line) for line in table)  # no column is cut off
    assert file_names(tmp_path) == {"heads.csv", "summary.csv", "run.json"}
    heads = pd.read_csv(tmp_path / "heads.csv")
    assert set(heads["way"]) == {"raw", "length", "twins"}
    assert len(heads) == 3 * 2 * 2 * 8  # ways, measures, dimensions, heads
    record = json.loads((tmp_path / "run.json").read_text())
    assert set(record["made_from"]) == {"heads", "stereoset"}
    assert record["left_out"] == {"profession": 0}


# -- published rankings ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads(tiny, gender, tmp_path_factory):
    """A model with as many heads as GPT-2."""
    model = tiny("gpt2", n_layer=12, n_head=12, n_embd=48)
    folder = tmp_path_factory.mktemp("runs") / "heads"
    config = HeadBiasConfig(n_permutations=99)
    head_bias(model, gender[:3] + gender[-3:], twins=None, config=config).save(folder)
    return folder


def test_a_map_stands_beside_every_published_ranking(heads, capsys):
    command = ["crossref", str(heads), "--published", "gpt2", "--n-permutations", "99"]
    assert run(command) == 0
    printed = capsys.readouterr().out
    for text in (
        "evidence beside published rankings of gpt2", "mediation,",
        "of top 10 (chance)", "The run's model is called tiny-gpt2",
    ):  # fmt: skip
        assert text in printed
    found = PublishedAgreement.load(heads / "published-gpt2").agreement
    expected = published_agreement(
        HeadBias.load(heads), "gpt2", config=CrossrefConfig(n_permutations=99)
    ).agreement
    assert found["spearman"].tolist() == pytest.approx(expected["spearman"].tolist())
    assert found["p"].tolist() == expected["p"].tolist()
    assert run([*command, "--rank-by", "relative", "--overwrite", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["agreement"]
    assert {row["first"] for row in rows} == {"relative"}
    assert run(["show", str(heads / "published-gpt2")]) == 0
    assert "relative beside published rankings" in capsys.readouterr().out


def test_another_run_of_heads_is_not_written_over_and_the_same_one_may_be_elsewhere(
    runs, tmp_path, capsys
):
    few, out = ["--n-permutations", "99"], ["--out", str(tmp_path / "out")]
    assert run(["crossref", str(runs / "heads"), str(runs / "pvf"), *few, *out]) == 0
    moved = shutil.copytree(runs / "heads", tmp_path / "moved")
    assert run(["crossref", str(moved), str(runs / "pvf"), *few, *out]) == 0
    other = ["heads", "--data", "starter", "--category", "profession", "--twins", "none"]
    model = json.loads((runs / "heads" / "run.json").read_text())["settings"]["model"]
    other += ["--model", model, "--n-permutations", "99", "--out", str(tmp_path / "other")]
    assert run(other) == 0
    capsys.readouterr()
    assert run(["crossref", str(tmp_path / "other"), str(runs / "pvf"), *few, *out]) == 2
    assert "other settings (other data)" in capsys.readouterr().err
