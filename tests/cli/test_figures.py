import json
import re
from pathlib import Path

import pytest

from pvf.config import RiskConfig
from pvf.report import risk_report
from tdabias_cli.figures import catalogue
from tdabias_cli.main import run
from tests.support.preferences import as_published, made_up

pytestmark = pytest.mark.thorough

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    """A run of the head paper on a tiny model, with its page."""
    out = tmp_path_factory.mktemp("reproduce")
    more = ["--data", "starter", "--limit", "3", "--n-resamples", "99", "--out", str(out)]
    assert run(["reproduce", "--model", str(tiny_folder), *more]) == 0
    return out


def test_figures_and_tables_of_a_run(folder, tmp_path, capsys):
    out = tmp_path / "figures"
    assert run(["figures", str(folder / "heads"), "--out", str(out), "--format", "svg,png"]) == 0
    shown = capsys.readouterr().out
    assert "13 figures (svg, png), 8 tables" in " ".join(shown.split())
    names = {path.name for path in out.iterdir()}
    assert {"fig4_gender.svg", "calibration.png", "table1_gender.md"} <= names
    assert not any(name.endswith(".pdf") for name in names)


def test_one_figure_alone(folder, tmp_path, capsys):
    out = tmp_path / "figures"
    more = ["--only", "length", "--format", "png", "--out", str(out)]
    assert run(["figures", str(folder / "heads"), *more]) == 0
    assert [path.name for path in out.iterdir()] == ["length.png"]
    capsys.readouterr()


def test_without_a_run_what_is_simulated_is_drawn(tmp_path, capsys):
    more = ["--only", "fig3_swap", "--format", "svg", "--out", str(tmp_path)]
    assert run(["figures", *more]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fig3_swap.svg"]
    assert "1 figure (svg), 0 tables" in capsys.readouterr().out


def test_the_gallery_has_every_figure_once_with_its_command():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    names = [entry.name for entry in catalogue()]
    drawn = [re.search(r"\(gallery/(\w+)\.png\)", part)[1] for part in page.split("\n## ")[1:]]
    asked = re.findall(r"^tdabias figures .*--only (\w+)$", page, re.MULTILINE)
    assert sorted(drawn) == sorted(names)
    assert asked == drawn
    assert {path.stem for path in (DOCS / "gallery").iterdir()} == set(drawn)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--format", "gif"], "`format` must be svg, pdf, png"),
        (["--format", ","], "`format` must be svg, pdf, png"),
        (["--format", "json,csv"], "and at most one of table, json, csv; got 'json,csv'"),
        (["--only", "fig99"], "`only` must be among fig1_step_function"),
        (["--only", "ablation"], "ablation needs a run of `tdabias ablate`; got 0"),
        (["--factors", "nothing.csv"], "--factors needs a run of `tdabias pvf`"),
    ],
)
def test_bad_input_is_one_line(folder, tmp_path, capsys, more, message):
    assert run(["figures", str(folder / "heads"), "--out", str(tmp_path / "o"), *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0


def test_no_run_is_one_line(tmp_path, capsys):
    assert run(["figures", str(tmp_path)]) == 2
    assert "holds no finished run; `tdabias heads`" in capsys.readouterr().err


@pytest.fixture(scope="module")
def risk_run(tmp_path_factory):
    """A saved run of `tdabias pvf`, from made-up preferences."""
    folder = tmp_path_factory.mktemp("pvf") / "run"
    report = risk_report(made_up(n_x=8), config=RiskConfig(n_resamples=100))
    report.preferences.save(folder)
    report.save(folder)
    return folder


def test_a_risk_of_other_words_stands_beside_no_published_one(risk_run, tmp_path, capsys):
    out = tmp_path / "o"
    assert run(["figures", str(risk_run), "--out", str(out), "--format", "svg"]) == 0
    captured = capsys.readouterr()
    assert "9 tables" in captured.out
    said = " ".join(captured.err.split())
    assert f"Not drawn: {risk_run} in risk_gender: words x are others than the papers' 120" in said
    shown = (out / "risk_gender.md").read_text()
    assert "GPT-2" in shown
    assert "model-0" not in shown


def test_a_risk_of_the_papers_words_stands_beside_theirs(tmp_path, capsys):
    report = risk_report(as_published(), config=RiskConfig(n_resamples=100))
    report.preferences.save(tmp_path / "run")
    report.save(tmp_path / "run")
    out = tmp_path / "o"
    command = ["figures", str(tmp_path / "run"), "--out", str(out), "--format", "svg,json"]
    assert run(command) == 0
    captured = capsys.readouterr()
    assert not [line for line in captured.err.splitlines() if "risk_gender" in line]
    printed = json.loads(captured.out)
    assert printed["tables"] == 9
    for figure in printed["figures"]:
        assert all((out / name).is_file() for name in figure["files"])
    assert "model-0" in (out / "risk_gender.md").read_text()
    assert "model-0" not in (out / "risk_race.md").read_text()


def test_a_table_beside_the_papers_says_what_was_done_otherwise(folder, tmp_path, capsys):
    out = tmp_path / "o"
    command = ["figures", str(folder / "heads"), "--out", str(out), "--format", "csv,png"]
    assert run(command) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "figure,title,run,files"
    assert len(rows) == len(list(out.glob("*.png")))
    beside = (out / "table1_gender_beside_paper.md").read_text()
    assert "Unlike the paper: another model" in beside
    assert "texts from starter instead of StereoSet's on the hub; at most 3 triples" in beside


def test_figures_are_not_drawn_over_a_runs_files(folder, capsys):
    before = {path: path.read_bytes() for path in (folder / "heads").iterdir() if path.is_file()}
    assert run(["figures", str(folder / "heads"), "--out", str(folder / "heads")]) == 2
    assert "holds a finished run of `tdabias heads`; choose another" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in before}


def test_regressions_are_drawn_on_a_users_factors(risk_run, tmp_path, capsys):
    (tmp_path / "f.csv").write_text(
        "x,pay,years\n" + "".join(f"job{i},{i + 1},{10 - i % 3}\n" for i in range(8))
    )
    more = ["--factors", str(tmp_path / "f.csv"), "--format", "png", "--out", str(tmp_path / "o")]
    assert run(["figures", str(risk_run), *more]) == 0
    names = {path.name for path in (tmp_path / "o").iterdir()}
    assert {"pvf9_regression1.png", "pvf9_regression2.png"} <= names
    capsys.readouterr()
