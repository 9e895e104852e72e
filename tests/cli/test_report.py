"""``tdabias report``: from folders of runs to one file."""

import json
import re
import shutil

import pytest

from tdabias_cli.main import run
from tests.support.reports import with_tables


def test_a_file_of_a_run_is_not_written_over(report_runs, capsys):
    heads = report_runs[0]
    assert run(["report", str(heads), "--out", str(heads / "groups.csv")]) == 2
    error = capsys.readouterr().err
    assert "is a file of the run there" in error
    assert error.count("\n") == 1


def test_a_damaged_file_is_one_line_and_leaves_no_page(report_runs, tmp_path, capsys):
    copy = shutil.copytree(report_runs[0], tmp_path / "run")
    (copy / "patterns.npz").write_bytes(b"PK")
    assert run(["report", str(copy), "--out", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert "patterns.npz is not as the run wrote it" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_runs_of_words_and_questions_have_their_sentence_and_their_figures(folders, tmp_path):
    questions = with_tables(folders / "gender_race", tmp_path)
    for folder, said, figures in (
        (folders / "pvf0", "of which prejudice R_p", ["signed means", "distributions", "templ"]),
        (questions, "Asked about", ["by subject", "ranked by", "Interaction"]),
    ):
        out = tmp_path / "r.html"
        assert run(["report", str(folder), "--out", str(out)]) == 0
        text = out.read_text(encoding="utf-8")
        assert said in text
        titles = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="([^"]+)"', text)
        assert len(titles) == text.count("<img") == len(figures)
        assert all(words in title for words, title in zip(figures, titles, strict=True))


def test_what_was_made_from_a_run_stands_beside_it_and_an_audit_where_it_is_asked_for(
    report_runs, tmp_path, capsys
):
    out = tmp_path / "r.html"
    command = ["report", *map(str, report_runs), "--out", str(out)]
    assert run(command) == 0
    assert "3 runs" in capsys.readouterr().out
    text = out.read_text(encoding="utf-8")
    assert "tdabias ablate: " in text
    assert f"tdabias report {report_runs[0]}" in text.replace("&#39;", "")
    assert 'id="audit"' not in text
    assert run([*command, "--audit", "--quiet"]) == 0
    text = out.read_text(encoding="utf-8")
    audit = text[text.index('<section id="audit"') : text.index('<section id="reproduce"')]
    assert "treat gender differently" in audit
    assert "2 targets" in audit
    assert "<img" not in audit


def test_a_folder_of_runs_stands_for_the_runs_in_it(report_runs, tmp_path, capsys):
    for number, folder in enumerate(report_runs):
        shutil.copytree(folder, tmp_path / "runs" / f"model-{number % 2}" / folder.name)
    out = tmp_path / "r.html"
    assert run(["report", str(tmp_path / "runs"), "--out", str(out), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    expected = [str(path.parent) for path in (tmp_path / "runs").rglob("run.json")]
    assert sorted(found) == sorted(expected)
    (tmp_path / "none").mkdir()
    assert run(["report", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert "none holds no finished run" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["json", "csv", "quiet"])
def test_other_programs_learn_where_the_page_is_and_quiet_says_nothing(
    report_runs, tmp_path, capsys, how
):
    out, scores = tmp_path / "r.html", str(report_runs[1])
    flags = ["--quiet"] if how == "quiet" else ["--format", how]
    assert run(["report", scores, "--out", str(out), *flags]) == 0
    page = {"page": str(out), "bytes": out.stat().st_size, "runs": [scores]}
    said = {
        "json": json.dumps(page, indent=2) + "\n",
        "csv": f"run,command\n{scores},stereoset\n",
        "quiet": "",
    }
    assert capsys.readouterr().out == said[how]
