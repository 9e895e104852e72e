"""A finished run, printed again: the same words, and no model."""

import pytest

from tdabias_cli.main import run
from tests.support.answers import FEW

DATA = ["--data", "starter", "-c", "gender", "-L", "4", "--device", "cpu"]


@pytest.fixture(scope="module")
def printed(tiny_folder, subwords, tmp_path_factory, request):
    """Folders of runs, and what each of them printed, by command."""
    from contextlib import redirect_stdout
    from io import StringIO

    from tests.support.models import tiny_hf_model

    base = tmp_path_factory.mktemp("show")
    words = base / "words-model"
    tiny_hf_model("gpt2", len(subwords), n_positions=512).save_pretrained(words)
    subwords.save_pretrained(words)
    (base / "few.yaml").write_text(FEW)
    (base / "x.txt").write_text("girl\nboy\nteacher\nfriend\n")
    (base / "classes.yaml").write_text("male: [he, his]\nfemale: [she, her]\n")
    (base / "t.csv").write_text("template,count\nThe [X] said that [Y],5\nThe [X] had a [Y],2\n")
    files = ["--words", str(base / "x.txt"), "--templates", str(base / "t.csv")]
    few = ["--n-resamples", "100"]
    commands = {
        "heads": ["--model", str(tiny_folder), *DATA, "--n-resamples", "99", "--top", "3"],
        "stereoset": ["--model", str(tiny_folder), *DATA, *few],
        "pvf": ["--model", str(words), "-a", str(base / "classes.yaml"), *files, *few],
        "unqover": ["--model", str(words), "--class", str(base / "few.yaml"), *few, "--n-flips",
                    "19"],
    }  # fmt: skip
    found = {}
    for name, options in commands.items():
        with redirect_stdout(StringIO()) as out:
            assert run([name, *options, "--out", str(base / name)]) == 0
        found[name] = (base / name, out.getvalue())
    return found


@pytest.mark.parametrize("command", ["heads", "stereoset", "pvf", "unqover"])
def test_a_run_is_printed_again_as_it_was(printed, command, capsys, monkeypatch):
    import tda_bias.models.load

    monkeypatch.setattr(tda_bias.models.load, "load_language_model", None)
    folder, before = printed[command]
    assert run(["show", str(folder)]) == 0
    assert capsys.readouterr().out == before


def test_a_run_is_printed_in_other_formats_and_lengths(printed, capsys):
    import json

    folder, _ = printed["heads"]
    assert run(["show", str(folder), "--top", "1", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["categories"]["gender"]["heads"]) == 1
    assert run(["show", str(folder), "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3  # the run's own --top


def test_a_folder_without_a_run_is_one_line(tmp_path, capsys):
    assert run(["show", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "holds no finished run of `tdabias heads` or" in error
    assert error.count("\n") == 1
