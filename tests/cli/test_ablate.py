import json

import pytest

from tda_bias.ablation.study import AblationStudy
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


def test_beta_stands_beside_the_log_odds(heads, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["ablate", str(heads), "--top", "1", "--n-resamples", "99", "--out", str(out)]
    assert run(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("mean beta, nats", "size of the effect on beta", "Effects on beta, over all"):
        assert text in printed
    found = AblationStudy.load(out)
    assert found.record.twinned == found.record.triples
    assert found.record.twins["triples"] == found.record.triples
    assert run([*command, "--twins", "none", "--overwrite"]) == 0
    assert "mean beta" not in capsys.readouterr().out
    without = AblationStudy.load(out)
    assert without.record.twins is None
    assert without.base["log_odds"] == pytest.approx(found.base["log_odds"], abs=1e-6)


def test_a_file_of_twins_is_read(heads, tmp_path, capsys):
    path, out = tmp_path / "twins.jsonl", tmp_path / "out"
    assert run(["twins", "--data", "starter", "--category", "gender", "--out", str(path)]) == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:9]) + "\n")
    command = ["ablate", str(heads), "--top", "1", "--n-resamples", "99", "--out", str(out)]
    assert run([*command, "--twins", str(path), "--verbose"]) == 0
    found = AblationStudy.load(out)
    assert 0 < found.record.twinned < found.record.triples
    assert f"{found.record.triples - found.record.twinned} of" in capsys.readouterr().out
    path.write_text(json.dumps({**json.loads(lines[0]), "twinn": {}}) + "\n")
    assert run([*command, "--twins", str(path), "--overwrite"]) == 2
    assert "twinn" in capsys.readouterr().err
    assert AblationStudy.load(out).record.twinned == found.record.twinned


def test_rounded_numbers_say_so_and_are_not_mixed_with_others(heads, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["ablate", str(heads), "--top", "1", "--n-resamples", "99", "--out", str(out)]
    assert run([*command, "--precision", "bfloat16"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "computed in bfloat16: numbers are rounded" in printed
    assert AblationStudy.load(out).record.precision == "bfloat16"
    assert run(command) == 2
    assert "precision was 'bfloat16', now 'float32'" in capsys.readouterr().err
    rounded = AblationStudy.load(out)
    assert run([*command, "--overwrite"]) == 0
    assert "numbers are rounded" not in capsys.readouterr().out
    exact = AblationStudy.load(out)
    assert exact.record.precision == "float32"
    assert exact.base["log_odds"] != rounded.base["log_odds"]
    assert exact.base["log_odds"] == pytest.approx(rounded.base["log_odds"], abs=0.5)
    assert run([*command, "--precision", "float16"]) == 2
    assert "`precision` must be" in capsys.readouterr().err


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
