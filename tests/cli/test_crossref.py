import contextlib
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pvf.report import load_report
from tda_bias import HeadBias, HeadBiasConfig, head_bias
from tda_bias.config import CrossrefConfig
from tda_bias.crossref.head_crossref import HeadCrossReference
from tda_bias.paper.rankings import PublishedAgreement, published_agreement
from tda_bias.store.record import RunRecord
from tda_bias.store.result import writing_run
from tdabias_cli.main import run
from tests.support.runs import file_names, run_heads_and_words


@pytest.fixture(scope="module")
def runs(tiny_folder, tmp_path_factory):
    """Runs of one tiny model on starter triples: heads, StereoSet's scores; made-up risks."""
    base = tmp_path_factory.mktemp("runs")
    data = ["--data", "starter", "--model", str(tiny_folder), "--category", "profession"]
    assert run(["heads", *data, "--n-permutations", "99", "--out", str(base / "heads")]) == 0
    assert run(["stereoset", *data, "--out", str(base / "stereoset")]) == 0
    gender = [*data[:-1], "gender", "--out", str(base / "gender")]
    assert run(["stereoset", *gender]) == 0
    record = json.loads((base / "heads" / "run.json").read_text())
    targets = pd.read_csv(base / "heads" / "groups.csv")["group"]
    write_risks(base / "pvf", record["model"], list(targets))
    return base


def write_risks(folder: Path, model: dict, words: list[str]) -> None:
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"x": words, "toward": "male"})
    for name in ("r", "r_p", "r_v", "s_male", "s_female"):
        table[name] = generator.uniform(size=len(words))
    with writing_run(folder, RunRecord(command="pvf", model=model)) as run:
        run.table("by_x.csv", table)


