"""``tdabias report``: from folders of runs to one file."""

import json
import re

import pytest

from tdabias_cli.main import run
from tests.support.reports import runs_for_report, with_tables


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    return runs_for_report(tiny, tmp_path_factory.mktemp("runs"))


def test_a_file_of_a_run_is_not_written_over(runs, capsys):
    assert run(["report", str(runs[0]), "--out", str(runs[0] / "groups.csv")]) == 2
    error = capsys.readouterr().err
    assert "is a file of the run there" in error
    assert error.count("\n") == 1


def test_a_damaged_file_is_one_line_and_leaves_no_page(runs, tmp_path, capsys):
    import shutil

    copy = shutil.copytree(runs[0], tmp_path / "run")
    (copy / "patterns.npz").write_bytes(b"PK")
    assert run(["report", str(copy), "--out", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert "patterns.npz is not as the run wrote it" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


def test_what_was_made_from_a_run_stands_beside_it(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    assert run(["report", str(runs[0]), "--out", str(out)]) == 0
    assert "2 runs" in capsys.readouterr().out
    text = out.read_text(encoding="utf-8")
    assert "tdabias ablate: " in text
    assert f"tdabias report {runs[0]}" in text.replace("&#39;", "")


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


def test_an_audit_is_added_where_it_is_asked_for(runs, tmp_path):
    out = tmp_path / "r.html"
    assert run(["report", *map(str, runs), "--out", str(out), "--quiet"]) == 0
    assert 'id="audit"' not in out.read_text(encoding="utf-8")
    assert run(["report", *map(str, runs), "--out", str(out), "--audit", "--quiet"]) == 0
    text = out.read_text(encoding="utf-8")
    audit = text[text.index('<section id="audit"') : text.index('<section id="reproduce"')]
    assert "treat gender differently" in audit
    assert "2 targets" in audit
    assert "<img" not in audit


@pytest.mark.parametrize("how", ["json", "csv", "quiet"])
def test_other_programs_learn_where_the_page_is_and_quiet_says_nothing(runs, tmp_path, capsys, how):
    out = tmp_path / "r.html"
    flags = ["--quiet"] if how == "quiet" else ["--format", how]
    assert run(["report", str(runs[1]), "--out", str(out), *flags]) == 0
    page = {"page": str(out), "bytes": out.stat().st_size, "runs": [str(runs[1])]}
    said = {
        "json": json.dumps(page, indent=2) + "\n",
        "csv": f"run,command\n{runs[1]},stereoset\n",
        "quiet": "",
    }
    assert capsys.readouterr().out == said[how]
