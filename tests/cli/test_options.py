"""Options from settings: where a value comes from, and what a settings class turns into."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tda_bias.types import InputError
from tdabias_cli.commands import SPECS
from tdabias_cli.heads import HeadsSettings
from tdabias_cli.options import (
    Positional,
    command_line,
    merged,
    taking,
    values_of_environment,
)
from tdabias_cli.pvf import PvfSettings
from tdabias_cli.settings import Several, part_of
from tdabias_cli.spec import imported
from tdabias_cli.unqover import UnqoverSettings
from unqover.classes import load_class
from unqover.config import DesignConfig
from unqover.questions import sampled_design


class CookSettings(BaseModel):
    """A command with one option of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pot: Annotated[Path, Positional()] = Field(description="what it is cooked in")
    dish: str = Field(min_length=1, description="what is cooked")
    class_: str | None = Field(None, alias="class", description="of the cook")
    heat: Literal["low", "high"] = Field("low", description="of the stove")
    minutes: int = Field(10, ge=1, le=600, description="on the stove")
    salt: float = Field(0.5, ge=0, le=1, description="a pinch")
    stir: bool = Field(True, description="all the time")
    spices: Annotated[tuple[str, ...], Several] = Field((), description="what else [pepper]")
    seed: int = Field(0, ge=0, description="of the tomato")


class KitchenSettings(CookSettings):
    """A whole of which cooking is a part."""

    plates: int = Field(2, description="to wash")


def cook(*arguments: str, **more) -> CookSettings:
    """The settings that a command line gives."""
    given = []
    app = typer.Typer(add_completion=False)
    app.command("cook")(taking(CookSettings, given.append, **more))
    app.command("wash")(lambda: None)
    app(list(arguments), prog_name="kitchen", standalone_mode=False)
    return given[0]


# -- bad input --


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "`minutes` must be greater than or equal to 1; got 0"),
        (["--minutes", "601"], "`minutes` must be less than or equal to 600; got 601"),
        (["--minutes", "soon"], "`minutes` must be a valid integer; got soon"),
        (["--heat", "hot"], "`heat` must be one of low, high; got 'hot'"),
        (["--salt", "nan"], "`salt` must be"),
        (["--dish", ""], "`dish` must not be empty"),
    ],
)
def test_a_flag_that_does_not_fit_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        cook("cook", "pot", "--dish", "soup", *arguments)


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="`dish` is missing; give --dish"):
        cook("cook", "pot")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("minutes: 0", r"`minutes` must be greater than or equal to 1; got 0 \(.*cook.yaml\)"),
        ("minutes: true", r"`minutes` must be a number; got true \(.*cook.yaml\)"),
        ("salt: false", "`salt` must be a number; got false"),
        ("heat: high\nminutes: [", r"is not YAML \(line 2\)"),
        ("spices: " + "[" * 20_000, "is not YAML"),
        ('dish: "a\\0b"', "`dish` holds a NUL character"),
        ('dish: "\\ud800"', "`dish` holds bytes that are no UTF-8 text"),
        ("dish: 2020-01-01", "`dish` must be a valid string"),
        ("pot: x", "`pot` is given on the command line, not in a file"),
        ("colour: red", "unknown setting `colour`; allowed are dish, class, heat"),
        ("1: 2", "must hold `setting: value` lines"),
        ("dish: soup\nsalt: *Xy7tR", r"is not YAML \(line 2\): found undefined alias$"),
        ("dish: !Xy7tR 3", r"is not YAML \(line 1\): could not determine a constructor for the"),
        ('dish: "\\qXy7tR"', r"is not YAML \(line 1\): found unknown escape character$"),
        ("Xy7tR: 1\nXy7tR: 1", r"is not YAML \(line 2\): the key stands there twice$"),
        ("Xy7tR: *Xy7tR\n", r"is not YAML \(line 1\)"),
        ("Xy7tR: 1\n", "unknown setting; allowed are dish"),
        ("Xy7tR:x:0:0:Xy7tR", "must hold `setting: value` lines"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path, content, message):
    (tmp_path / "cook.yaml").write_text(content)
    with pytest.raises(InputError, match=message) as error:
        cook("cook", "pot", "--config", str(tmp_path / "cook.yaml"))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    # The file may be somebody else's.
    assert "Xy7tR" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TDABIAS_COOK_MINUTES", "0", r"got 0 \(TDABIAS_COOK_MINUTES\)"),
        ("TDABIAS_COOK_STIR", "perhaps", r"`stir` must be a valid boolean.*TDABIAS_COOK_STIR"),
        (
            "TDABIAS_COOK_MINUTE",
            "1",
            r"environment variable TDABIAS_COOK_MINUTE: .* did you mean `minutes`\?",
        ),
        ("TDABIAS_COOK_POT", "x", "environment variable TDABIAS_COOK_POT: unknown setting `pot`"),
    ],
)
def test_a_variable_that_does_not_fit_is_named(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=message):
        cook("cook", "pot", "--dish", "soup")


# -- where values come from --


def test_the_command_line_wins_over_the_environment_that_over_the_file_that_over_the_default(
    tmp_path, monkeypatch
):
    config = tmp_path / "cook.yaml"
    config.write_text("dish: file\nheat: high\nsalt: 0.25\nclass: first\n")
    monkeypatch.setenv("TDABIAS_COOK_DISH", "environment")
    monkeypatch.setenv("TDABIAS_COOK_SALT", "0.75")
    found = cook("cook", "pot", "-C", str(config), "--dish", "flag")
    assert (found.dish, found.salt, found.heat, found.minutes) == ("flag", 0.75, "high", 10)
    assert (found.pot, found.class_) == (Path("pot"), "first")


