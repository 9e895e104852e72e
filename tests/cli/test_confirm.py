"""``tdabias confirm`` on a tiny model: what it prints, writes, and refuses."""

import json

import pandas as pd
import pytest

from tda_bias import load_triples
from tdabias_cli.main import run


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("confirm") / "heads"
    options = ["--category", "gender", "--data", "starter", "-L", "4", "--n-resamples", "99"]
    assert run(["heads", "--model", str(tiny_folder), *options, "--out", str(out)]) == 0
    return out


def test_halves_of_the_targets_confirm_each_other_or_not(folder, capsys):
    assert run(["confirm", str(folder), "--top", "2", "--n-resamples", "99"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 targets, 3 splits (all), ranked by evidence with twins." in printed
    assert "where labels are exchanged, p" in printed
    table = pd.read_csv(folder / "confirm" / "confirm.csv")
    assert table["chosen"].sum() == pytest.approx(2.0)  # two heads in every half
    summary = json.loads((folder / "confirm" / "summary.json").read_text())
    assert summary["all_splits"] is True
    assert json.loads((folder / "confirm" / "run.json").read_text())["command"] == "confirm"


def test_other_data_confirm_the_first_heads(folder, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    triples = load_triples("starter", category="gender", limit=4)
    lines = [
        {
            "target": f"{t.group} elsewhere", "bias_type": "gender", "context": t.context,
            "stereotype": t.stereotype, "anti-stereotype": t.anti_stereotype,
            "unrelated": t.unrelated,
        }
        for t in triples
    ]  # fmt: skip
    other.write_text("\n".join(map(json.dumps, lines)))
    options = ["--data", str(other), "--top", "3", "--format", "json", "--out", str(tmp_path / "o")]
    assert run(["confirm", str(folder), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["heads"]) == 3
    assert {"p_other", "p_holm"} <= set(found["heads"][0])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data", "starter"], "shares 4 targets with the run"),
        (["--top", "9"], "`top` must lie between 1 and 7; got 9"),
        (["--category", "race"], "--category must be one of gender, which the run has"),
    ],
)
def test_what_confirms_nothing_is_refused_in_one_line(folder, capsys, more, message):
    assert run(["confirm", str(folder), *more]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_a_run_without_its_groups_says_how_to_make_them(folder, tmp_path, capsys):
    import shutil

    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "groups")
    assert run(["confirm", str(tmp_path / "run")]) == 2
    assert "lacks the group" in capsys.readouterr().err
