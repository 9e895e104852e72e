import json
import shutil

import pandas as pd
import pytest

from tda_bias import HeadBias
from tdabias_cli.main import run
from tests.support.runs import resealed


@pytest.fixture(scope="module")
def heads(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("heads") / "run"
    command = ["heads", "--data", "starter", "--model", str(tiny_folder), "--category", "gender"]
    assert run([*command, "--n-resamples", "99", "-L", "4", "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--survivors"], "survives correction; without --survivors the top of the ranking"),
        (["--category", "race"], "`category` must be one of gender; got 'race'"),
        (["--top", "0"], "`top` must be greater than or equal to 1; got 0"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_writes_nothing(
    heads, tmp_path, capsys, more, message
):
    to = tmp_path / "x.json"
    assert run(["export", str(heads), "--to", str(to), *more]) == 2
    assert message in capsys.readouterr().err
    assert not to.exists()


def test_a_folder_without_a_run_is_one_line(tmp_path, capsys):
    assert run(["export", str(tmp_path), "--to", str(tmp_path / "x.json")]) == 2
    assert "holds no finished run" in capsys.readouterr().err


def test_other_weights_are_refused(heads, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(heads, copy)
    resealed(copy, lambda values: {**values, "model": {**values["model"], "weights": "else"}})
    assert run(["export", str(copy), "--to", str(tmp_path / "x.json")]) == 2
    assert "other weights than the model of the run" in capsys.readouterr().err


def test_random_heads_of_the_same_layers_are_exported_as_a_control(heads, tmp_path, capsys):
    chosen, control, again = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    assert run(["export", str(heads), "--top", "2", "--to", str(chosen)]) == 0
    for to in (control, again):
        more = ["--random-seed", "3", "--to", str(to)]
        assert run(["export", str(heads), "--top", "2", *more]) == 0
    assert "Drawn at random" in capsys.readouterr().out
    found = [json.loads(path.read_text()) for path in (chosen, control, again)]
    layers, names = (
        [sorted(head[key] for head in one["heads"]) for one in found] for key in ("layer", "name")
    )
    assert layers[0] == layers[1]
    assert not set(names[0]) & set(names[1])
    assert found[1] == found[2]
    assert found[1]["rule"]["random_seed"] == 3


def test_heads_are_exported_with_their_slices(heads, tmp_path, capsys):
    to = tmp_path / "heads.json"
    assert run(["export", str(heads), "--top", "2", "--to", str(to)]) == 0
    record = json.loads(to.read_text())
    assert [len(head["slices"]) for head in record["heads"]] == [7, 7]  # weights and biases
    assert record["rule"]["map"] == "evidence"
    assert record["model"]["architecture"] == "GPT2LMHeadModel"
    top = HeadBias.load(heads).top(1).iloc[0]
    assert record["heads"][0]["name"] == f"L{top['layer']}H{top['head']}"


def test_every_map_that_ranks_can_choose(heads, tmp_path, capsys):
    result = HeadBias.load(heads)
    for by in ("evidence", "relative", "metric", "statistic"):
        to = tmp_path / f"{by}.json"
        assert run(["export", str(heads), "--top", "3", "--by", by, "--to", str(to)]) == 0
        record = json.loads(to.read_text())
        expected = result.top(3, by=by)
        chosen = pd.DataFrame(record["heads"])[["layer", "head"]]
        pd.testing.assert_frame_equal(chosen, expected[["layer", "head"]].reset_index(drop=True))
        assert record["rule"]["map"] == by
    capsys.readouterr()


def test_a_model_that_is_elsewhere_now_is_named(tiny_folder, tmp_path, monkeypatch, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(tiny_folder, here / "models" / "tiny")
    there.mkdir()
    monkeypatch.chdir(here)
    texts = ["--data", "starter", "-c", "gender", "-L", "4", "--twins", "none", "--quiet"]
    made = ["heads", "-m", "models/../models/tiny", *texts, "--n-resamples", "99", "--out", "run"]
    assert run(made) == 0
    monkeypatch.chdir(there)
    export = ["export", "../here/run", "--to", "x.json", "--top", "1"]
    assert run(export) == 2
    error = capsys.readouterr().err
    assert "the model models/../models/tiny is not here" in error
    assert error.strip().endswith("say where it is with --model")
    assert run([*export, "--model", "../here/models/tiny"]) == 0
    ablate = ["ablate", "../here/run", "--top", "1", "--limit", "2", "--twins", "none", "--quiet"]
    assert run([*ablate, "--out", "effects"]) == 2
    assert run([*ablate, "--out", "effects", "--model", "../here/models/tiny"]) == 0
