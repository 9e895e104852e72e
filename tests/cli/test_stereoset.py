import json

import pandas as pd
import pytest

from tdabias_cli.main import run
from tests.support.runs import file_names


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("stereoset")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--twins", "missing.jsonl"], "missing.jsonl"),
        (["--category", "colour"], "colour"),
        (["--format", "yaml"], "`format` must be one of table, json, csv; got 'yaml'"),
    ],
)
def test_what_cannot_be_scored_is_one_line(tiny_folder, tmp_path, capsys, more, message):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--out", str(tmp_path / "o"), *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "o").exists()


def test_stereosets_scores_are_printed_and_saved(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--out", str(runs / "gender"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    overall = found["scores"][0]
    assert overall["items"] == 48
    assert 0 <= overall["ss_low"] <= overall["ss"] <= overall["ss_high"] <= 100
    assert sum(row["items"] for row in found["length_split"] if row["scoring"] == "sum") == 48
    assert run([*command, "--out", str(runs / "gender"), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("of 50 is neutral", "Length, gender, per token", "Ties:", "demonstrate the tool"):
        assert text in printed
    names = file_names(runs / "gender")
    plain = {"items.parquet", "scores.csv", "length_split.csv", "run.json"}
    assert names == plain | {"twins.parquet", "beta.csv", "parts"}
    for text in ("Gender: the target effect (beta) is", "triples minus twins", "50 without bias"):
        assert text in printed
    assert len(found["beta"]) == len(found["scores"])


def test_without_twins_the_scores_are_those_of_always(runs, tiny_folder, capsys):
    command = ["stereoset", "--data", "starter", "--model", str(tiny_folder), "-c", "gender"]
    assert run([*command, "--twins", "none", "--out", str(runs / "plain")]) == 0
    printed = capsys.readouterr().out
    assert "No twins: wording and target cannot be told apart" in printed
    assert "triples minus twins" not in printed
    names = file_names(runs / "plain")
    assert names == {"items.parquet", "scores.csv", "length_split.csv", "run.json", "parts"}
    for name in ("scores.csv", "length_split.csv"):
        both = (pd.read_csv(runs / folder / name) for folder in ("plain", "gender"))
        pd.testing.assert_frame_equal(*both, atol=1e-4)
