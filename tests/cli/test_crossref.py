import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tdabias_cli.main import run
from tests.support.preferences import made_up


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """Runs of one tiny model on starter triples: heads, StereoSet's scores; made-up risks."""
    base = tmp_path_factory.mktemp("runs")
    data = ["--data", "starter", "--model", str(tiny_folder), "--category", "profession"]
    assert run(["heads", *data, "--n-resamples", "99", "--out", str(base / "heads")]) == 0
    assert run(["stereoset", *data, "--out", str(base / "stereoset")]) == 0
    record = json.loads((base / "heads" / "run.json").read_text())
    targets = pd.read_csv(base / "heads" / "groups.csv")["group"]
    write_risks(base / "pvf", record["model"], list(targets))
    return base


def write_risks(folder: Path, model: dict, words: list[str]) -> None:
    preferences = made_up(n_x=len(words))
    folder.mkdir()
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"x": words, "toward": "male"})
    for name in ("r", "r_p", "r_v", "s_male", "s_female"):
        table[name] = generator.uniform(size=len(words))
    table.to_csv(folder / "by_x.csv", index=False)
    record = {**preferences.record, "command": "pvf", "model": model}
    (folder / "run.json").write_text(json.dumps(record))


def test_stereosets_scores_are_printed_and_saved(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--out", str(runs / "gender"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    overall = found["scores"][0]
    assert overall["items"] == 48
    assert 0 <= overall["ss_low"] <= overall["ss"] <= overall["ss_high"] <= 100
    assert sum(row["items"] for row in found["length_split"] if row["scoring"] == "sum") == 48
    assert run([*command, "--out", str(runs / "gender")]) == 0
    printed = capsys.readouterr().out
    for text in ("50 is neutral", "Length, gender, per token", "Ties:", "demonstrate the tool"):
        assert text in printed
    names = {path.name for path in (runs / "gender").iterdir()}
    assert names == {"items.parquet", "scores.csv", "length_split.csv", "run.json"}


def test_a_join_is_printed_and_saved(runs, tmp_path, capsys):
    command = ["crossref", str(runs / "heads"), str(runs / "pvf"), "--n-resamples", "99"]
    assert run([*command, "--stereoset", str(runs / "stereoset"), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for text in ("4 targets (own 4)", "Power: with 4 targets", "with heads shuffled", "Mantel"):
        assert text in printed
    names = {path.name for path in tmp_path.iterdir()}
    assert {"targets.csv", "correlations.csv", "head_map.csv", "targets.png", "run.json"} <= names
    found = pd.read_csv(tmp_path / "correlations.csv")
    assert {"log_odds", "abs_log_odds"} <= set(found["summary"])
    assert {"r", "s_male", "log_odds"} <= set(found["quantity"])


def test_the_same_seed_gives_the_same_files(runs, tmp_path):
    command = ["crossref", str(runs / "heads"), str(runs / "pvf"), "--n-resamples", "99"]
    for name in ("a", "b"):
        assert run([*command, "--out", str(tmp_path / name)]) == 0
    for name in ("correlations.csv", "head_map.csv", "targets.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_cannot_be_joined_is_one_line(runs, tmp_path, capsys):
    heads = str(runs / "heads")
    model = json.loads((runs / "heads" / "run.json").read_text())["model"]
    write_risks(tmp_path / "other", {**model, "weights": "else"}, ["nurse"] * 4)
    write_risks(tmp_path / "few", model, ["nurse", "zookeeper"])
    for folder, message in (
        (tmp_path / "other", "models with different weights"),
        (tmp_path / "few", "common targets, 4 are needed"),
        (tmp_path / "nowhere", "holds no finished run of `tdabias pvf`"),
        (runs / "stereoset", "is no run of `tdabias pvf`"),
    ):
        assert run(["crossref", heads, str(folder), "--out", str(tmp_path / "o")]) == 2
        assert message in capsys.readouterr().err
    assert run(["crossref", str(tmp_path), str(runs / "pvf")]) == 2
    assert "holds no finished run of `tdabias heads`" in capsys.readouterr().err
