import contextlib
import io
import json
import shutil

import pandas as pd
import pytest

from pvf.report import load_report
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.models.load import load_language_model
from tda_bias.responses.again import written_again
from tda_bias.responses.persons import people_of
from tda_bias.responses.result import DECISION, Responses
from tdabias_cli.main import run
from tests.support.bbq import write_rows
from tests.support.runs import resealed, run_heads_and_words
from unqover.bbq.result import BBQScores


def ablating(heads, out):
    return ["ablate", str(heads), "--top", "1", "--n-permutations", "99", "--out", str(out)]


@pytest.fixture(scope="module")
def finished(heads, tmp_path_factory):
    """The folder of a finished run, which nobody changes, and what it printed."""
    out, printed = tmp_path_factory.mktemp("ablate") / "out", io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*ablating(heads, out), "--verbose"]) == 0
    return out, " ".join(printed.getvalue().split())


def test_an_ablation_is_printed_and_saved_with_beta_beside_the_log_odds(finished):
    out, printed = finished
    for text in (
        "1 top head ablated", "Does a ranking predict", "gradient importance", "random",
        "changes the target effect from", "ablating a head changes the target effect",
        "Effects on the target effect, over all",
    ):  # fmt: skip
        assert text in printed
    names = {path.name for path in out.iterdir()}
    assert {"effects.csv", "set_tests.csv", "heads.csv", "agreement.csv", "run.json"} <= names
    assert {"effects.png", "effects.svg"} <= names
    found = AblationStudy.load(out)
    assert found.record.twinned == found.record.triples
    assert found.record.twins["triples"] == found.record.triples


def test_an_ablation_has_a_verdict_as_json(finished, capsys):
    assert run(["show", str(finished[0]), "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (one["question"], one["name"]) == (
        "tests",
        "1 top head ablated: target effect, gender",
    )
    assert one["verdict"] == "cannot say"  # three random sets


def test_without_twins_there_are_log_odds_alone(heads, finished, tmp_path, capsys):
    assert run([*ablating(heads, tmp_path / "out"), "--twins", "none", "--verbose"]) == 0
    assert "the target effect" not in capsys.readouterr().out
    found, without = (AblationStudy.load(folder) for folder in (finished[0], tmp_path / "out"))
    assert without.record.twins is None
    assert without.record.base["log_odds"] == pytest.approx(found.record.base["log_odds"], rel=1e-6)


def test_a_file_of_twins_is_read(heads, tmp_path, capsys):
    path, out = tmp_path / "twins.jsonl", tmp_path / "out"
    assert run(["twins", "--data", "starter", "--category", "gender", "--out", str(path)]) == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:9]) + "\n")
    command = ablating(heads, out)
    assert run([*command, "--twins", str(path), "--verbose"]) == 0
    found = AblationStudy.load(out)
    assert 0 < found.record.twinned < found.record.triples
    assert f"{found.record.triples - found.record.twinned} of" in capsys.readouterr().out
    path.write_text(json.dumps({**json.loads(lines[0]), "twinn": {}}) + "\n")
    assert run([*command, "--twins", str(path), "--overwrite"]) == 2
    assert "twinn" in capsys.readouterr().err
    assert AblationStudy.load(out).record.twinned == found.record.twinned


