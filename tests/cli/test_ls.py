"""What can be used here and now, and what a folder of runs holds."""

import io
import json

import pandas as pd

from tda_bias import load_triples
from tdabias_cli.main import run
from tests.support.runs import write_run


def listed(capsys, *arguments: str) -> pd.DataFrame:
    assert run(["ls", *arguments, "--format", "csv"]) == 0
    return pd.read_csv(io.StringIO(capsys.readouterr().out))


def test_models_of_packages_and_of_the_hubs_cache_are_listed(capsys, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    whole = tmp_path / "models--some--model" / "snapshots" / "abc"
    whole.mkdir(parents=True)
    (whole / "config.json").write_text("{}")
    (tmp_path / "models--half--model" / "snapshots" / "abc").mkdir(parents=True)
    table = listed(capsys, "models").set_index("model")
    assert table.loc["some/model", "from"] == "hub cache"
    assert "half/model" not in table.index
    assert table.loc["smollm2-135m", "from"] == "package"


def test_what_is_listed_as_data_can_be_given(capsys):
    from pvf.words import load_classes, load_words
    from unqover.classes import load_class

    load = {"--attribute": load_classes, "--words": load_words, "--class": load_class}
    table = listed(capsys, "data")
    for option, name in table[["option", "name"]].to_numpy():
        if option in load:
            load[option](name)
    assert set(table["option"]) == {"--data", "--pairs", *load}


def test_groups_and_categories_are_those_of_the_texts(capsys):
    triples = load_triples("starter")
    found = listed(capsys, "groups")
    assert found["triples"].sum() == len(triples)
    assert set(found["group"]) == {triple.group for triple in triples}
    categories = listed(capsys, "categories").set_index("category")
    for name, row in categories.iterrows():
        own = [triple for triple in triples if triple.category == name]
        assert (row["triples"], row["groups"]) == (len(own), len({t.group for t in own}))


def test_runs_are_found_inside_each_other_and_damaged_ones_are_said(tmp_path, capsys):
    write_run(tmp_path / "a")
    write_run(tmp_path / "a" / "ablate", command="ablate")
    write_run(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text("{")
    assert run(["ls", "runs", "--folder", str(tmp_path), "--format", "json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["runs"]
    assert [(row["run"], row["command"]) for row in rows] == [
        (str(tmp_path / "a"), "stereoset"),
        (str(tmp_path / "a" / "ablate"), "ablate"),
    ]
    assert "Not listed:" in captured.err
    assert run(["ls", "runs", "--folder", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_a_name_models_data_and_runs_are_listed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(listed(capsys)["kind"]) == {"models", "data"}
    write_run(tmp_path / "runs" / "a")
    table = listed(capsys).set_index("kind")
    assert table.loc["runs", "run"] == "runs/a"
    assert {"models", "data"} < set(table.index)
    assert run(["ls", "--folder", "none"]) == 2
    assert "`folder` none is no folder" in capsys.readouterr().err


def test_runs_fit_a_terminal_of_80_columns(capsys, tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "smollm2-135m" / "unqover-gender_race")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["ls", "runs"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert "1 finished run in runs" in printed
    [row] = listed(capsys, "runs").to_dict("records")
    assert len(row["created"]) > len("2026-11-22 08:28")  # whole where a program reads it
