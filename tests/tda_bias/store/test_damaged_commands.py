"""Commands on damaged runs: one line that names the file, exit code 2, no traceback, no output."""

import json
import shutil

import numpy as np
import pytest

from tda_bias.store.hashes import file_hash
from tda_bias.store.run import open_run
from tdabias_cli.main import run
from tests.support.damage import NO_RECORDS, changed_records, changed_tables, damaged
from tests.support.runs import resealed

pytestmark = pytest.mark.thorough

# The command line with OUT for where it writes; the run it reads, and which of its files.
_HEADS = ("run.json", "heads.parquet", "combined.parquet", "category.parquet", "groups.csv")
COMMANDS = {
    "slices": (("edit", "HEADS", "--as", "slices", "--out", "OUT/heads.json"), "heads", _HEADS),
    "ablate": (("ablate", "HEADS", "-c", "gender", "--top", "1", "--out", "OUT"), "heads", _HEADS),
    "crossref": (("crossref", "HEADS", "PVF", "--out", "OUT"), "heads", _HEADS),
    "crossref, the other run": (
        ("crossref", "HEADS", "PVF", "--out", "OUT"), "pvf", ("run.json", "by_x.csv"),
    ),
    "figures of heads": (
        ("figures", "HEADS", "--only", "fig4_gender", "--out", "OUT"), "heads", _HEADS,
    ),
    "figures of a text": (
        ("figures", "HEADS", "--only", "fig2_pattern", "--out", "OUT"), "heads",
        ("run.json", "example.npz"),
    ),
    "figures of an ablation": (
        ("figures", "HEADS", "--only", "ablation", "--out", "OUT"), "ablate",
        ("run.json", "effects.csv", "set_tests.csv", "heads.csv", "agreement.csv"),
    ),
    "figures of a cross-reference": (
        ("figures", "HEADS", "--only", "crossref", "--out", "OUT"), "crossref",
        ("run.json", "targets.csv"),
    ),
    "figures of questions": (
        ("figures", "UNQOVER", "--only", "unqover_heat_map", "--out", "OUT"), "unqover",
        ("run.json", "answers.parquet"),
    ),
    "confirm": (
        ("confirm", "HEADS", "-c", "gender", "--out", "OUT"), "heads", _HEADS,
    ),
    "show heads": (("show", "HEADS", "--top", "2"), "heads", _HEADS),
    "show scores": (
        ("show", "STEREOSET", "--format", "json"), "stereoset", ("run.json", "scores.csv"),
    ),
    "show an ablation": (
        ("show", "ABLATE"), "ablate", ("run.json", "effects.csv", "set_tests.csv", "agreement.csv"),
    ),
    "show a cross-reference": (
        ("show", "CROSSREF", "--format", "csv"), "crossref", ("run.json", "correlations.csv"),
    ),
    "show questions": (("show", "UNQOVER"), "unqover", ("run.json", "answers.parquet")),
    "report": (("report", "HEADS", "--out", "OUT/r.html"), "heads", _HEADS),
    "pvf risk": (
        ("pvf", "risk", "PVF", "--out", "OUT"), "pvf",
        ("run.json", "words.parquet"),
    ),
    "pvf plot": (
        ("pvf", "plot", "PVF", "--out", "OUT"), "pvf",
        ("run.json", "words.parquet", "risk.json"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_is_one_line(every_run, name, tmp_path, capsys):
    words, read, files = COMMANDS[name]
    base = every_run["heads"].parent
    shutil.copytree(base, tmp_path / "runs")
    folders = {k.upper(): tmp_path / "runs" / p.relative_to(base) for k, p in every_run.items()}
    out = tmp_path / "out"
    arguments = [str(folders.get(word, word)).replace("OUT", str(out)) for word in words]
    folder = folders[read.upper()]
    rng = np.random.default_rng(0)
    for file in files:
        path = folder / file
        whole = path.read_bytes()
        misfortunes = list(damaged(whole, rng, flips=1))
        if file == "run.json":
            misfortunes += [(repr(text), text.encode()) for text in NO_RECORDS]
        for number in rng.choice(len(misfortunes), 3, replace=False):
            what, content = misfortunes[number]
            path.write_bytes(content)
            line = refused(capsys, arguments, f"{name}: {file}, {what}")
            assert file in line, f"{what}: {line}"
            assert not list(out.rglob("*.*")), what
            shutil.rmtree(out, ignore_errors=True)
        path.unlink()
        line = refused(capsys, arguments, f"{name}: {file} gone")
        assert file in line or file == "run.json", line
        path.write_bytes(whole)


def refused(capsys, arguments: list[str], case: str) -> str:
    """The one line with which a command refuses."""
    try:
        status = run(arguments)
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    captured = capsys.readouterr()
    assert status == 2, f"{case}: {captured}"
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("Error: "), case
    assert captured.out == "", case
    return line


@pytest.mark.parametrize("command", ["slices", "ablate", "crossref", "show heads", "report"])
def test_a_record_with_other_entries_is_used_or_refused_in_one_line(
    every_run, command, tmp_path, capsys
):
    """Also those that only commands look at: where the model was, the texts, the settings."""
    words, _, _ = COMMANDS[command]
    base = every_run["heads"].parent
    shutil.copytree(base, tmp_path / "runs")
    folders = {k.upper(): tmp_path / "runs" / p.relative_to(base) for k, p in every_run.items()}
    out = tmp_path / "out"
    arguments = [str(folders.get(word, word)).replace("OUT", str(out)) for word in words]
    path = folders["HEADS"] / "run.json"
    whole = path.read_text(encoding="utf-8")
    values = json.loads(whole)
    about = {name: values[name] for name in ("settings", "data", "model")}
    rng = np.random.default_rng(5)
    for what, changed in changed_records(about, rng, number=12):
        path.write_text(whole, encoding="utf-8")
        now = {**{k: v for k, v in values.items() if k != "checksum" and k not in about}, **changed}
        resealed(folders["HEADS"], lambda _, now=now: now)
        try:
            status = run(arguments)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        assert status in (0, 2), what
        if status == 2:
            lines = capsys.readouterr().err.strip().splitlines()
            assert lines[-1].startswith("Error: "), what
        shutil.rmtree(out, ignore_errors=True)


@pytest.mark.parametrize("name", ["show scores", "show an ablation", "show a cross-reference"])
def test_a_table_with_other_values_and_a_fitting_hash_is_used_or_one_line(
    every_run, name, tmp_path, capsys
):
    words, read, files = COMMANDS[name]
    folder = shutil.copytree(every_run[read], tmp_path / "run")
    arguments = [str(folder) if word.isupper() else word for word in words]
    rng = np.random.default_rng(0)
    for file in (file for file in files if file.endswith(".csv")):
        for what, text in changed_tables((every_run[read] / file).read_text(), rng):
            (folder / file).write_text(text)
            digest = file_hash(folder / file)

            def listed(values, file=file, digest=digest):
                return {**values, "files": {**values["files"], file: {"hash": digest}}}

            resealed(folder, listed)
            try:
                status = run(arguments)
            except Exception as error:
                raise AssertionError(f"{file}: {what}: {type(error).__name__}: {error}") from error
            error = capsys.readouterr().err
            assert (status, error.count("\n")) in ((0, 0), (2, 1)), f"{file}: {what}: {error}"
        (folder / file).write_bytes((every_run[read] / file).read_bytes())


def test_what_lies_in_the_folder_and_is_not_the_runs_is_not_drawn(every_run, tmp_path, capsys):
    """An example text and an ablation of an earlier run, of another model or other data."""
    base = every_run["heads"].parent
    shutil.copytree(base, tmp_path / "runs")
    heads = tmp_path / "runs" / "heads"
    run_of = open_run(heads)
    record = run_of.record.model_dump(by_alias=True)
    del record["files"]["example.npz"]

    def change(values):
        kept = {n: f for n, f in values["files"].items() if n != "example.npz"}
        kept["groups.csv"]["hash"] = "0" * 32  # other results: ablate/ was made from others
        return {**values, "files": kept}

    resealed(heads, change)
    out = ["--out", str(tmp_path / "out"), "--as", "svg"]
    assert run(["figures", str(heads), "--only", "fig2_pattern", *out]) == 2
    assert "has no example.npz; run the same `tdabias heads`" in capsys.readouterr().err
    assert run(["figures", str(heads), "--only", "ablation", *out]) == 2
    assert "ablation needs a run of `tdabias ablate`; got 0" in capsys.readouterr().err
