"""``tdabias confirm`` on a tiny model: what it prints, writes, and refuses."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tda_bias import load_triples
from tda_bias.debias import confirmation
from tdabias_cli.main import run
from tests.support.runs import resealed


def test_halves_of_the_targets_confirm_each_other_or_not(heads, capsys):
    assert run(["confirm", str(heads), "--top", "2", "--n-permutations", "99", "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 targets, 3 splits (all), ranked by evidence with twins." in printed
    assert "CONTROL Of all heads" in printed
    table = pd.read_csv(heads / "confirm" / "confirm.csv")
    assert table["chosen"].sum() == pytest.approx(2.0)  # two heads in every half
    summary = json.loads((heads / "confirm" / "summary.json").read_text())
    assert summary["all_splits"] is True
    assert json.loads((heads / "confirm" / "run.json").read_text())["command"] == "confirm"


def test_a_confirmation_is_shown_and_reported_with_its_finding(heads, tmp_path, capsys):
    assert run(["confirm", str(heads), "--top", "2", "--n-permutations", "99"]) == 0
    found = capsys.readouterr().out.partition("  Next ")[0].strip()
    assert "Heads that stand out on some targets" in found
    assert run(["show", str(heads / "confirm")]) == 0
    assert found in capsys.readouterr().out
    page = tmp_path / "r.html"
    assert run(["report", str(heads / "confirm"), "--out", str(page), "--quiet"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Heads that stand out on some targets" in text
    assert "a replication of a bias result" in text
    assert 'aria-label="Heads found again: gender"' in text
    assert run(["show", str(heads / "confirm"), "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (one["name"], one["verdict"]) == ("Heads found again: gender", "cannot say")


def elsewhere(path, place="elsewhere"):
    """The starter triples of gender, as if about other targets."""
    triples = load_triples("starter", category="gender", limit=4)
    lines = [
        {
            "target": f"{t.group} {place}", "bias_type": "gender", "context": t.context,
            "stereotype": t.stereotype, "anti-stereotype": t.anti_stereotype,
            "unrelated": t.unrelated,
        }
        for t in triples
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_other_data_confirm_the_first_heads_and_take_the_place_of_earlier_ones_quietly(
    heads, tmp_path, capfd
):
    def confirmed(place, *more):
        data = elsewhere(tmp_path / f"{place}.jsonl", place)
        options = ["--data", str(data), "--out", str(tmp_path / "o"), *more]
        assert run(["confirm", str(heads), *options]) == 0
        return capfd.readouterr()

    found = json.loads(confirmed("here", "--top", "3", "--format", "json").out)
    # z of the normal distribution: .05 / 3 above it, and four fifths of what it adds to.
    assert "a true z of 3.0 there" in found["finding"]["power"][0]
    assert len(found["heads"]) == 3
    assert {"p_other", "p_holm"} <= set(found["heads"][0])
    [one] = found["verdicts"]
    assert (one["clusters"], one["of"], one["category"]) == (4, 3, "gender")
    printed = confirmed("there", "--top", "2", "--quiet")
    assert printed.out == ""
    assert "loading" not in printed.err
    assert "texts" not in printed.err
    again = pd.read_csv(tmp_path / "o" / "heads" / "groups.csv")
    assert again["group"].str.endswith("there").all()


def test_a_run_of_several_categories_with_twins_of_a_file(tiny_folder, tmp_path, capsys):
    """The next command names the category, and other data need twins of their own."""
    files = {}
    other = elsewhere(tmp_path / "other.jsonl")
    for name, data, category in (("run", "starter", "all"), ("other", str(other), "gender")):
        files[name] = str(tmp_path / f"twins-{name}.jsonl")
        assert run(["twins", "--data", data, "-c", category, "--out", files[name]]) == 0
    folder = str(tmp_path / "run")
    model = ["--model", str(tiny_folder), "--n-permutations", "99", "-L", "2", "--out", folder]
    texts = ["--data", "starter", "-c", "all", "--twins", files["run"]]
    assert run(["heads", *model, *texts]) == 0
    capsys.readouterr()
    command = ["confirm", folder, "-c", "gender", "--top", "2"]
    assert run([*command, "--n-permutations", "99"]) == 0
    assert f"tdabias ablate {folder} --category gender" in capsys.readouterr().out
    command += ["--data", str(other)]
    assert run(command) == 2
    assert "read its twins from" in capsys.readouterr().err
    assert run([*command, "--twins", files["other"]]) == 0
    record = json.loads((tmp_path / "run" / "confirm" / "heads" / "run.json").read_text())
    assert record["settings"]["twins"] == files["other"]


def test_a_run_without_its_groups_says_how_to_make_them(heads, tmp_path, capsys):
    shutil.copytree(heads, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "groups")
    assert run(["confirm", str(tmp_path / "run")]) == 2
    assert "lacks the group" in capsys.readouterr().err


def test_the_run_itself_and_other_runs_are_not_written_over(heads, capsys):
    before = (heads / "run.json").read_bytes()
    assert run(["confirm", str(heads), "--top", "2", "--out", str(heads)]) == 2
    assert "holds a finished run of `tdabias heads`; choose another" in capsys.readouterr().err
    for command in (
        ["edit", str(heads), "--as", "slices", "--out"],
        ["twins", "--data", "starter", "--out"],
    ):
        assert run([*command, str(heads / "run.json")]) == 2
        assert "is a file of the run there; choose another name" in capsys.readouterr().err
    assert (heads / "run.json").read_bytes() == before


@pytest.mark.parametrize("whose", ["other texts", "another group"])
def test_parts_that_are_not_the_runs_are_refused(heads, tmp_path, capsys, whose):
    shutil.copytree(heads, tmp_path / "run")
    first, second = sorted((tmp_path / "run" / "groups").glob("*.npz"))[:2]
    if whose == "another group":
        shutil.copy(first, second)
        message = f"{second} holds 'gender/"
    else:  # as after a run with other data that was stopped before it wrote its record
        message = "holds parts saved with other settings (other texts)"

        def changed(values):
            for group in values["groups"]:
                group["depends_on"]["texts"] = "others"
            return values

        resealed(tmp_path / "run", changed)
    assert run(["confirm", str(tmp_path / "run"), "--top", "2"]) == 2
    assert message in capsys.readouterr().err


# -- one look at a trained model, at other targets -------------------------------------------------


@pytest.fixture(scope="module")
def command(tiny_folder, tmp_path_factory):
    base = tmp_path_factory.mktemp("confirm")
    text = base / "neutral.txt"
    lines = [t.texts()[2] for t in load_triples("starter")]
    text.write_text("\n\n".join(lines * 20), encoding="utf-8")
    command = [
        "debias", "--model", str(tiny_folder), "--category", "gender", "--data", "starter",
        "--limit", "3", "--top", "2", "--n-random", "1", "--epochs", "1", "--train-items", "6",
        "--text", str(text), "--out", str(base / "run"), "--save", "effect,random",
    ]  # fmt: skip
    return command


@pytest.fixture(scope="module")
def model(command):
    assert run(command) == 0
    return Path(command[command.index("--out") + 1]) / "model"


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


def test_targets_that_were_trained_on_are_refused_and_no_look_is_spent(model, pairs, capsys):
    assert run(["confirm", str(model), "--pairs", str(pairs("nurse", "Father"))]) == 2
    assert "shares 1 target with the training (Father)" in capsys.readouterr().err
    assert not (model / "look.json").exists()


@pytest.mark.parametrize("name", ["model", "model-random"])
def test_there_is_one_look_and_no_second(name, command, pairs, tmp_path, capsys):
    command = [*command[:-4], "--out", str(tmp_path / "run"), *command[-2:]]
    assert run(command) == 0
    file, model = pairs("nurse", "cook", "king"), tmp_path / "run" / name
    out = model / "confirm"
    assert run(["confirm", str(model), "--pairs", str(file), "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert "POWER    With 3 targets a change of " in printed
    assert "Mean log-odds of 6 items of 3 targets that no training saw" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert summary["change"] == pytest.approx(summary["after"] - summary["before"], abs=1e-9)
    about = json.loads((model / "debias.json").read_text())
    assert summary["protocol"] == about["protocol"]
    for number, again in enumerate(([], command)):
        assert not again or run(again) == 0  # saves models anew from the same trainings
        for folder in model.parent.glob("model*"):
            copy = shutil.copytree(folder, tmp_path / f"{number}" / folder.name)
            for place in (folder, copy):
                capsys.readouterr()
                assert run(["confirm", str(place), "--pairs", str(file)]) == 2
                assert "a second look with the same protocol" in capsys.readouterr().err
    assert json.loads((out / "summary.json").read_text()) == summary
    # What was confirmed of a model is never found beside another one, nor deleted with it.
    saved = "random,effect" if name == "model" else "effect"
    status, error = run([*command[:-1], saved]), capsys.readouterr().err
    if name == "model":
        assert status == 2
        assert "holds another model, and what was confirmed of it" in error
    else:
        assert status == 0
    assert json.loads((out / "summary.json").read_text()) == summary
    assert json.loads((model / "debias.json").read_text()) == about


@pytest.mark.parametrize(("left", "less"), [(0.1, True), (-0.1, True), (-0.99, False)])
def test_a_bias_that_changes_its_sign_is_not_called_less(monkeypatch, left, less):
    before = np.array([0.04, 0.12] * 4)  # of eight targets
    after = left * before[::-1]
    read = iter([([*"abcdefgh"], before), ([*"abcdefgh"], after)])
    monkeypatch.setattr(confirmation, "_read", lambda *_: next(read))
    found = confirmation.look([], [lambda: None, lambda: None])
    assert found.summary["p"] < 0.05
    assert found.summary["less"] == less
    assert ("is not measurably less biased" in found.finding("m").result[0]) != less


def test_a_folder_whose_record_cannot_be_read_is_left_alone(heads, tmp_path, capsys):
    (tmp_path / "run.json").write_text("{")
    assert run(["confirm", str(heads), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "choose another --out" in error
    assert "--overwrite" not in error  # which confirm does not have


def test_a_run_of_pairs_is_not_confirmed_on_triples(tiny_folder, tmp_path, capsys):
    few = ["--limit", "2", "--n-permutations", "99", "--out", str(tmp_path), "--quiet"]
    assert run(["heads", "-m", str(tiny_folder), "--pairs", "winogender", *few]) == 0
    assert run(["confirm", str(tmp_path), "--data", "starter"]) == 2
    assert "`data` are triples, and the run compared pairs" in capsys.readouterr().err