def test_every_option_can_be_set_in_the_environment(monkeypatch):
    values = {
        "DISH": "soup", "CLASS": "second", "HEAT": "high", "MINUTES": "3", "SALT": "0.1",
        "STIR": "false", "SPICES": "pepper, bay leaf", "SEED": "4",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"TDABIAS_COOK_{name}", value)
    assert cook("cook", "pot") == CookSettings(
        pot=Path("pot"), dish="soup", minutes=3, heat="high", salt=0.1, stir=False,
        spices=("pepper", "bay leaf"), seed=4, **{"class": "second"},
    )  # fmt: skip


def test_variables_of_a_part_are_not_those_of_the_whole(monkeypatch):
    monkeypatch.setenv("TDABIAS_COOK_RICE_SEED", "1")
    assert values_of_environment(CookSettings, ["cook"], parts=["rice"]) == {}
    found = values_of_environment(CookSettings, ["cook", "rice"])
    assert found == {"seed": ("1", "TDABIAS_COOK_RICE_SEED")}


def test_a_switch_of_the_file_can_be_taken_back(tmp_path):
    config = tmp_path / "cook.yaml"
    config.write_text("dish: soup\nstir: false\nspices: pepper\n")
    assert not cook("cook", "pot", "-C", str(config)).stir
    found = cook("cook", "pot", "-C", str(config), "--stir", "--spices", "a", "--spices", "b")
    assert found.stir
    assert found.spices == ("a", "b")


def test_a_file_of_the_whole_serves_its_part_and_wrong_names_are_still_refused(tmp_path):
    config = tmp_path / "kitchen.yaml"
    config.write_text("dish: soup\nplates: 3\n")
    assert cook("cook", "pot", "-C", str(config), file=KitchenSettings).dish == "soup"
    with pytest.raises(InputError, match="unknown setting `plates`"):
        cook("cook", "pot", "-C", str(config))
    config.write_text("dish: soup\nspoons: 3\n")
    with pytest.raises(InputError, match="unknown setting `spoons`"):
        cook("cook", "pot", "-C", str(config), file=KitchenSettings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paper_gpt2", HeadsSettings), ("quick", HeadsSettings), ("pvf_gender", PvfSettings),
        ("pvf_race", PvfSettings), ("pvf_religion", PvfSettings), ("pvf_disability", PvfSettings),
        ("pvf_gender_titles", PvfSettings), ("pvf_race_titles", PvfSettings),
        ("pvf_gender_mined", PvfSettings), ("pvf_gender_chinese", PvfSettings),
        ("unqover_gender", UnqoverSettings),
    ],
)  # fmt: skip
def test_the_configurations_of_the_project_are_valid(name, settings):
    flags = {} if settings is PvfSettings else {"model": "m"}
    flags |= {"category": "gender"} if settings is HeadsSettings else {}
    found = merged(settings, flags, config=Path("configs") / f"{name}.yaml")
    if settings is UnqoverSettings:
        design = sampled_design(load_class(found.class_), part_of(found, DesignConfig))
        assert design.n_questions == 70 * 70 * 4 * 70 * 4
    if settings is PvfSettings:
        own = {"pvf_gender_chinese": "classes.yaml"}
        assert found.attribute == own.get(name, name.split("_")[1])


# -- help and command lines --


def test_help_shows_types_limits_choices_defaults_and_square_brackets(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer(add_completion=False)
    app.command("cook")(taking(CookSettings, print))
    app(["--help"], prog_name="kitchen", standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in (
        "{pot}", "--dish <str> What is cooked (required).", "--class <str> Of the cook. --",
        "--heat <str> Of the stove (one of low, high; default: low).",
        "--minutes <int 1..600> On the stove (default: 10).", "--salt <float 0..1> A pinch",
        "--stir --no-stir <bool> All the time (default: True).",
        "--spices <list[str]> What else [pepper].", "--config -C <path> YAML file",
    ):  # fmt: skip
        assert text in shown, text
    assert shown.index("--dish") < shown.index("--class") < shown.index("--seed")


def test_a_command_line_gives_its_settings_again(monkeypatch):
    monkeypatch.setenv("TDABIAS_COOK_SEED", "7")
    given = cook(
        "cook", "my pot", "--dish", "a soup", "--class", "first", "--no-stir", "--spices", "x",
        "--spices", "y", "--minutes", "5",
    )  # fmt: skip
    line = command_line(["cook"], given)
    assert line.startswith("tdabias cook 'my pot' --dish 'a soup' --class first")
    monkeypatch.delenv("TDABIAS_COOK_SEED")
    import shlex

    assert cook(*shlex.split(line)[1:]) == given


def test_a_slash_after_a_folder_is_no_other_model():
    asked = [HeadsSettings(model=name, category="gender").model for name in ("./tiny/", "./tiny")]
    assert asked == ["./tiny"] * 2
    assert HeadsSettings(model="/", category="gender").model == "/"


@pytest.mark.parametrize("name", list(SPECS))
def test_nor_is_it_in_any_other_command(name):
    settings = imported(SPECS[name].settings)
    for option in {"model", "before", "after", "replicate"} & set(settings.model_fields):
        reader = TypeAdapter(settings.model_fields[option].rebuild_annotation())
        given = ("a/tiny/",) if option == "replicate" else "a/tiny/"
        read = reader.validate_python(given)
        assert read in ("a/tiny", ("a/tiny",), Path("a/tiny")), option
