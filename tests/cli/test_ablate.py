import pytest

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


def test_what_cannot_be_used_is_one_line(heads, tmp_path, capsys):
    for command, message in (
        (["ablate", str(tmp_path)], "holds no finished run of `tdabias heads`"),
        (["ablate", str(heads), "--top", "9"], "`top` must lie between 1 and 2"),
        (["ablate", str(heads), "--category", "race"], "--category must be one of gender"),
    ):
        assert run(command) == 2
        assert message in capsys.readouterr().err


def test_other_weights_are_refused(heads, tmp_path, capsys):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(heads, copy)
    resealed(copy, lambda values: {**values, "model": {**values["model"], "weights": "else"}})
    assert run(["ablate", str(copy)]) == 2
    assert "other weights than the model of the run" in capsys.readouterr().err
