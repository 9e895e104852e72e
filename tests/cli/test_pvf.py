import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tdabias_cli.main import run
from tdabias_cli.pvf import ScoreSettings
from tests.support.preferences import made_up


@pytest.fixture(scope="module")
def folders(subwords, tmp_path_factory):
    """Two tiny models whose tokenizer knows the words, and word and template files."""
    from tests.support.models import tiny_hf_model

    base = tmp_path_factory.mktemp("pvf")
    for number in range(2):
        folder = base / f"tiny{number}"
        model = tiny_hf_model("gpt2", len(subwords))
        model.transformer.wte.weight.data += number * 0.1
        model.save_pretrained(folder)
        subwords.save_pretrained(folder)
    (base / "x.txt").write_text("girl\nboy\nteacher\nfriend\n")
    (base / "y.txt").write_text("girl\nboy\n")
    (base / "classes.yaml").write_text("male: [he, his]\nfemale: [she, her]\n")
    (base / "t.csv").write_text(
        "template,count\nThe [X] said that [Y],5\nThe [X] was and [Y],3\nThe [X] had a [Y],2\n"
    )
    return base


def arguments(folders, *more, model="tiny0"):
    files = {"attribute": "classes.yaml", "words": "x.txt", "templates": "t.csv"}
    options = [word for name, file in files.items() for word in (f"--{name}", str(folders / file))]
    return ["pvf", *more, "--model", str(folders / model), *options]


@pytest.fixture(scope="module")
def scored(folders):
    for number in range(2):
        command = arguments(folders, "score", model=f"tiny{number}")
        assert run([*command, "--quiet", "--out", str(folders / f"run{number}")]) == 0
    return folders


@pytest.fixture
def undrawn(monkeypatch):
    """Without the figures of a run, which take longer than all the rest."""
    monkeypatch.setattr("pvf.plots.report_figures", lambda *given, **options: {})


def test_one_command_scores_and_prints_the_risks(folders, tmp_path, capsys):
    assert run([*arguments(folders), "--out", str(tmp_path), "--verbose"]) == 0
    printed = capsys.readouterr().out
    for text in ("R_p", "ideally unbiased", "randomly initialised", "Union mass", "tiny0"):
        assert text in printed
    names = {path.name for path in tmp_path.iterdir()}
    assert {"words.parquet", "run.json", "by_x.csv", "summary.csv", "risk.json"} <= names
    assert {"signed_means.png", "distributions.svg", "preferences.png"} <= names
    assert not [name for name in names if "unfinished" in name]


