"""Settings from plain values and YAML, with errors of one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from tda_bias.types import InputError

Settings = TypeVar("Settings", bound=BaseModel)


def validated(
    settings: type[Settings],
    values: Mapping[str, Any],
    *,
    given_as: Literal["options", "file"] = "options",
) -> Settings:
    """Settings from plain values.

    Args:
        settings: The class to build.
        values: Its fields by name.
        given_as: Whether a missing one could be given as an option.

    Raises:
        InputError: naming the first value that does not fit and what is allowed.
    """
    try:
        return settings(**values)
    except ValidationError as error:
        message = _one_line(error, settings)
        first = error.errors()[0]
        if first["type"] == "missing" and given_as == "options":
            message += f"; give --{str(first['loc'][0]).replace('_', '-')}"
        raise InputError(message) from None


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML text.

    Raises:
        InputError: if it is none; ``where`` begins the message, which names the line.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise InputError(f"{where} is not YAML{line}") from None


def unknown_setting(name: str, settings: type[BaseModel]) -> str:
    """What to say of a setting that does not exist."""
    return f"unknown setting `{name}`; allowed are {', '.join(setting_names(settings))}"


def setting_names(settings: type[BaseModel]) -> list[str]:
    """Settings as they are written in a file."""
    return [field.alias or name for name, field in settings.model_fields.items()]


def _one_line(error: ValidationError, settings: type[BaseModel]) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    given = first.get("input")
    match first["type"]:
        case "extra_forbidden":
            return unknown_setting(name, settings)
        case "missing":
            return f"`{name}` is missing"
        case "literal_error":
            allowed = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
            return f"`{name}` must be one of {allowed}; got {given!r}"
        case "value_error":
            return f"`{name}` {first['ctx']['error']}" if name else f"{first['ctx']['error']}"
        case _:
            rule = first["msg"].removeprefix("Input should be ")
            return f"`{name}` must be {rule}; got {given!r}"
