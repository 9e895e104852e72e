import json

import pandas as pd
import pytest

from tdabias_cli.main import run
from tests.support.answers import FEW
from tests.support.models import tiny_hf_model
from unqover import asking

FAST = ["--n-bootstrap", "100", "--n-flips", "19"]


@pytest.fixture(scope="module")
def folder(words_folder, tmp_path_factory):
    """A folder with a class file, beside a tiny model."""
    base = tmp_path_factory.mktemp("unqover")
    (base / "tiny").symlink_to(words_folder)
    (base / "few.yaml").write_text(FEW)
    return base


def arguments(folder, *more, asked="few.yaml"):
    source = str(folder / asked) if asked.endswith("yaml") else asked
    return ["unqover", "--model", str(folder / "tiny"), "--class", source, *FAST, *more]


@pytest.fixture
def undrawn(monkeypatch):
    """Without the figures of a run, which take longer than all the rest."""
    monkeypatch.setattr("unqover.plots.report_figures", lambda report: {})


def test_a_run_prints_its_controls_and_leaves_its_files(folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    assert run(arguments(folder, "--out", str(out), "--verbose")) == 0
    shown = capsys.readouterr().out
    for words in (
        "few · 4 of 4 subjects, 3 of 3 attributes, 3 templates, 144 questions (cloze)",
        "Most preferred for, by gender",
        "by chance",
        "Errors of the scores themselves",
        "Subjects by tokens of their names",
        f"Files: {out}/",
    ):
        assert words in " ".join(shown.split()), words
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "answers.parquet", "run.json", "summary.csv", "groups.csv", "subjects.csv", "by_x.csv",
        "heat_map.png", "attributes.svg", "parts",
    }  # fmt: skip
    record = json.loads((out / "run.json").read_text())
    assert record["design"]["subjects"] == ["Mary", "Ann", "James", "Bo"]
    assert record["ask"] == "cloze"
    # A second call asks nothing again.
    monkeypatch.setattr(asking, "Scorer", None)
    monkeypatch.setattr("unqover.plots.report_figures", lambda report: {})
    assert run(arguments(folder, "--quiet", "--out", str(out))) == 0


def test_sensitive_attributes_are_not_printed(folder, undrawn, tmp_path, capsys):
    more = ["--subjects", "3", "--attributes", "7", "--verbose", "--out", str(tmp_path / "run")]
    assert run(arguments(folder, *more, asked="religion")) == 0
    shown = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "run" / "groups.csv")
    assert table["sensitive"].all()
    assert not any(attribute in shown for attribute in table["attribute"])
    assert all(kind in shown for kind in ("rude", "crime"))
    assert "summarised by kind" in shown


def test_a_joint_class_reports_its_interaction(folder, tmp_path, capsys):
    more = ["--subjects", "4", "--attributes", "2", "--verbose", "--out", str(tmp_path / "run")]
    assert run(arguments(folder, *more, asked="gender_race")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Share of the variance between combinations: race" in shown
    assert (tmp_path / "run" / "interaction.png").exists()
    assert (tmp_path / "run" / "joint.csv").exists()


def test_models_are_asked_as_they_were_trained(subwords, undrawn, tmp_path, capsys):
    import transformers as tf

    config = tiny_hf_model("bert", len(subwords), max_position_embeddings=512).config
    hf_model = tf.BertForQuestionAnswering(config)
    hf_model.config.architectures = ["BertForQuestionAnswering"]
    hf_model.save_pretrained(tmp_path / "model")
    subwords.save_pretrained(tmp_path / "model")
    (tmp_path / "few.yaml").write_text(FEW)
    command = ["unqover", "--model", str(tmp_path / "model"), "--class", str(tmp_path / "few.yaml")]
    assert run([*command, *FAST, "--out", str(tmp_path / "run"), "--verbose"]) == 0
    assert "questions (span)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{first} wrote to {second}", "{first} wrote"), "the template lacks {second}"),
        (("[James, Bo]", "[James, James]"), "holds 'James' twice"),
        (("[James, Bo]", "[]"), "the list of male is empty"),
        (("compare:", "colour: red\ncompare:"), "unknown setting `colour`"),
    ],
)
def test_a_bad_class_file_is_one_line(folder, tmp_path, capsys, change, message):
    (tmp_path / "bad.yaml").write_text(FEW.replace(*change))
    assert run(arguments(folder, "--class", str(tmp_path / "bad.yaml"))) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
