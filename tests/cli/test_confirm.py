"""``tdabias confirm`` on a tiny model: what it prints, writes, and refuses."""

import json
import shutil

import pandas as pd
import pytest

from tda_bias import load_triples
from tdabias_cli.main import run
from tests.support.runs import resealed


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("confirm") / "heads"
    options = ["--category", "gender", "--data", "starter", "-L", "4", "--n-resamples", "99"]
    assert run(["heads", "--model", str(tiny_folder), *options, "--out", str(out)]) == 0
    return out


def test_halves_of_the_targets_confirm_each_other_or_not(folder, capsys):
    assert run(["confirm", str(folder), "--top", "2", "--n-resamples", "99", "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 targets, 3 splits (all), ranked by evidence with twins." in printed
    assert "With exchanged labels" in printed
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
    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "groups")
    assert run(["confirm", str(tmp_path / "run")]) == 2
    assert "lacks the group" in capsys.readouterr().err


def test_the_run_itself_and_other_runs_are_not_written_over(folder, capsys):
    before = (folder / "run.json").read_bytes()
    assert run(["confirm", str(folder), "--top", "2", "--out", str(folder)]) == 2
    assert "holds a finished run of `tdabias heads`; choose another" in capsys.readouterr().err
    for command in (["export", str(folder), "--to"], ["twins", "--data", "starter", "--out"]):
        assert run([*command, str(folder / "run.json")]) == 2
        assert "is a file of the run there; choose another name" in capsys.readouterr().err
    assert (folder / "run.json").read_bytes() == before


def changed_groups(run_folder, change):
    """Every group of a run's record after a change."""

    def changed(values):
        return {**values, "groups": [change(dict(group)) for group in values["groups"]]}

    resealed(run_folder, changed)


def test_groups_of_other_texts_are_refused(folder, tmp_path, capsys):
    """As after a run with other data that was stopped before it wrote its record."""
    shutil.copytree(folder, tmp_path / "run")
    changed_groups(
        tmp_path / "run",
        lambda group: {**group, "depends_on": {**group["depends_on"], "texts": "others"}},
    )
    assert run(["confirm", str(tmp_path / "run"), "--top", "2"]) == 2
    assert "holds parts saved with other settings (other texts)" in capsys.readouterr().err


def test_the_file_of_another_group_is_refused(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "run")
    first, second = sorted((tmp_path / "run" / "groups").glob("*.npz"))[:2]
    shutil.copy(first, second)
    assert run(["confirm", str(tmp_path / "run"), "--top", "2"]) == 2
    assert f"{second} holds 'gender/" in capsys.readouterr().err