def test_a_join_is_printed_and_saved(runs, tmp_path, capsys):
    command = ["crossref", str(runs / "heads"), str(runs / "pvf"), "--n-permutations", "99"]
    assert (
        run([*command, "--stereoset", str(runs / "stereoset"), "--out", str(tmp_path), "--verbose"])
        == 0
    )
    printed = capsys.readouterr().out
    for text in ("4 targets (own 4)", "POWER    |rho| must reach", "heads shuffled", "Partial"):
        assert text in printed
    names = file_names(tmp_path)
    assert {"targets.csv", "correlations.csv", "head_map.csv", "targets.png", "run.json"} <= names
    assert "targets.svg" in names
    found = pd.read_csv(tmp_path / "correlations.csv")
    assert {"log_odds", "abs_log_odds"} <= set(found["summary"])
    assert {"r", "s_male", "log_odds", "abs_beta"} <= set(found["quantity"])
    capsys.readouterr()
    assert run(["show", str(tmp_path), "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (one["verdict"], one["clusters"]) == ("cannot say", 4)


def test_what_cannot_be_joined_is_one_line(runs, tmp_path, capsys):
    heads = str(runs / "heads")
    model = json.loads((runs / "heads" / "run.json").read_text())["model"]
    write_risks(tmp_path / "other", {**model, "weights": "else"}, ["nurse"] * 4)
    write_risks(tmp_path / "few", model, ["nurse", "zookeeper"])
    for folder, message in (
        (tmp_path / "other", "models with different weights"),
        (tmp_path / "few", "common targets, 4 are needed"),
    ):
        assert run(["crossref", heads, str(folder), "--out", str(tmp_path / "o")]) == 2
        assert message in capsys.readouterr().err
    few = [heads, str(runs / "gender"), "--items", "--out", str(tmp_path / "o")]
    assert run(["crossref", *few]) == 2
    assert "share 0 items of profession, 10 are needed" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


# -- item by item ----------------------------------------------------------------------------------


def test_items_are_compared_in_three_ways(runs, tmp_path, capsys):
    command = ["crossref", str(runs / "heads"), str(runs / "stereoset"), "--items"]
    options = ["--n-permutations", "99", "--out", str(tmp_path)]
    assert run([*command, *options, "--verbose"]) == 0
    printed = capsys.readouterr().out
    for text in ("as they are", "less length", "less twins", "Profession: with"):
        assert text in printed
    table = [line for line in printed.splitlines() if line.startswith(("│ as they", "│ less"))]
    assert len(table) == 12
    assert all(re.search(r" L\d+H\d+ │$", line) for line in table)  # no column is cut off
    assert file_names(tmp_path) == {"heads.csv", "summary.csv", "run.json"}
    heads = pd.read_csv(tmp_path / "heads.csv")
    assert set(heads["way"]) == {"raw", "length", "twins"}
    assert len(heads) == 3 * 2 * 2 * 8  # ways, measures, dimensions, heads
    record = json.loads((tmp_path / "run.json").read_text())
    assert set(record["made_from"]) == {"heads", "stereoset"}
    assert record["left_out"] == {"profession": 0}
    capsys.readouterr()
    assert run(["show", str(tmp_path), "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (one["name"], one["of"]) == ("Heads that follow the target effect: profession", 8)


# -- published rankings ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads(tiny, gender, tmp_path_factory):
    """A model with as many heads as GPT-2."""
    model = tiny("gpt2", n_layer=12, n_head=12, n_embd=48)
    folder = tmp_path_factory.mktemp("runs") / "heads"
    config = HeadBiasConfig(n_permutations=99)
    head_bias(model, gender[:3] + gender[-3:], twins=None, config=config).save(folder)
    return folder


def test_a_map_stands_beside_every_published_ranking(heads, capsys):
    command = ["crossref", str(heads), "--published", "gpt2", "--n-permutations", "99"]
    assert run([*command, "--verbose"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "evidence beside published rankings of gpt2", "mediation,",
        "of top 10 (chance)", "The run's model is called tiny-gpt2",
    ):  # fmt: skip
        assert text in printed
    found = PublishedAgreement.load(heads / "published-gpt2").agreement
    expected = published_agreement(
        HeadBias.load(heads), "gpt2", config=CrossrefConfig(n_permutations=99)
    ).agreement
    assert found["spearman"].tolist() == pytest.approx(expected["spearman"].tolist())
    assert found["p"].tolist() == expected["p"].tolist()
    assert run([*command, "--rank-by", "relative", "--overwrite", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["agreement"]
    assert {row["first"] for row in rows} == {"relative"}
    assert run(["show", str(heads / "published-gpt2"), "--verbose"]) == 0
    assert "relative beside published rankings" in capsys.readouterr().out


def test_another_run_of_heads_is_not_written_over_and_the_same_one_may_be_elsewhere(
    runs, tmp_path, capsys
):
    few, out = ["--n-permutations", "99"], ["--out", str(tmp_path / "out")]
    assert run(["crossref", str(runs / "heads"), str(runs / "pvf"), *few, *out]) == 0
    moved = shutil.copytree(runs / "heads", tmp_path / "moved")
    assert run(["crossref", str(moved), str(runs / "pvf"), *few, *out]) == 0
    other = ["heads", "--data", "starter", "--category", "profession", "--twins", "none"]
    model = json.loads((runs / "heads" / "run.json").read_text())["settings"]["model"]
    other += ["--model", model, "--n-permutations", "99", "--out", str(tmp_path / "other")]
    assert run(other) == 0
    capsys.readouterr()
    assert run(["crossref", str(tmp_path / "other"), str(runs / "pvf"), *few, *out]) == 2
    assert "other settings (other data)" in capsys.readouterr().err


# -- head by head ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_heads(heads_of_words, tmp_path_factory):
    """A run of heads against one of words, of one model, and what the command printed."""
    out, printed = tmp_path_factory.mktemp("by heads") / "out", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*heads_of_words, "--top", "2", "--out", str(out), "--verbose"]) == 0
    return out, " ".join(printed.getvalue().split())


@pytest.fixture(scope="module")
def heads_of_words(words_folder, tmp_path_factory):
    """The command line, and the runs that it names."""
    base = tmp_path_factory.mktemp("words of heads")
    run_heads_and_words(words_folder, base, words=("girl", "boy", "teacher", "friend"), limit=4)
    return ["crossref", str(base / "heads"), str(base / "pvf"), "--by", "heads"]


def test_heads_effects_on_risks_are_printed_saved_and_drawn(by_heads):
    out, printed = by_heads
    for text in (
        "The heads that topology ranks first", "Spearman with the size of a head's effect",
        "First-order against exact effects over 4 heads", "POWER With 8 heads a Spearman",
        "ablate", "--outcome pvf --pvf",
    ):  # fmt: skip
        assert text in printed
    assert {"heads.csv", "correlations.csv", "agreement.csv", "effects.png", "effects.svg"} <= (
        file_names(out)
    )
    found = HeadCrossReference.load(out)
    assert found.heads["chosen"].value_counts().to_dict() == {"no": 4, "top": 2, "random": 2}
    assert (found.record.words, found.record.templates, found.record.against) == (4, 10, "equality")
    assert set(found.record.made_from) == {"heads", "pvf"}
    unread = {"scoring", "stereoset"}
    assert not unread & set(found.record.settings)


def test_it_is_printed_again_in_80_columns_goes_on_and_is_not_written_over(
    by_heads, heads_of_words, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    out, printed = by_heads
    assert run(["show", str(out), "--verbose"]) == 0
    again = capsys.readouterr().out
    assert " ".join(again.split()) == printed
    # Sentences go on where the terminal breaks them, and commands stay whole.
    rows = [line.rstrip() for line in again.splitlines() if line[:1] in "┏┃│└"]
    assert max(map(len, rows)) <= 80
    before = (out / "heads.csv").read_bytes()
    command = [*heads_of_words, "--top", "2", "--out", str(out)]
    assert run(command) == 0
    assert "Going on with" in capsys.readouterr().err
    assert (out / "heads.csv").read_bytes() == before
    assert run([*command, "--ablation", "mean"]) == 2
    assert "ablation was 'zero', now 'mean'" in capsys.readouterr().err


def test_risks_are_those_of_the_run_of_words_and_fewer_words_are_the_first(
    by_heads, heads_of_words, tmp_path
):
    report = load_report(heads_of_words[2])
    base = HeadCrossReference.load(by_heads[0]).record.base
    for name in ("R", "R_p", "R_v"):
        assert base[name] == pytest.approx(getattr(report.risk, name), abs=1e-5)
    assert run([*heads_of_words, "--top", "1", "--limit", "2", "--out", str(tmp_path)]) == 0
    found = HeadCrossReference.load(tmp_path)
    assert found.record.words == 2
    assert found.record.base["R"] == pytest.approx(report.risk.r[:2].mean(), abs=1e-5)


def test_effects_stand_on_the_page_and_among_the_figures(by_heads, heads_of_words, tmp_path):
    out = shutil.copytree(by_heads[0], Path(heads_of_words[1]) / "crossref-heads")
    assert run(["figures", str(out), "--as", "png", "--out", str(tmp_path / "f")]) == 0
    assert (tmp_path / "f" / "crossref_heads.png").is_file()
    page = tmp_path / "page.html"
    assert run(["report", heads_of_words[1], "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "that topology ranks first" in text
    assert text.count('<h2><a href="#items-') >= 4  # one of the heads, and of each risk one
    assert "Ranks of heads and prejudice R_p: gender" in text


def test_other_risks_of_the_same_words_are_other_data(heads_of_words, tmp_path, capsys):
    command = [*heads_of_words, "--top", "1", "--out", str(tmp_path / "out")]
    other = shutil.copytree(heads_of_words[2], tmp_path / "pvf")
    assert run([*command, "--limit", "2"]) == 0
    assert run(["pvf", "risk", str(other), "--criterion", "l1", "--overwrite"]) == 0
    capsys.readouterr()
    command[2] = str(other)
    assert run([*command, "--limit", "2"]) == 2
    assert "other settings (other data)" in capsys.readouterr().err


def test_what_cannot_be_compared_head_by_head_is_one_line(
    heads_of_words, runs, tmp_path, capsys, monkeypatch
):
    import tda_bias.models.load

    monkeypatch.setattr(tda_bias.models.load, "load_language_model", pytest.fail)
    _, heads, words, *by = heads_of_words
    out = ["--out", str(tmp_path / "o")]
    for arguments, message in (
        ([heads, *by], "give the folder that `tdabias pvf` wrote after that of the heads"),
        ([heads, str(runs / "stereoset"), *by], "is a run of `tdabias stereoset`, not of `tdabias"),
        ([words, words, *by], "is a run of `tdabias pvf`, not of `tdabias heads`"),
        ([str(runs / "heads"), words, *by], "models with different weights"),
        ([heads, words, *by, "--top", "5"], "`top` must lie between 1 and 4 for 8 heads"),
        ([heads, words, *by, "--category", "race"], "--category must be one of gender, which"),
        (
            [heads, words, *by, "--scoring", "mean"],
            "`scoring` goes with --items, not with --by heads; leave it",
        ),
        ([heads, words, "--limit", "2"], "`limit` goes with --by heads, not with --by targets"),
        ([heads, words, *by, "--items"], "--items and --by heads do not go together"),
        ([heads, words, "--by", "layers"], "`by` must be"),
    ):
        assert run(["crossref", *arguments, *out]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_by_items_is_the_same_as_items(runs, tmp_path):
    command = ["crossref", str(runs / "heads"), str(runs / "stereoset"), "--n-permutations", "99"]
    for number, asked in enumerate((["--items"], ["--by", "items"], ["--items", "--by", "items"])):
        assert run([*command, *asked, "--out", str(tmp_path / str(number))]) == 0
    tables = [(tmp_path / str(n) / "summary.csv").read_bytes() for n in range(3)]
    assert tables[0] == tables[1] == tables[2]


def test_each_run_is_opened_once(runs, tmp_path, monkeypatch):
    from tda_bias.store import run as store

    opened, read = [], store.parsed
    monkeypatch.setattr(
        store, "parsed", lambda text, where: opened.append(str(where)) or read(text, where)
    )
    command = ["crossref", str(runs / "heads"), str(runs / "stereoset"), "--items"]
    assert run([*command, "--n-permutations", "99", "--out", str(tmp_path)]) == 0
    given = [str(runs / name / "run.json") for name in ("heads", "stereoset")]
    assert [opened.count(path) for path in given] == [1, 1]
