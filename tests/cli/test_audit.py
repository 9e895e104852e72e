"""``tdabias audit``: what can be run is run, what cannot be is said, and there is a page."""

import json
import shutil

import pytest

from tdabias_cli import commands
from tdabias_cli.audit import plan
from tdabias_cli.main import run
from tdabias_cli.spec import Audited, Spec, imported

# Of these a tiny model has an outcome each: the other commands are left out of the tests' audit.
_FEW = {
    "heads": {"limit": 4, "n_permutations": 99, "keep_patterns": 0},
    "stereoset": {"limit": 4},
    "pairs": {"limit": 1},
}


@pytest.fixture
def few(monkeypatch):
    """The commands of an audit with so few texts that it takes seconds."""
    specs = dict(commands.SPECS)
    for name, spec in specs.items():
        how = spec.audited and Audited(**{**vars(spec.audited), "quick": _FEW.get(name, {})})
        specs[name] = Spec(**{**vars(spec), "audited": how if name in _FEW else None})
    monkeypatch.setattr("tdabias_cli.audit.SPECS", specs)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # CrowS-Pairs cannot be read
    return specs


def arguments(model, out, *more) -> list[str]:
    given = ["--model", str(model), "--data", "starter", "--device", "cpu", "--out", str(out)]
    return ["audit", *given, *more]


