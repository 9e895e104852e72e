"""A slip of the finger asks for no hundred gigabytes: every number has an end, told before work."""

import pkgutil
from importlib import import_module

import pytest
from annotated_types import Le, Lt
from pydantic import BaseModel

from tda_bias.runs.settings import is_number
from tda_bias.types import MAX_RESAMPLES
from tdabias_cli.main import run


def settings_classes():
    import tdabias_cli

    found = []
    for module in pkgutil.iter_modules(tdabias_cli.__path__):
        if module.name == "__main__":
            continue
        found += [
            value
            for value in vars(import_module(f"tdabias_cli.{module.name}")).values()
            if isinstance(value, type) and issubclass(value, BaseModel)
            if value.__module__ == f"tdabias_cli.{module.name}"
        ]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("settings", settings_classes(), ids=lambda one: one.__name__)
def test_every_number_has_an_upper_limit(settings):
    for name, field in settings.model_fields.items():
        if is_number(field):
            assert any(isinstance(rule, Le | Lt) for rule in field.metadata), name


@pytest.mark.parametrize(
    "command",
    [
        ["heads", "-m", "nowhere", "-c", "gender", "--n-resamples"],
        ["stereoset", "-m", "nowhere", "-c", "gender", "--n-resamples"],
        ["pvf", "-m", "nowhere", "-a", "gender", "--n-resamples"],
        ["pvf", "risk", "nowhere", "--n-resamples"],
        ["unqover", "-m", "nowhere", "--class", "gender", "--n-resamples"],
        ["unqover", "-m", "nowhere", "--class", "gender", "--n-flips"],
        ["crossref", "nowhere", "nowhere", "--n-resamples"],
        ["ablate", "nowhere", "--n-resamples"],
    ],
)
@pytest.mark.parametrize("number", ["10000000000", "9" * 30, "9" * 5000])
def test_more_draws_than_anybody_needs_are_refused_before_anything_is_read(command, number, capsys):
    assert run([*command, number]) == 2
    error = capsys.readouterr().err
    name = command[-1].removeprefix("--").replace("-", "_")
    assert error.startswith(f"Error: `{name}` must be ")
    assert len(error) < 250
    if len(number) == 11:
        assert f"less than or equal to {MAX_RESAMPLES}; got 10000000000" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ablate", "x", "--n-random", "100000"], "`n_random` must be less than or equal to 1000"),
        (["heads", "-m", "x", "-c", "all", "--device", "meta"], "`device` must be auto, cpu, cuda"),
        (["heads", "-m", "x", "-c", "all", "--device", "cuda:1:2"], "`device` must be auto, cpu"),
        (["ablate", "x", "--device", "xla"], "`device` must be auto, cpu, cuda, cuda:N or mps"),
        (["heads", "-m", "m" * 3000, "-c", "all"], "`model` must not have more than 255 bytes"),
        (["heads", "-m", "", "-c", "all"], "`model` must not be empty"),
        (["export", "x", "--to", "a/" * 2000 + "b"], "`to` must not have more than 100 folders"),
        (["pvf", "-m", "a", "-m", "a", "-a", "gender"], "model must not be given twice"),
        (["figures", "x", "--out", "o" * 300], "`out` must not have more than 255 bytes"),
        (["pvf", "plot", "x" * 300], "`runs` must not have more than 255 bytes"),
    ],
)
def test_what_no_machine_takes_is_one_line(arguments, message, capsys):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert len(error) < 300
