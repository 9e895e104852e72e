"""``tdabias compare`` from the command line to its files."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from tda_bias import HeadBiasConfig, InputError, head_bias, load_triples
from tda_bias.comparison.finding import failures
from tda_bias.comparison.models import ModelComparison, NotMeasured, not_measured_lines
from tda_bias.sources import UnreachableError
from tdabias_cli.main import run
from tests.support.measures import edited, sharpened
from tests.support.runs import write_run

FEW = ("--n-flips", 99)


@pytest.fixture(scope="module")
def after(tiny_folder, tmp_path_factory):
    return edited(tiny_folder, tmp_path_factory.mktemp("models") / "edited")


@pytest.fixture
def call(capsys):
    def calling(*arguments):
        status = run(["compare", *map(str, arguments)])
        return status, *capsys.readouterr()

    return calling


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    def gone(*_, **__):
        raise UnreachableError("neither in the cache nor could it be fetched")

    for name in ("pairs.published.hub_split", "triples.hub_split", "triples._hub_split"):
        monkeypatch.setattr(f"tda_bias.{name}", gone)
    monkeypatch.setattr("tda_bias.sources.hub_split", gone)


# -- models ----------------------------------------------------------------------------------------


def test_two_models_are_compared_from_the_command_line_to_the_files(
    call, tiny_folder, after, tmp_path
):
    out, text = tmp_path / "out", tmp_path / "text.txt"
    text.write_text(" ".join(t.texts()[2] for t in load_triples("starter")), encoding="utf-8")
    options = ("--data", "starter", "--limit", 2, "--text", text, "--out", out, *FEW)
    status, printed, error = call(tiny_folder, after, *options, "--verbose")
    assert status == 0
    lacking = "Not measured: StereoSet's sentences; CrowS-Pairs; BBQ: "
    assert error.index(lacking) < error.index("winobias · ")
    table = pd.read_csv(out / "compare.csv")
    first = ["outcome", "before", "after", "change", "low", "high", "p", "guard"]
    assert list(table.columns[:8]) == first
    measured = {"beta_sum_gender", "winobias_type1", "log_perplexity", "blimp", "kl_divergence"}
    assert measured <= set(table["outcome"])
    assert set(table["guard"].dropna()) <= {"pass", "fail", "inconclusive"}
    items = pd.read_parquet(out / "items.parquet")
    assert {"outcome", "item", "before", "after"} <= set(items)
    assert "RESULT" in printed
    for said in (
        "Guard log-perplexity: ",
        "Guard BLiMP: ",
        lacking,
        "target effect, gender (nats",
    ):
        assert said in " ".join(printed.split())
    assert json.loads((out / "run.json").read_text())["settings"]["preset"] == "smoke"
    assert (out / "compare.png").stat().st_size > 1000
    # Shown again without the models, drawn again, and never written over by something else.
    assert run(["show", str(out), "--format", "json"]) == 0
    figures = ("figures", str(out), "--only", "compare", "--as", "svg")
    assert run([*figures, "--out", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "compare.svg").exists()
    status, _, error = call(after, tiny_folder, *options)
    assert status == 2
    assert "holds a finished run of `tdabias compare` with other settings" in error
    status, _, error = call(tiny_folder, after, *options, "--rank-by", "location")
    assert status == 2
    assert "`rank_by` goes with two runs of `tdabias heads`; leave it out" in error


def test_further_trainings_are_averaged_and_said(call, tiny_folder, after, tmp_path):
    again = edited(tiny_folder, tmp_path / "again", scale=0.7)
    options = ("--only", "winobias", "--out", tmp_path / "out", *FEW)
    status, printed, _ = call(tiny_folder, after, "--replicate", again, *options, "--verbose")
    assert status == 0
    assert "(mean of 2 trainings)" in printed
    assert "Intervals also hold the variation of the 2 trainings" in printed
    found = ModelComparison.load(tmp_path / "out")
    assert (found.table["spread"] > 0).any()
    assert [record.name for record in found.record.replicates] == [str(again)]


def test_a_comparison_fails_on_what_it_is_asked_to_fail_on(
    call, tiny_folder, after, tmp_path, monkeypatch
):
    options = ("--only", "winobias", "--out", tmp_path / "out", *FEW)
    assert call(tiny_folder, after, *options)[0] == 0
    found = ModelComparison.load(tmp_path / "out")
    table = found.table.iloc[:2].assign(
        outcome=["blimp", "beta"], guard=["fail", ""], primary=[False, True], p_holm=0.01
    )
    worse = replace(found, table=table.assign(neutral=0.0, before=[80.0, 0.3], after=[9.0, -0.4]))
    assert failures(worse, ["guard"]) == ["guard BLiMP"]
    assert failures(worse, ["bias", "guard"]) == ["guard BLiMP", "bias target effect"]
    smaller = table.assign(neutral=0.0, before=0.3, after=-0.2, guard="inconclusive")
    assert failures(replace(found, table=smaller), ["guard", "bias"]) == []
    unsure = replace(found, table=worse.table.assign(p_holm=0.2, guard="pass"))
    assert failures(unsure, ["guard", "bias"]) == []
    neither = replace(found, table=table.assign(neutral=0.0, guard="", primary=False))
    assert failures(neither, ["guard"]) == ["guard (none was measured)"]
    assert failures(neither, ["bias"]) == ["bias (no primary outcome was measured)"]
    monkeypatch.setattr("tda_bias.comparison.models.compare_models", lambda *_, **__: worse)
    again = ("--overwrite", "--format", "csv")
    status, printed, error = call(tiny_folder, after, *options, *again, "--fail-on", "guard,bias")
    assert status == 1
    assert printed.startswith("outcome,")
    assert "Failed: guard BLiMP; bias target effect." in error
    assert call(tiny_folder, after, *options, *again, "--fail-on", "bias")[0] == 1
    assert call(tiny_folder, after, *options, *again)[0] == 0
    status, _, error = call(tiny_folder, after, *options, "--fail-on", "size")
    assert status == 2
    assert "`fail_on` must be one of guard, bias; got" in error


def test_measures_that_lack_for_one_reason_are_said_together():
    gone = [NotMeasured(name=name, reason="no hub") for name in ("crows", "blimp", "perplexity")]
    other = NotMeasured(name="beta", reason="no twin")
    assert not_measured_lines([gone[0], other, *gone[1:]]) == [
        "Not measured: CrowS-Pairs; BLiMP; perplexity: no hub",
        "Not measured: target effect: no twin",
    ]


def test_what_is_missing_is_said_before_a_model_is_loaded(
    call, tiny_folder, after, tmp_path, monkeypatch
):
    def loading(*_, **__):
        raise InputError("a model is loaded")

    monkeypatch.setattr("tda_bias.models.load.load_language_model", loading)
    options = ("--data", "starter", "--limit", 2, "--out", tmp_path / "out")
    status, _, error = call(tiny_folder, after, *options)
    assert status == 2
    assert error.index("Not measured: ") < error.index("a model is loaded")
    missing = tmp_path / "missing"
    status, _, error = call(tiny_folder, after, "--replicate", missing, *options)
    assert status == 2
    assert f"'{missing}' could not be loaded" in error


def test_parts_are_reused_and_only_measures_what_was_asked_for(
    call, tiny_folder, after, tmp_path, monkeypatch
):
    options = ("--only", "winobias", "--only", "winogender", "--out", tmp_path / "out", *FEW)
    assert call(tiny_folder, after, *options)[0] == 0
    found = ModelComparison.load(tmp_path / "out")
    assert found.table["outcome"].str.startswith("wino").all()
    monkeypatch.setattr("tda_bias.comparison.measures.pair_items", None)
    status, printed, _ = call(tiny_folder, after, *options)
    assert status == 0
    assert (
        "Guard not measured: log-perplexity, language-model score per token and BLiMP"
        in " ".join(printed.split())
    )
    pd.testing.assert_frame_equal(ModelComparison.load(tmp_path / "out").table, found.table)


# -- runs ------------------------------------------------------------------------------------------


def test_two_runs_of_heads_are_compared_and_one_with_itself_is_refused(
    call, tiny, tmp_path, heads_run
):
    triples = load_triples("starter", category="gender", limit=4)
    heads_run.save(tmp_path / "before")
    config = HeadBiasConfig(n_permutations=99)
    other = head_bias(sharpened(tiny("gpt2")), triples, twins=None, config=config)
    other.save(tmp_path / "after")
    pair = (tmp_path / "before", tmp_path / "after")
    status, printed, _ = call(*pair, "--category", "gender", *FEW, "--verbose")
    assert status == 0
    for said in ("heads within layers", "Heads that moved most", "Reliability of the maps"):
        assert said in printed
    folder = next((tmp_path / "after").glob("compare-*"))
    assert len(pd.read_csv(folder / "heads.csv")) == 8
    assert run(["show", str(folder)]) == 0
    assert run(["figures", str(folder), "--only", "compare_heads", "--out", str(tmp_path)]) == 0
    status, _, error = call(pair[0], pair[0], "--category", "gender")
    assert status == 2
    assert "same weights and texts" in error


@pytest.mark.parametrize(
    "option",
    ["--replicate=x", "--group=man", "--limit=2", "--data=starter", "--twins=none", "--only=pvf",
     "--pairs=crows", "--confidence=0.9", "--preset=full", "--text=x"],
)  # fmt: skip
def test_options_that_two_runs_cannot_take_are_refused(call, tmp_path, option):
    folder = write_run(tmp_path / "run", command="heads")
    status, _, error = call(folder, folder, option)
    name = option[2:].partition("=")[0]
    assert status == 2
    assert f"`{name}` goes with two models, not with runs; leave it out" in error


def test_the_ranking_of_heads_is_refused_for_runs_of_stereoset(call, tmp_path):
    folder = write_run(tmp_path / "run", command="stereoset")
    status, _, error = call(folder, folder, "--rank-by", "location")
    assert status == 2
    assert "`rank_by` goes with two runs of `tdabias heads`; leave it out" in error


def test_the_same_two_runs_may_be_named_otherwise(tiny_folder, after, tmp_path, capsys):
    for name, model in (("a", tiny_folder), ("b", after)):
        made = ["stereoset", "-m", str(model), "-c", "gender", "--data", "starter", "-L", "4"]
        assert run([*made, "--quiet", "--out", str(tmp_path / name)]) == 0
    a, b, out = tmp_path / "a", tmp_path / "b", tmp_path / "out"
    few = ["--n-flips", "99", "--out", str(out), "--quiet"]
    assert run(["compare", str(a), str(b), *few]) == 0
    assert run(["compare", f"{a}/", f"{b}/", *few]) == 0
    record = json.loads((out / "run.json").read_text())
    assert record["command"] == "compare beta"
    assert "text" not in record["settings"]  # of two models alone
    assert run(["compare", str(b), str(a), *few]) == 2
    assert "other data" in capsys.readouterr().err
