import json

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


def test_an_ablation_is_printed_and_saved(heads, tmp_path, capsys):
    command = ["ablate", str(heads), "--top", "1", "--n-resamples", "99", "--out", str(tmp_path)]
    assert run(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("1 top heads removed", "Does a ranking predict", "gradient importance", "random"):
        assert text in printed
    names = {path.name for path in tmp_path.iterdir()}
    assert {"effects.csv", "set_tests.csv", "heads.csv", "agreement.csv", "run.json"} <= names
    assert {"effects.png", "effects.svg"} <= names
    first = (tmp_path / "effects.csv").read_bytes()
    assert run(command) == 0  # from the kept batches
    assert (tmp_path / "effects.csv").read_bytes() == first
    assert run([*command, "--seed", "3"]) == 2
    assert "seed was 0, now 3" in capsys.readouterr().err


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


def test_what_cannot_be_used_is_one_line(heads, tmp_path, capsys):
    for command, message in (
        (["ablate", str(tmp_path)], "holds no finished run of `tdabias heads`"),
        (["ablate", str(heads), "--top", "9"], "`top` must lie between 1 and 2"),
        (["ablate", str(heads), "--category", "race"], "--category must be one of gender"),
        (["export", str(tmp_path), "--to", "x.json"], "holds no finished run"),
        (["export", str(heads), "--survivors", "--to", "x.json"], "survives correction"),
    ):
        assert run(command) == 2
        assert message in capsys.readouterr().err


def test_other_weights_are_refused(heads, tmp_path, capsys):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(heads, copy)
    resealed(copy, lambda values: {**values, "model": {**values["model"], "weights": "else"}})
    for command in (["ablate", str(copy)], ["export", str(copy), "--to", str(tmp_path / "x")]):
        assert run(command) == 2
        assert "other weights than the model of the run" in capsys.readouterr().err
