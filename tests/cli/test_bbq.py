"""``tdabias bbq`` from the command line to its files."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from tdabias_cli.main import run
from tests.support.bbq import rows, write_rows
from unqover.bbq.result import BBQScores


@pytest.fixture(scope="module")
def folder(words_folder, tmp_path_factory):
    """Items, and answers to them, beside a tiny model."""
    base = tmp_path_factory.mktemp("bbq")
    (base / "tiny").symlink_to(words_folder)
    write_rows(base, templates=6)
    lines = [
        {"category": row["category"], "example_id": row["example_id"], "answer": row["label"]}
        for row in rows(6)
    ]
    (base / "right.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return base


def words(folder, *more, answers=None):
    source = ["--answers", str(folder / answers)] if answers else ["-m", str(folder / "tiny")]
    return ["bbq", *source, "--data", str(folder / "Hands.jsonl"), *more]


@pytest.mark.parametrize("ask", ["text", "letter"])
def test_a_model_is_asked_and_its_answers_scored_again_give_the_same(folder, tmp_path, capsys, ask):
    out = tmp_path / "run"
    assert run(words(folder, "--ask", ask, "--out", str(out), "--verbose")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for said in ("disambiguated items with accuracy", "Controls, all categories", f"Files: {out}/"):
        assert said in shown, said
    names = {path.name for path in out.iterdir()}
    assert names >= {"answers.jsonl", "items.parquet", "scores.csv", "controls.csv", "run.json"}
    again = ["--answers", str(out / "answers.jsonl"), "--out", str(tmp_path / "again"), "--quiet"]
    assert run([*words(folder, answers="right.jsonl")[:1], *again,
                "--data", str(folder / "Hands.jsonl")]) == 0  # fmt: skip
    first, second = BBQScores.load(out), BBQScores.load(tmp_path / "again")
    for measure, condition in (("s_AMB", "ambiguous"), ("accuracy", "disambiguated")):
        before, after = (one.value(measure, condition) for one in (first, second))
        assert before["value"] == after["value"]
        assert before["low"] == pytest.approx(after["low"], nan_ok=True)


def test_right_answers_are_scored_without_a_model_and_without_torch(folder, tmp_path):
    out = tmp_path / "run"
    arguments = words(folder, "--out", str(out), "--quiet", answers="right.jsonl")
    script = (
        "import sys; from tdabias_cli.main import run; "
        f"code = run({arguments!r}); "
        "heavy = {'torch', 'transformers', 'matplotlib'} & set(sys.modules); "
        "print(code, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "0 []", done.stderr
    read = BBQScores.load(out)
    assert read.value("accuracy", "disambiguated")["value"] == 1
    assert read.value("s_AMB", "ambiguous")["value"] == 0
    assert read.record.model.name == "right"
    table = pd.read_csv(out / "scores.csv")
    assert set(table["category"]) == {"Hands", "all"}


def test_other_answers_to_the_same_items_are_not_written_over(folder, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(words(folder, "--out", str(out), "--quiet", answers="right.jsonl")) == 0
    lines = (folder / "right.jsonl").read_text().splitlines()[:-1]
    (tmp_path / "right.jsonl").write_text("\n".join(lines))
    other = ["--answers", str(tmp_path / "right.jsonl"), "--out", str(out)]
    assert run(["bbq", *other, "--data", str(folder / "Hands.jsonl")]) == 2
    assert "other data" in capsys.readouterr().err
    assert run(["bbq", *other, "--data", str(folder / "Hands.jsonl"), "--overwrite"]) == 0
    assert "1 of 48 items have no answer in the file" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "give --model, which is asked, or --answers, a file; neither is given"),
        (["-m", "x", "--answers", "RIGHT"], "--answers, a file; both are given"),
        (["--answers", "RIGHT", "--category", "age"], "`category` 'age' does not occur"),
        (["--answers", "RIGHT", "--language", "es"], "is of the language en"),
        (["--answers", "RIGHT", "--language", "fr"], "`language` must be one of en, es, ca, ko"),
        (["--answers", "RIGHT", "--limit", "3"], "`limit` 3 is below the 4 items"),
        (["--answers", "DATA"], "line 1: `answer` is missing"),
        (["-m", "MODEL", "--ask", "cloze"], "`ask` must be one of text, letter"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, tmp_path, capsys, more, message):
    places = {"RIGHT": str(folder / "right.jsonl"), "DATA": str(folder / "Hands.jsonl")}
    places["MODEL"] = str(folder / "tiny")
    given = [places.get(word, word) for word in more]
    out = tmp_path / "out"
    code = run(["bbq", *given, "--data", str(folder / "Hands.jsonl"), "--out", str(out)])
    assert code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "licence"), [("bbq.jsonl", "CC BY 4.0"), ("own.jsonl", "not assessed here")]
)
def test_an_audit_names_the_published_set_and_no_licence_of_a_user_s_own(
    folder, tmp_path, capsys, name, licence
):
    path = write_rows(tmp_path, name=name)
    arguments = ["--answers", str(folder / "right.jsonl"), "--out", str(tmp_path / "run")]
    assert run(["bbq", *arguments, "--data", str(path), "--quiet"]) == 0
    out = tmp_path / "page.html"
    assert run(["report", str(tmp_path / "run"), "--out", str(out)]) == 0
    assert licence in out.read_text()


def test_what_is_left_out_is_said_and_listed(folder, tmp_path, capsys):
    without = {**rows()[0], "example_id": 500,
               "additional_metadata": {"stereotyped_groups": ["tall"]}}  # fmt: skip
    path = write_rows(tmp_path, without)
    arguments = ["--answers", str(folder / "right.jsonl"), "--out", str(tmp_path / "run")]
    assert run(["bbq", *arguments, "--data", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 item left out (1: no single person of the stereotyped groups)" in shown
    table = pd.read_csv(tmp_path / "run" / "left_out.csv")
    assert table["id"].tolist() == [500]
