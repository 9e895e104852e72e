"""Settings from plain values and YAML, with errors of one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tda_bias.types import InputError

Settings = TypeVar("Settings", bound=BaseModel)

# A file of settings or of word lists is far smaller and flatter than either.
_MAX_CHARACTERS = 1_000_000
_MAX_DEPTH = 20


def validated(
    settings: type[Settings],
    values: Mapping[str, Any],
    *,
    given_as: Literal["options", "file"] = "options",
    source: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from plain values.

    Args:
        settings: The class to build.
        values: Its fields by the names that are written in a file.
        given_as: Whether a missing one could be given as an option.
        source: Where values come from, for the message, where that is not plain.

    Raises:
        InputError: naming the first value that does not fit and what is allowed.
    """
    by_name = {field.alias or name: field for name, field in settings.model_fields.items()}
    for name, value in values.items():
        where = _where(name, source)
        if isinstance(value, bool) and name in by_name and is_number(by_name[name]):
            raise InputError(f"`{name}` must be a number; got {str(value).lower()}{where}")
        _refuse_unprintable(name, str(value), where)
    try:
        return settings(**values)
    except ValidationError as error:
        # A value that does not fit says more than one that is not there.
        first = min(error.errors(), key=lambda fault: fault["type"] == "missing")
        message = _one_line(first, settings)
        if first["loc"]:
            message += _where(str(first["loc"][0]), source)
        if first["type"] == "missing" and given_as == "options":
            message += f"; give --{str(first['loc'][0]).replace('_', '-')}"
        raise InputError(message) from None


def _refuse_unprintable(name: str, text: str, where: str) -> None:
    if "\0" in text:
        raise InputError(f"`{name}` holds a NUL character{where}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"`{name}` holds bytes that are no UTF-8 text{where}") from None


def _where(name: str, source: Mapping[str, str] | None) -> str:
    where = (source or {}).get(name)
    return f" ({where})" if where else ""


# -- YAML ------------------------------------------------------------------------------------------


def read_settings(path: Path) -> dict[str, Any]:
    """A YAML file with one mapping of settings.

    Raises:
        InputError: if it cannot be read or is something else.
    """
    where = f"`config` {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise InputError(f"{where} is not YAML") from None
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{where}: {reason}") from None
    content = parse_yaml(text, where)
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{where} must hold `setting: value` lines")
    return content


class _PlainLoader(yaml.SafeLoader):
    """YAML with text, decimal numbers, truth values, lists and mappings, and nothing else."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, bool) or not isinstance(key, str | int | float):
                raise _RefusedError("a key must be a word; put it in quotes", key_node.start_mark)
            if key in seen:
                raise _RefusedError(f"{key!r} stands there twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        text = str(node.value)
        digits = text.lstrip("+-")
        # YAML 1.1 reads 010 as 8, 0x10 as 16 and 1:30 as 90, which nobody means here.
        if not digits.isascii() or not digits.isdigit() or (digits[0] == "0" and digits != "0"):
            raise _RefusedError(f"{text} is not a plain decimal number", node.start_mark)
        if len(digits) > 18:
            raise _RefusedError("a number has more than 18 digits", node.start_mark)
        return int(text)

    def construct_fraction(self, node: yaml.ScalarNode) -> float:
        if ":" in node.value or "_" in node.value:
            raise _RefusedError(f"{node.value} is not a plain decimal number", node.start_mark)
        return float(self.construct_yaml_float(node))

    def construct_undefined(self, node: yaml.Node) -> Any:
        raise _RefusedError(
            "no text, number, list or mapping; put a text in quotes", node.start_mark
        )


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_decimal)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_fraction)
_PlainLoader.add_constructor(None, _PlainLoader.construct_undefined)
for _kind in ("binary", "timestamp", "omap", "pairs", "set"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _PlainLoader.construct_undefined)


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML text.

    Aliases are refused, because a few lines of them stand for more than any memory holds; so are
    keys that stand twice, of which YAML keeps the last, and numbers that are not decimal.

    Raises:
        InputError: if it is none; ``where`` begins the message, which names the line.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InputError(f"{where} has more than {_MAX_CHARACTERS:,} characters")
    try:
        _refuse_deep(text)
        return yaml.load(text, Loader=_PlainLoader)
    except _RefusedError as error:
        raise InputError(f"{where}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise InputError(f"{where} is not YAML{line}") from None


def _refuse_deep(text: str) -> None:
    """Look at the events alone, before anything is built of them."""
    depth = 0
    for event in yaml.parse(text, Loader=_PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _RefusedError("aliases cannot be used", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise _RefusedError(f"nested more than {_MAX_DEPTH} deep", event.start_mark)


class _RefusedError(Exception):
    """YAML, but not what can be used here."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(f"{problem} (line {mark.line + 1})")


# -- what a class of settings allows ---------------------------------------------------------------


def plain_type(field: FieldInfo) -> Any:
    """The type of a setting without ``None``, annotations and the tuple around several."""
    inner = _without_none(field.annotation)
    return _without_none(get_args(inner)[0]) if get_origin(inner) is tuple else inner


def takes_several(field: FieldInfo) -> bool:
    """Tell whether a setting is a tuple."""
    return get_origin(_without_none(field.annotation)) is tuple


def is_number(field: FieldInfo) -> bool:
    """Tell whether a setting is a number."""
    return plain_type(field) in (int, float)


def _without_none(annotation: Any) -> Any:
    while get_origin(annotation) in (Annotated, Union, UnionType):
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            annotation = next(a for a in get_args(annotation) if a is not type(None))
    return annotation


def unknown_setting(name: str, settings: type[BaseModel], *, but: Collection[str] = ()) -> str:
    """Message about a setting that does not exist."""
    allowed = [known for known in setting_names(settings) if known not in but]
    return f"unknown setting `{name}`; allowed are {', '.join(allowed)}"


def setting_names(settings: type[BaseModel]) -> list[str]:
    """Settings as they are written in a file."""
    return [field.alias or name for name, field in settings.model_fields.items()]


def _one_line(first: ErrorDetails, settings: type[BaseModel]) -> str:
    name = str(first["loc"][0]) if first["loc"] else ""
    given = first.get("input")
    match first["type"]:
        case "extra_forbidden":
            return unknown_setting(name, settings)
        case "missing":
            return f"`{name}` is missing"
        case "literal_error":
            allowed = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
            return f"`{name}` must be one of {allowed}; got {_shown(given)}"
        case "string_too_short" | "too_short":
            return f"`{name}` must not be empty"
        case "value_error":
            return f"`{name}` {first['ctx']['error']}" if name else f"{first['ctx']['error']}"
        case _:
            # What follows a comma is how pydantic tried: "unable to parse string as an integer".
            rule = first["msg"].removeprefix("Input should be ").split(",")[0]
            number = name in settings.model_fields and is_number(settings.model_fields[name])
            return f"`{name}` must be {rule}; got {_shown(given, quoted=not number)}"


def _shown(value: Any, *, quoted: bool = True) -> str:
    text = repr(value) if quoted or not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
