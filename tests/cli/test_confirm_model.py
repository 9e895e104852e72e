"""``tdabias confirm MODEL --pairs FILE``: one look, at other targets."""

import json

import pytest

from tda_bias import load_triples
from tdabias_cli.main import run


@pytest.fixture(scope="module")
def model(tiny_folder, tmp_path_factory):
    base = tmp_path_factory.mktemp("confirm")
    text = base / "neutral.txt"
    lines = [t.texts()[2] for t in load_triples("starter")]
    text.write_text("\n\n".join(lines * 20), encoding="utf-8")
    assert run(
        ["debias", "--model", str(tiny_folder), "--category", "gender", "--data", "starter",
         "--limit", "3", "--top", "2", "--n-random", "1", "--epochs", "1", "--train-items", "6",
         "--text", str(text), "--out", str(base / "run")]
    ) == 0  # fmt: skip
    return base / "run" / "model"


@pytest.fixture
def pairs(tmp_path):
    def write(*groups):
        path = tmp_path / "pairs.jsonl"
        rows = [
            {
                "id": f"{g}{n}",
                "group": g,
                "more": f"The {g} was kind {n}.",
                "less": f"The {g} ran {n}.",
            }
            for g in groups
            for n in range(2)
        ]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return path

    return write


def test_a_folder_that_debias_did_not_write_is_refused(tiny_folder, pairs, capsys):
    assert run(["confirm", str(tiny_folder), "--pairs", str(pairs("nurse"))]) == 2
    assert "is no model that `tdabias debias` saved" in capsys.readouterr().err


def test_targets_that_were_trained_on_are_refused_and_no_look_is_spent(model, pairs, capsys):
    assert run(["confirm", str(model), "--pairs", str(pairs("nurse", "Father"))]) == 2
    assert "shares 1 target with the training (Father)" in capsys.readouterr().err
    assert not (model / "looks.json").exists()


def test_there_is_one_look_and_no_second(model, pairs, tmp_path, capsys):
    file = pairs("nurse", "cook", "king")
    out = tmp_path / "out"
    assert run(["confirm", str(model), "--pairs", str(file), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Mean log-odds of 6 items of 3 targets that no training saw" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert summary["change"] == pytest.approx(summary["after"] - summary["before"], abs=1e-9)
    about = json.loads((model / "debias.json").read_text())
    assert summary["protocol"] == about["protocol"]
    assert run(["confirm", str(model), "--pairs", str(file)]) == 2
    assert "a second look with the same protocol" in capsys.readouterr().err
