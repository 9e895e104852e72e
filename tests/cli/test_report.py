"""``tdabias report``: from folders of runs to one file."""

import json
import re
import shutil

import pytest

from tda_bias.types import STARTER_CAUTION
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


def test_what_was_made_from_a_run_stands_beside_it_and_the_audit_is_always_there(
    report_runs, tmp_path, capsys
):
    out = tmp_path / "r.html"
    assert run(["report", *map(str, report_runs), "--out", str(out)]) == 0
    assert "3 runs" in capsys.readouterr().out
    text = out.read_text(encoding="utf-8")
    assert "What ablating heads changes" in text
    assert f"tdabias report {report_runs[0]}" in text.replace("&#39;", "")
    whole = text[text.index('<details id="audit"') : text.index('<section class="paper"')]
    paper = text[text.index('<section class="paper"') : text.index("<footer>")]
    assert "treat gender differently" in whole
    assert "2 targets" in whole
    for audit in (whole, paper):
        assert "Attention heads that treat a category differently" in audit
        assert "<img" not in audit


def test_the_first_screen_is_a_title_cards_sentences_a_plot_an_example_and_a_map(
    report_runs, tmp_path
):
    out = tmp_path / "r.html"
    assert run(["report", *map(str, report_runs[:2]), "--out", str(out), "--quiet"]) == 0
    text = out.read_text(encoding="utf-8")
    first, _, folded = text.partition('<details id="sure">')
    marks = [
        "<h1>", "class=\"cards", "What this means", "What it cannot say",
        "Every outcome, standardised", "Map of heads", "One example",
    ]  # fmt: skip
    places = [first.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "RESULT" not in first
    titles = re.findall(r"<summary><h2>([^<]*)", folded)
    assert titles == [
        "How sure", "Items behind each number", "Tables and figures", "Repeat it", "Audit file",
    ]  # fmt: skip


def test_a_page_calls_the_model_as_it_is_told_and_names_no_path_of_this_machine(
    heads, tmp_path, capsys
):
    from tda_bias.store.run import open_run

    path, out = open_run(heads).model, tmp_path / "r.html"
    assert path.startswith("/")
    for options, title in (([], "tiny-gpt2"), (["--name", "Our model"], "Our model")):
        assert run(["report", str(heads), "--out", str(out), *options]) == 0
        text = out.read_text(encoding="utf-8")
        assert f"<h1>{title} · stereotypes</h1>" in text
        seen = re.sub(r'<details id="reproduce">.*<details id="audit"', "", text, flags=re.DOTALL)
        seen = re.sub(r"<code>.*?</code>|<script.*", "", seen, flags=re.DOTALL)
        assert str(path) not in seen


def test_a_name_is_of_one_model(report_runs, folders, tmp_path, capsys):
    runs = [str(report_runs[0]), str(folders / "pvf0")]
    assert run(["report", *runs, "--name", "Ours", "--out", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert "`name` is of one model, and the runs are of 2" in error


def test_a_caveat_is_a_caveat_and_no_result(heads, tmp_path):
    out = tmp_path / "r.html"
    assert run(["report", str(heads), "--out", str(out), "--quiet"]) == 0
    text = out.read_text(encoding="utf-8")
    caution = STARTER_CAUTION
    first, _, folded = text.partition('<details id="sure">')
    for part, before in ((first, ">Caveats</h2>"), (folded, "<strong>Caveats.</strong>")):
        assert part.index(before) < part.index(caution)
    for dd in re.findall(r"<dd>(.*?)</dd>", folded):
        assert caution not in dd


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
    printed = capsys.readouterr().out
    if how == "json":
        told = json.loads(printed)
        [outcome] = told.pop("verdicts")
        assert told == {"page": str(out), "bytes": out.stat().st_size, "runs": [scores]}
        assert outcome["verdict"] in out.read_text(encoding="utf-8")
    else:
        assert printed == {"csv": f"run,command\n{scores},stereoset\n", "quiet": ""}[how]
