"""``--category`` with several: a run each, as if it were made alone, with one loaded model."""

import io
import json

import pandas as pd
import pytest

from tda_bias import load_triples
from tda_bias.twins import load_twins
from tdabias_cli import loading
from tdabias_cli.ablate import AblateSettings
from tdabias_cli.bbq import BBQSettings
from tdabias_cli.heads import HeadsSettings
from tdabias_cli.main import run
from tdabias_cli.settings import by_category
from tdabias_cli.stereoset import StereoSetSettings
from tests.support.runs import file_names

TWO = ("gender", "profession")


@pytest.fixture
def command(tiny_folder):
    """A command on a few starter triples."""

    def typed(name: str, category: str, *more: str) -> list[str]:
        texts = ["--data", "starter", "--limit", "2", "--device", "cpu", "--category", category]
        return [name, "--model", str(tiny_folder), *texts, *more]

    return typed


@pytest.fixture
def loaded(monkeypatch) -> list[str]:
    """Names of the models that are loaded, as often as they are."""
    names: list[str] = []

    for function in ("language_model", "hooked_model"):
        load = getattr(loading, function)

        def counting(name, *given, load=load, **options):
            names.append(name)
            return load(name, *given, **options)

        monkeypatch.setattr(loading, function, counting)
    return names


# -- bad input: in one line, before a model is loaded --


@pytest.mark.parametrize(
    ("category", "said"),
    [
        ("gender,gender", "`category` must name nothing twice; got 'gender,gender'"),
        ("gender,", "`category` must have a name before and after each comma; got 'gender,'"),
        (
            "gender,sex",
            "`category` must be one of gender, profession, race, religion, all, which `data` "
            "starter has; got 'sex'",
        ),
    ],
)
def test_a_category_that_cannot_be_used_stops_all_of_them_before_a_model_is_loaded(
    command, category, said, loaded, tmp_path, capsys
):
    out = tmp_path / "out"
    assert run(command("stereoset", category, "--out", str(out))) == 2
    assert capsys.readouterr().err == f"Error: {said}\n"
    assert loaded == []
    assert not out.exists()


def test_a_folder_that_holds_another_run_stops_all_of_them(command, loaded, tmp_path, capsys):
    place = ["--out", str(tmp_path / "profession")]
    assert run([*command("stereoset", "profession", *place), "--twins", "none", "--quiet"]) == 0
    loaded.clear()
    capsys.readouterr()
    assert run(command("stereoset", ",".join(TWO), "--out", str(tmp_path))) == 2
    assert "holds a finished run of `tdabias stereoset` with other settings" in (
        capsys.readouterr().err
    )
    assert loaded == []
    assert file_names(tmp_path) == {"profession"}


# -- runs --


@pytest.mark.parametrize(
    ("name", "more"), [("stereoset", ()), ("heads", ("--n-permutations", "99"))]
)
def test_each_category_has_the_files_that_it_has_alone_and_the_model_is_loaded_once(
    command, loaded, tiny_folder, tmp_path, capsys, name, more
):
    together = tmp_path / "together"
    assert run(command(name, ", ".join(TWO), "--out", str(together), *more)) == 0
    captured = capsys.readouterr()
    assert loaded == [str(tiny_folder)]
    assert file_names(together) == set(TWO)
    assert "· gender · 8 of 48 triples" in captured.err
    for category in TWO:
        assert f"· {category}" in captured.err
        alone = tmp_path / "alone" / category
        assert run(command(name, category, "--out", str(alone), "--quiet", *more)) == 0
        assert file_names(alone) == file_names(together / category)
        records = [
            json.loads((parent / category / "run.json").read_text())
            for parent in (together, alone.parent)
        ]
        for record in records:
            for entry in ("created", "checksum"):
                del record[entry]
            del record["settings"]["out"], record["settings"]["quiet"]
            record.pop("seconds", None)
            for group in record.get("groups", ()):
                del group["created"]
        assert records[0] == records[1]  # with a hash of every file


def test_shares_of_every_category_are_made_by_one_command_and_gathered_by_another(
    command, tmp_path, capsys
):
    typed = command("stereoset", ",".join(TWO), "--out", str(tmp_path / "out"), "--quiet")
    for share in ("1/2", "2/2"):
        assert run([*typed, "--shard", share]) == 0
    assert not list((tmp_path / "out").rglob("run.json"))
    assert run(typed) == 0
    assert len(list((tmp_path / "out").rglob("run.json"))) == 2


def test_json_is_one_object_by_category_and_csv_one_table(command, tmp_path, capsys):
    typed = command("stereoset", ",".join(TWO), "--out", str(tmp_path), "--twins", "none")
    assert run([*typed, "--format", "json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert [both[name]["folder"] for name in TWO] == [str(tmp_path / name) for name in TWO]
    assert run([*typed, "--format", "csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table.columns[0] == "run"
    assert list(table["run"].unique()) == list(TWO)


# -- where the files are --


def test_without_out_every_run_is_where_it_is_alone_or_has_the_category_in_its_name(tiny_folder):
    model = {"model": str(tiny_folder), "category": ["gender", "race"]}
    for settings in (HeadsSettings(**model), StereoSetSettings(**model)):
        for name, one in by_category(settings).items():
            assert one.folder == type(settings)(model=str(tiny_folder), category=name).folder
    ablate = by_category(AblateSettings(run="runs/m/all", category="gender,race"))
    assert [str(one.folder) for one in ablate.values()] == [
        "runs/m/all/ablate-gender",
        "runs/m/all/ablate-race",
    ]


def test_one_category_or_none_is_one_run():
    alone = AblateSettings(run="runs/m/all", category="gender")
    assert by_category(alone) == {"gender": alone}
    without = AblateSettings(run="runs/m/all")
    assert by_category(without) == {"": without}


# -- commands that read several categories in one run --


def test_twins_of_several_categories_are_in_one_file(tmp_path):
    out = tmp_path / "twins.jsonl"
    typed = ["twins", "--data", "starter", "-c", "gender,race", "--out", str(out), "--quiet"]
    assert run(typed) == 0
    made = load_twins(out, load_triples("starter"))
    assert {triple.category for triple, _ in made} == {"gender", "race"}


def test_bbq_asks_several_categories_in_one_run():
    settings = BBQSettings(model="m", category="Religion,Age")
    assert settings.category == ("Religion", "Age")
    assert list(by_category(settings).values()) == [settings]
    assert settings.folder.name == "bbq-religion-age"