def test_rounded_numbers_say_so_and_are_not_mixed_with_others(
    heads, finished, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tda_bias.models.hooks.slowdown_of_half", lambda _: 49.4)
    command = ablating(heads, tmp_path / "out")
    assert run([*command, "--precision", "bfloat16"]) == 0
    printed, remarks = (" ".join(text.split()) for text in capsys.readouterr())
    assert "computed in bfloat16: numbers are rounded" in printed
    assert "bfloat16 takes 49 times as long as float32 on this processor" in remarks
    assert run(command) == 2
    assert "precision was 'bfloat16', now 'float32'" in capsys.readouterr().err
    rounded, exact = (AblationStudy.load(folder) for folder in (tmp_path / "out", finished[0]))
    assert rounded.record.precision == "bfloat16"
    assert exact.record.precision == "float32"
    assert "numbers are rounded" not in finished[1]
    assert exact.record.base["log_odds"] != rounded.record.base["log_odds"]
    assert exact.record.base["log_odds"] == pytest.approx(rounded.record.base["log_odds"], abs=0.5)
    assert run([*command, "--precision", "float16"]) == 2
    assert "`precision` must be" in capsys.readouterr().err


def test_other_weights_are_refused(heads, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(heads, copy)
    resealed(copy, lambda values: {**values, "model": {**values["model"], "weights": "else"}})
    assert run(["ablate", str(copy)]) == 2
    assert "other weights than the model of the run" in capsys.readouterr().err


# -- outcomes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_words(words_folder, tmp_path_factory):
    """A run of heads and one of words, of one model."""
    base = tmp_path_factory.mktemp("outcomes")
    run_heads_and_words(words_folder, base, words=("girl", "boy", "teacher"), limit=2)
    return base


def test_risks_are_an_outcome_beside_beta_with_random_sets_of_the_same_layers(
    of_words, tmp_path, capsys
):
    heads, words = of_words / "heads", of_words / "pvf"
    command = [*ablating(heads, tmp_path / "all"), "--outcome", "beta,log_odds,pvf"]
    assert run([*command, "--pvf", str(words), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "changes the target effect from", "changes the risk R from", "head changes the volatility",
        "3 words in 10 templates", "prejudice R_p", "union mass,", "first order, R_v",
    ):  # fmt: skip
        assert text in printed
    found = AblationStudy.load(tmp_path / "all")
    assert found.outcomes == ["beta", "log_odds", "R", "R_p", "R_v"]
    report = load_report(words)
    assert found.record.base["R_p"] == pytest.approx(report.risk.R_p, abs=1e-5)
    assert found.record.pvf == str(words)
    tests = found.set_tests.set_index("outcome")
    assert {"beta", "ss", "R", "R_p", "R_v", "union_mass"} <= set(tests.index)
    null = found.effects.query("kind == 'random_set'")["d_R"].round(5)
    assert tests.loc["R", "random_mean"] == pytest.approx(null.mean())
    assert found.heads["exact_R"].notna().sum() == found.heads["exact"].notna().sum() > 0
    assert found.heads["effect_R_v"].notna().all()
    # Beside words the numbers of triples are what they are alone.
    assert run(ablating(heads, tmp_path / "triples")) == 0
    alone = AblationStudy.load(tmp_path / "triples")
    pd.testing.assert_frame_equal(found.effects[list(alone.effects)], alone.effects)
    pd.testing.assert_frame_equal(found.heads[list(alone.heads)], alone.heads)


def test_words_alone_are_read_where_they_alone_are_asked_for(of_words, tmp_path, capsys):
    command = [*ablating(of_words / "heads", tmp_path / "out"), "--outcome", "pvf"]
    assert run([*command, "--pvf", str(of_words / "pvf"), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "changes the risk R from" in printed
    assert "log-odds" not in printed
    found = AblationStudy.load(tmp_path / "out")
    assert found.outcomes == ["R", "R_p", "R_v"]
    assert (found.record.triples, found.record.further) == (0, {"pvf": "3 words in 10 templates"})
    assert run(["figures", str(tmp_path / "out"), "--as", "png", "--out", str(tmp_path / "f")]) == 0
    assert run(["show", str(tmp_path / "out")]) == 0


def test_log_odds_alone_read_no_twins(of_words, tmp_path):
    command = [*ablating(of_words / "heads", tmp_path / "out"), "--outcome", "log_odds"]
    assert run(command) == 0
    assert AblationStudy.load(tmp_path / "out").outcomes == ["log_odds"]


def test_outcomes_that_cannot_be_measured_are_one_line(of_words, heads, tmp_path, capsys):
    own, out = str(of_words / "heads"), ["--out", str(tmp_path / "o"), "--top", "1"]
    words = ["--pvf", str(of_words / "pvf")]
    for arguments, message in (
        ([own, "--outcome", "beta,mood"], "`outcome` must be one of beta, log_odds, pvf, bbq"),
        ([own, "--outcome", "beta,beta"], "`outcome` must name nothing twice"),
        ([own, "--bbq", own], "`bbq` is where items are read with --outcome bbq; give both"),
        ([own, "--outcome", "bbq", "--bbq", "no"], "`bbq` must be hub or a readable file; 'no'"),
        ([own, "--outcome", "bbq", "--bbq", own], "is a run of `tdabias heads`, not of `tdabias"),
        ([own, "--curve", "--bbq", own], "`bbq` goes without --curve"),
        ([own, *words], "`pvf` is a run whose words are read with --outcome pvf; give both"),
        ([str(heads), *words, "--outcome", "pvf"], "models with different weights"),
        ([own, "--outcome", "pvf", "--pvf", own], "is a run of `tdabias heads`, not of `tdabias"),
        ([own, "--outcome", "beta", "--twins", "none"], "`outcome` beta compares texts with their"),
        ([own, "--curve", "--outcome", "pvf"], "`outcome` goes without --curve"),
        ([own, "--respond", own], "`respond` is a run whose responses are read with --outcome"),
        ([own, "--outcome", "respond", "--respond", own], "is a run of `tdabias heads`, not of"),
        ([own, "--outcome", "respond", "--respond", "no"], "no holds no finished run of"),
        ([own, "--outcome", "respond", "--samples", "1"], "`samples` are those of the run that"),
        ([own, "--curve", "--samples", "1"], "`samples` goes without --curve"),
    ):
        assert run(["ablate", *arguments, *out]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_answers_to_bbq_are_an_outcome_of_a_run_of_bbq_or_of_a_file(of_words, tmp_path, capsys):
    heads, data = of_words / "heads", write_rows(tmp_path)
    model = json.loads((heads / "run.json").read_text())["model"]["name"]
    asked = ["bbq", "-m", model, "--data", str(data), "--limit", "8", "--quiet"]
    assert run([*asked, "--out", str(tmp_path / "bbq")]) == 0
    command = [*ablating(heads, tmp_path / "of_run"), "--outcome", "bbq"]
    assert run([*command, "--bbq", str(tmp_path / "bbq"), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "changes the bias in BBQ's ambiguous questions from", "s_AMB of BBQ",
        "8 items of BBQ in 2 templates", "the unchanged model answers a share of",
        "a head changes the bias in BBQ", "bbq_bias",
    ):  # fmt: skip
        assert text in printed
    found = AblationStudy.load(tmp_path / "of_run")
    assert found.outcomes == ["bbq_bias"]
    scores = BBQScores.load(tmp_path / "bbq")
    for name, (measure, condition) in {
        "bbq_bias": ("bias", "ambiguous"), "bbq_s_AMB": ("s_AMB", "ambiguous"),
        "bbq_accuracy": ("accuracy", "disambiguated"),
    }.items():  # fmt: skip
        measured = scores.value(measure, condition)["value"]
        assert found.record.base[name] == pytest.approx(measured, abs=1e-5)
    assert found.heads["effect_bbq_bias"].notna().all()
    assert found.heads["exact_bbq_bias"].notna().sum() > 3
    assert str(data) in {one.source for one in found.record.sources}
    command = [*ablating(heads, tmp_path / "of_file"), "--outcome", "bbq"]
    assert run([*command, "--bbq", str(data), "--limit", "8"]) == 0
    of_file = AblationStudy.load(tmp_path / "of_file").record
    assert of_file.base == pytest.approx(found.record.base, abs=1e-9)
    assert of_file.further == found.record.further
    data.write_text(data.read_text() + "\n")
    assert run([*command, "--bbq", str(tmp_path / "bbq"), "--overwrite"]) == 2
    assert "has changed since a run of `tdabias bbq` read it" in capsys.readouterr().err


# -- a curve ---------------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("My sister came in and sang a song. " * 40)

    def calling(run_of_heads, *arguments):
        status = run(
            ["ablate", str(run_of_heads), "--curve", "--text", str(text), "--width", "32",
             "--windows", "2", "--limit", "3", "--n-random", "19", "--out", str(tmp_path / "out"),
             *arguments]
        )  # fmt: skip
        return status, *capsys.readouterr()

    return calling


def test_all_rankings_stand_against_random_orders(call, heads, tmp_path):
    status, printed, error = call(heads, "--verbose")
    assert status == 0, error
    found = PruneCurve.load(tmp_path / "out")
    assert list(found.chosen["ranking"]) == ["evidence", "importance", "effect"]
    assert found.curve.groupby("ranking")["draw"].nunique()["random"] == 19
    assert set(found.curve["k"]) == {0, 1, 2, 4}
    assert found.record.quantity == "beta"
    assert len(found.record.choosing) == 2
    assert (tmp_path / "out" / "prune_curve.png").is_file()
    assert "Numbers of heads were chosen on" in printed
    assert found.chosen["p_random"].between(1 / 20, 1).all()


def test_a_curve_has_the_type_of_the_run_and_is_reported_with_its_command(
    call, tiny_folder, tmp_path
):
    """Without twins the log-odds are brought to zero."""
    made = ["heads", "-m", str(tiny_folder), "--data", "starter", "-c", "gender", "-L", "3"]
    made += ["--dtype", "bfloat16", "--twins", "none", "--n-permutations", "99", "--quiet"]
    assert run([*made, "--out", str(tmp_path / "run")]) == 0
    chosen = ["--rank-by", "evidence", "--most", "1"]
    status, _, error = call(tmp_path / "run", "--twins", "none", *chosen)
    assert status == 0, error
    found = PruneCurve.load(tmp_path / "out")
    assert found.record.model.dtype == "bfloat16"
    assert found.record.quantity == "log_odds"
    assert "beta_test" not in found.curve
    assert run(["report", str(tmp_path / "out"), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("<img") == 1
    assert "A ranking helps if its line is closer to 0" in page
    for option in ("--curve", "--rank-by evidence", "--most 1"):
        assert option in page


def test_an_ablation_goes_on_however_its_run_is_named_and_names_no_text_that_was_not_read(
    finished, heads, tmp_path, monkeypatch, capsys
):
    out = shutil.copytree(finished[0], tmp_path / "out")
    record = json.loads((out / "run.json").read_text())
    assert not {"text", "windows", "curve"} & set(record["settings"])
    (out / "run.json").unlink()  # as where it was interrupted at the end
    monkeypatch.chdir(heads.parent)
    assert run([*ablating(heads.name, out), "--category", "gender"]) == 0
    assert "Going on with" in capsys.readouterr().err
    assert run([*ablating(heads.name, out), "--category", "gender", "--seed", "1"]) == 2
    assert "seed was 0, now 1" in capsys.readouterr().err


def responding(heads, folder, *more):
    """The command that asks the heads' model two prompts, one of them with a decision."""
    model = json.loads((heads / "run.json").read_text())["model"]["name"]
    prompts = folder / "prompts.csv"
    if not prompts.exists():
        prompts.write_text(
            "id,template,choices\na,Who is [PERSON]?,\nb,The nurse met [PERSON].,he|she\n",
            encoding="utf-8",
        )
    asked = ["respond", "-m", model, "--tokens", "4", "--quiet", "--prompts", str(prompts)]
    return [*asked, "--n-permutations", "99", *more]


def test_responses_and_decisions_are_an_outcome(of_words, tmp_path, capsys):
    heads, prompts = of_words / "heads", tmp_path / "prompts.csv"
    asked = responding(heads, tmp_path, "--samples", "1")
    assert run([*asked, "--out", str(tmp_path / "responses")]) == 0
    command = [*ablating(heads, tmp_path / "of_run"), "--outcome", "respond"]
    own = ["--respond", str(tmp_path / "responses")]
    assert run([*command, *own, "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "along responses of the unchanged model, from",
        "changes the log-odds of decisions from",
        "8 responses of the unchanged model and 1 decision",
    ):
        assert text in printed
    found = AblationStudy.load(tmp_path / "of_run")
    assert found.outcomes == found.primary == ["response_effect", "decision"]
    of_run = Responses.load(tmp_path / "responses")
    assert found.record.base["decision"] == pytest.approx(
        of_run.effect(DECISION)["value"], abs=1e-5
    )
    assert found.heads["effect_response_effect"].notna().all()
    assert str(prompts) in {one.source for one in found.record.sources}
    assert run(["show", str(tmp_path / "of_run")]) == 0
    prompts.write_text(
        prompts.read_text(encoding="utf-8") + "c,[PERSON] fell.,\n", encoding="utf-8"
    )
    assert run([*command, *own, "--overwrite"]) == 2
    assert "have changed since a run of `tdabias respond` read them" in capsys.readouterr().err
    assert run([*asked, "--greedy", "--out", str(tmp_path / "greedy")]) == 0
    assert run([*command, "--respond", str(tmp_path / "greedy"), "--overwrite"]) == 2
    assert "was made with --greedy; effects are read along samples" in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_responses(of_words, tmp_path_factory):
    """Responses of the model of ``of_words``: two samples to each of two prompts."""
    base = tmp_path_factory.mktemp("responses")
    made = ["--samples", "2", "--out", str(base / "two")]
    assert run(responding(of_words / "heads", base, *made)) == 0
    return base


def test_fewer_responses_leave_the_decisions(of_words, of_responses, tmp_path, capsys):
    command = [*ablating(of_words / "heads", tmp_path / "few"), "--outcome", "respond"]
    own = ["--respond", str(of_responses / "two")]
    assert run([*command, *own, "--limit", "1", "--samples", "1"]) == 0
    read = "4 responses of the unchanged model and 1 decision"
    printed = capsys.readouterr()
    assert f"Outcome respond reads {read}.\n" in printed.err
    assert read in printed.out
    of_run, found = Responses.load(of_responses / "two"), AblationStudy.load(tmp_path / "few")
    assert found.record.base["decision"] == pytest.approx(
        of_run.effect(DECISION)["value"], abs=1e-5
    )
    model = load_language_model(of_run.record.model.name)
    one, decision = written_again(model, of_run, limit=1, samples=1)
    first = of_run.responses.query("prompt == 'a' and number == 0")
    assert [list(ids) for ids in one.responses] == [list(ids) for ids in first["ids"]]
    assert [one.names[person] for person in one.whose] == first["person"].tolist()
    assert decision.responses == ()
    assert decision.answers is not None
    assert run([*command, *own, "--samples", "3", "--overwrite"]) == 2
    assert "`samples` must be at most 2, as many as " in capsys.readouterr().err


def test_of_prompts_without_decisions_a_line_says_that_none_is_read(of_words, tmp_path, capsys):
    asked = responding(of_words / "heads", tmp_path, "--samples", "1")
    prompts = tmp_path / "prompts.csv"
    prompts.write_text("id,template\na,Who is [PERSON]?\n", encoding="utf-8")
    assert run([*asked, "--out", str(tmp_path / "responses")]) == 0
    command = [*ablating(of_words / "heads", tmp_path / "out"), "--outcome", "respond"]
    assert run([*command, "--respond", str(tmp_path / "responses")]) == 0
    assert "reads 4 responses of the unchanged model and 0 decisions." in capsys.readouterr().err
    assert AblationStudy.load(tmp_path / "out").outcomes == ["response_effect"]


def test_people_are_of_the_category_of_the_heads(of_words, of_responses, tmp_path, capsys):
    """Another category is refused; people of one's own without a named one are taken."""
    heads, people = of_words / "heads", tmp_path / "people.csv"
    names = people_of("gender").persons
    people.write_text("group,person\n" + "".join(f"{p.group},{p.name}\n" for p in names))
    command = [*ablating(heads, tmp_path / "out"), "--outcome", "respond"]
    for more, code in ((["--category", "race"], 2), ([], 0)):
        folder = tmp_path / f"responses{code}"
        made = ["--samples", "1", "--persons", str(people), *more, "--out", str(folder)]
        assert run(responding(heads, of_responses, *made)) == 0
        assert run([*command, "--respond", str(folder)]) == code
        error = capsys.readouterr().err
        assert ("is about people by race, and the heads are of gender" in error) == bool(code)
    model = json.loads((heads / "run.json").read_text())["model"]["name"]
    texts = ["--category", "profession", "--data", "starter", "-L", "2", "--quiet"]
    by = tmp_path / "profession"
    assert run(["heads", "-m", model, *texts, "--n-permutations", "99", "--out", str(by)]) == 0
    assert run([*ablating(by, tmp_path / "other"), "--outcome", "respond"]) == 2
    error = capsys.readouterr().err
    assert "decisions about people by gender, race, age, and the heads are of profession" in error
    assert len(error.strip().splitlines()) == 1