def test_risk_of_a_saved_run_needs_no_model(scored, undrawn, capsys, monkeypatch):
    import tda_bias.models.load

    monkeypatch.setattr(tda_bias.models.load, "load_language_model", None)
    assert run(["pvf", "risk", str(scored / "run0"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    measured = found["summary"][0]
    assert measured["R"] == pytest.approx(measured["R_p"] + measured["R_v"])
    assert len(found["models"][str(scored / "tiny0")]["x"]) == 4


def test_several_models_give_one_table(folders, undrawn, tmp_path, capsys):
    command = [*arguments(folders), "--model", str(folders / "tiny1")]
    assert run([*command, "--out", str(tmp_path), "--format", "csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert (table["row"] == "measured").sum() == 4
    assert {"R", "R_p", "R_v"} <= set(table)
    assert len(list(tmp_path.glob("tiny?-??????/run.json"))) == 2


def test_figures_compare_runs(scored, tmp_path, capsys):
    both = [str(scored / "run0"), str(scored / "run1")]
    assert run(["pvf", "plot", *both, "--out", str(tmp_path), "--x", "girl"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"models-change.png", "models-size.svg", "models-signed_means.png"} <= names


def test_regressions_are_saved_and_printed(scored, tmp_path, capsys):
    factors = tmp_path / "f.csv"
    factors.write_text("x,pay\ngirl,1\nboy,2\nteacher,4\nfriend,7\n")
    command = ["pvf", "social", str(scored / "run0"), "--factors", str(factors)]
    assert run([*command, "--out", str(tmp_path / "s")]) == 0
    assert "pay" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "s").iterdir()}
    assert names == {"regressions.csv", "factor1.png", "factor1.svg"}


def test_scoring_reads_the_untrained_twin_where_a_file_asks_for_it(folders, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("untrained: true\nseed: 3\nconfidence: 0.9\n")
    command = arguments(folders, "score", "-C", str(tmp_path / "c.yaml"), "--quiet")
    assert run([*command, "--out", str(tmp_path / "o"), "--format", "csv"]) == 0
    captured = capsys.readouterr()
    table = pd.read_csv(io.StringIO(captured.out))
    assert list(table) == ["model", "words", "prompts", "union_mass_mean", "folder"]
    name = str(folders / "tiny0")
    assert table["model"].tolist() == [name, f"{name}, random weights"]
    assert (table["words"].tolist(), table["prompts"].tolist()) == ([4, 4], [12, 12])
    assert (tmp_path / "o" / "untrained" / "words.parquet").is_file()
    assert captured.err == ""


def test_risk_of_saved_runs_takes_what_a_file_says_of_risk_alone(scored, undrawn, tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(
        "model: [a, a]\nattribute: nowhere.yaml\nbatch_size: 5\nconfidence: 0.9\n"
    )
    command = ["pvf", "risk", str(scored / "run0"), "-C", str(tmp_path / "c.yaml")]
    assert run([*command, "--out", str(tmp_path / "o")]) == 0
    assert json.loads((tmp_path / "o" / "risk.json").read_text())["config"]["confidence"] == 0.9
    capsys.readouterr()


def test_risks_under_other_settings_go_elsewhere_or_over_the_old_ones(
    scored, undrawn, tmp_path, capsys
):
    saved = shutil.copytree(scored / "run0", tmp_path / "run")
    (tmp_path / "w.csv").write_text("x,weight\ngirl,1\nboy,2\nteacher,4\nfriend,7\n")
    weighted = ["--x-weights", str(tmp_path / "w.csv")]
    command = ["pvf", "risk", str(saved)]
    assert run(command) == 0
    before = (saved / "by_x.csv").read_bytes()
    assert run([*command, *weighted]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (saved / "by_x.csv").read_bytes() == before
    assert run([*command, *weighted, "--overwrite"]) == 0
    assert (saved / "by_x.csv").read_bytes() != before
    capsys.readouterr()


def test_runs_of_one_name_in_several_places_get_a_folder_each(undrawn, tmp_path, capsys):
    saved = [f"a/{name}/pvf-gender" for name in "AB"] + ["b/B/pvf-gender"]
    for number, name in enumerate(saved):
        made_up(number).save(tmp_path / name)
    runs = [str(tmp_path / name) for name in saved]
    assert run(["pvf", "risk", *runs, "--out", str(tmp_path / "o")]) == 0
    found = [path.relative_to(tmp_path / "o") for path in (tmp_path / "o").rglob("risk.json")]
    assert sorted(path.parts[0] for path in found) == ["A", "B", "B"]
    assert all(path.parts[1].startswith("pvf-gender-") for path in found)
    assert run(["pvf", "risk", runs[0], runs[0]]) == 2
    assert "have the same weights: one model, twice" in capsys.readouterr().err


def test_weighted_risks_say_so_without_words_of_weight_0_and_repeat_with_their_weights(
    scored, undrawn, tmp_path, capsys
):
    (tmp_path / "w.csv").write_text("x,weight\ngirl,1\nboy,2\n")
    weighted = ["--x-weights", str(tmp_path / "w.csv"), "--confidence", "0.8"]
    command = ["pvf", "risk", str(scored / "run0"), *weighted, "--out", str(tmp_path / "o")]
    assert run([*command, "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert ", over 2 weighted words. " in printed
    assert "of 2 words lean to male" in printed
    assert "2 weighted words x, 3 templates" in printed
    assert "girl" in printed
    assert "teacher" not in printed
    # Another folder gets the preferences too: it is a run of its own.
    assert run(["report", str(tmp_path / "o"), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for option in (f"--x-weights {tmp_path / 'w.csv'}", "--confidence 0.8"):
        assert option in page


def test_a_reference_and_a_norm_are_options_and_repeat_with_the_run(
    scored, undrawn, tmp_path, capsys
):
    (tmp_path / "r.csv").write_text("x,women\ngirl,90\nboy,10\nteacher,70\nfriend,50\n")
    asked = ["--reference", str(tmp_path / "r.csv"), "--criterion", "l3"]
    command = ["pvf", "risk", str(scored / "run0"), *asked, "--out", str(tmp_path / "o")]
    assert run([*command, "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in ("against equality", "l3 of s = p/p* - 1", "r.csv"):
        assert text in printed
    summary = pd.read_csv(tmp_path / "o" / "summary.csv")
    assert summary["against"].tolist()[:2] == ["r.csv", "equality"]
    assert run(["show", str(tmp_path / "o"), "--verbose"]) == 0
    assert "l3 of s = p/p* - 1" in " ".join(capsys.readouterr().out.split())
    assert run(["report", str(tmp_path / "o"), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"--reference {tmp_path / 'r.csv'}" in page
    assert "--criterion l3" in page
    assert run([*command[:3], "--criterion", "l0"]) == 2
    assert "criterion" in capsys.readouterr().err
    assert run([*command[:3], "--reference", "bls", "--out", str(tmp_path / "p")]) == 2
    assert "no row for 'girl'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "folder"),
    [("targets:gender", "pvf-pronouns-targets-gender"), ("occupations", "pvf-pronouns")],
)
def test_a_list_of_targets_names_the_folder_without_a_colon(words, folder):
    settings = ScoreSettings(model=("tiny",), attribute="pronouns", words=words)
    assert settings.folder("tiny") == Path("runs") / "tiny" / folder