def test_a_category_that_is_not_there_is_said_before_a_model_runs(tiny_folder, tmp_path, capsys):
    assert run(arguments(tiny_folder, tmp_path / "a", "--category", "gender,age")) == 2
    error = capsys.readouterr().err
    assert "`category` must be one of gender, profession, race, religion" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_an_audit_has_a_line_for_each_outcome_a_reason_for_each_run_it_skips_and_a_page(
    few, tiny_folder, tmp_path, capsys
):
    out = tmp_path / "a"
    assert run(arguments(tiny_folder, out, "--category", "gender", "--quick")) == 0
    lines = capsys.readouterr().out.splitlines()
    verdicts = [line.split("  ")[0] for line in lines if "(" in line or "survive" in line]
    assert {"Heads: gender", "Gender", "WinoBias", "Winogender"} <= set(verdicts)
    [crows] = [line for line in lines if line.startswith("pairs-crows: skipped, ")]
    assert any(line.startswith("--quick leaves out: ") for line in lines)
    assert f"Page: {out / 'report.html'}" in lines[-1]
    text = (out / "report.html").read_text(encoding="utf-8")
    for name in ("Heads: gender", "WinoBias"):
        line = next(line for line in lines if line.startswith(name))
        assert f'<p class="verdict">{line.rsplit("  ", 1)[1].strip()}</p>' in text
    # Again: nothing is read a second time, and the numbers are the same.
    before = {path.name: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    assert (
        run(arguments(tiny_folder, out, "--category", "gender", "--quick", "--format", "json")) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert set(told["skipped"]) == {"pairs-crows"}
    assert told["skipped"]["pairs-crows"] in crows
    assert len(told["runs"]) == 4
    assert {one["name"] for one in told["verdicts"]} >= {"Gender", "Heads: gender"}
    assert before.keys() == {path.name: 0 for path in out.rglob("*.npz")}.keys()
    # Its runs on another page: what was left out is said as long as these are all of them.
    page = tmp_path / "again.html"
    assert run(["report", str(out), "--out", str(page)]) == 0
    for said in (
        "A quick audit measures part of the texts",
        "Not measured: CrowS-Pairs (",
    ):
        assert said in page.read_text(encoding="utf-8")
        assert said in text
    every = [str(one.parent) for one in out.glob("*/run.json")]
    assert run(["report", *every, "--out", str(page)]) == 0
    assert "Not measured: CrowS-Pairs (" in page.read_text(encoding="utf-8")
    # Of some of them, that they are of a quick audit; beside others, whose that is.
    assert run(["report", str(out / "stereoset-gender"), "--out", str(page)]) == 0
    said = page.read_text(encoding="utf-8")
    assert "A quick audit measures" in said
    assert "Not measured" not in said
    alone = shutil.copytree(out / "stereoset-gender", tmp_path / "alone")
    other = [*arguments(tiny_folder, tmp_path / "other")[1:], "--category", "race", "--limit", "2"]
    assert run(["stereoset", *other]) == 0
    given = [str(out / "heads-gender"), str(tmp_path / "other")]
    assert run(["report", *given, "--out", str(page)]) == 0
    assert "Of the runs in a: A quick audit measures" in page.read_text(encoding="utf-8")
    assert run(["report", str(alone), "--out", str(page)]) == 0
    assert "A quick audit" not in page.read_text(encoding="utf-8")
    (out / "audit.json").write_text("{")
    assert run(["report", str(out), "--out", str(page)]) == 2
    assert "audit.json is not as the audit wrote it" in capsys.readouterr().err


def test_an_audit_of_a_model_that_cannot_be_loaded_skips_everything_and_fails(
    few, tmp_path, capsys
):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(arguments(empty, tmp_path / "a", "--category", "gender")) == 1
    told = capsys.readouterr()
    assert "everything was skipped" in told.err
    assert "heads-gender: skipped, " in told.out
    assert not (tmp_path / "a" / "report.html").exists()


def test_an_error_of_the_program_is_no_reason_to_skip_a_run(
    few, tiny_folder, tmp_path, monkeypatch
):
    def broken(*_, **__):
        raise KeyError("importance")

    monkeypatch.setattr("tdabias_cli.audit.perform", broken)
    with pytest.raises(KeyError):
        run(arguments(tiny_folder, tmp_path / "a", "--category", "gender"))


def test_what_a_reason_to_skip_a_run_advises_the_audit_has_too(
    few, tiny_folder, tmp_path, monkeypatch
):
    """A folder of something else asks for --overwrite, a full device for --batch-size."""
    asked = []

    def performed(_, settings, **__):
        asked.append(settings)
        return iter(())

    monkeypatch.setattr("tdabias_cli.audit.perform", performed)
    more = ["--category", "gender", "--overwrite", "--batch-size", "3"]
    assert run(arguments(tiny_folder, tmp_path / "a", *more)) == 1
    assert {(one.overwrite, one.batch_size) for one in asked} == {(True, 3)}
    asked.clear()
    run(arguments(tiny_folder, tmp_path / "a", "--category", "gender"))
    assert {one.overwrite for one in asked} == {False}


def test_every_run_of_an_audit_has_settings_that_its_command_takes():
    """A command joins by an entry in the list of commands: what stands there must fit."""
    planned = list(plan(("gender", "profession", "own")))
    assert len({one.name for one in planned}) == len(planned)
    for one in planned:
        how = one.spec.audited
        fields = imported(one.spec.settings).model_fields
        names = {field.alias or name for name, field in fields.items()} | set(fields)
        assert {"model", "out", *one.given, *how.quick, *how.takes} <= names, one.name
        assert one.lacking or not how.named or one.given[how.setting] in how.named.values()


def test_a_category_that_a_command_does_not_know_is_passed_over_with_its_reason():
    lacking = {one.name: one.lacking for one in plan(("profession",)) if one.lacking}
    assert lacking == {
        "pvf-profession": "no texts about profession",
        "bbq-profession": "no texts about profession",
        "respond-profession": "no texts about profession",
    }


def test_a_quick_audit_takes_two_categories_and_names_the_others(
    few, tiny_folder, tmp_path, monkeypatch, capsys
):
    asked = []

    def perform(spec, settings, **_):
        asked.append((spec.name, getattr(settings, "category", "")))
        from tda_bias.types import InputError

        raise InputError("not now")

    monkeypatch.setattr("tdabias_cli.audit.perform", perform)
    assert run(arguments(tiny_folder, tmp_path / "a", "--quick", "--format", "json")) == 1
    assert ("heads", "profession") in asked
    assert ("heads", "race") not in asked
    assert "the categories race, religion" in json.loads(capsys.readouterr().out)["left_out"]
