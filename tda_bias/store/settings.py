"""Settings from plain values and YAML, with errors of one line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tda_bias.types import InputError

Settings = TypeVar("Settings", bound=BaseModel)


def validated(
    settings: type[Settings],
    values: Mapping[str, Any],
    *,
    given_as: Literal["options", "file"] = "options",
    source: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from plain values by the names that are written in a file.

    Args:
        settings: The class to build.
        values: Its fields.
        given_as: Whether a missing one could be given as an option.
        source: Where values come from, by name, for the message.

    Raises:
        InputError: naming the first value that does not fit and what is allowed.
    """
    by_name = {field.alias or name: field for name, field in settings.model_fields.items()}
    origin = {name: f" ({where})" for name, where in (source or {}).items() if where}
    for name, value in values.items():
        where = origin.get(name, "")
        if isinstance(value, bool) and name in by_name and is_number(by_name[name]):
            raise InputError(f"`{name}` must be a number; got {str(value).lower()}{where}")
        if "\0" in str(value):
            raise InputError(f"`{name}` holds a NUL character{where}")
        try:
            str(value).encode()
        except UnicodeEncodeError:
            raise InputError(f"`{name}` holds bytes that are no UTF-8 text{where}") from None
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        # A value that does not fit says more than one that is not there.
        first = min(error.errors(), key=lambda fault: fault["type"] == "missing")
        name = str(first["loc"][0]) if first["loc"] else ""
        message = _one_line(name, first, settings) + origin.get(name, "")
        if first["type"] == "missing" and given_as == "options":
            message += f"; give --{name.replace('_', '-')}"
        raise InputError(message) from None


@contextmanager
def given_as(setting: str) -> Iterator[None]:
    """Make messages about ``data`` name the setting that the texts were given as."""
    try:
        yield
    except InputError as error:
        message = str(error).replace("`data`", f"`{setting}`")
        raise type(error)(message.replace("--data", f"--{setting.replace('_', '-')}")) from error


# -- YAML ------------------------------------------------------------------------------------------


def read_settings(path: Path) -> dict[str, Any]:
    """A YAML file with one mapping of settings.

    Raises:
        InputError: if it cannot be read or is something else.
    """
    where = f"`config` {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{where} is not YAML") from None
    content = parse_yaml(text, where)
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{where} must hold `setting: value` lines")
    return content


# From the first quotation of content in a message on; what stands in brackets is of the grammar.
_QUOTED = re.compile(r"'(?!<).*", re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Plain YAML in which each key stands once; of one that stands twice, the last would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the key{shown_key(key.value)} stands there twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML text, in which no key may stand twice.

    Raises:
        InputError: if it is none; ``where`` begins the message, which names the line and quotes
            nothing but keys that look like one (``shown_key``).
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        said = _QUOTED.sub("", str(error.problem)).rstrip(" ,")
        raise InputError(f"{where} is not YAML{line}: {said}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # odd characters, no date, too deep
        raise InputError(f"{where} is not YAML") from None


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
    meant = get_close_matches(name, allowed, n=1)
    hint = f" did you mean `{meant[0]}`?" if meant else ""
    shown = f" `{name}`" if meant else shown_key(name)
    return f"unknown setting{shown};{hint} allowed are {', '.join(allowed)}"


def shown_key(key: object) -> str:
    """A key of a file for a message, with a space before; empty if it does not look like one.

    The file may be another than was meant, and hold what is nobody's business.

    Examples:
        >>> shown_key("rank_by"), shown_key("h.0.attn"), shown_key("Xy7:tR!")
        (' `rank_by`', ' `h.0.attn`', '')
    """
    return f" `{key}`" if re.fullmatch(r"[a-z_-]+(?:\.[a-z_\d-]+)*", str(key)) else ""


def setting_names(settings: type[BaseModel]) -> list[str]:
    """Settings as they are written in a file."""
    return [field.alias or name for name, field in settings.model_fields.items()]


def _one_line(name: str, first: ErrorDetails, settings: type[BaseModel]) -> str:
    given = first.get("input")
    shown = repr(given)
    match first["type"]:
        case "extra_forbidden":
            return unknown_setting(name, settings)
        case "invalid_key":
            return f"`{name}` must be a text"
        case "missing":
            return f"`{name}` is missing"
        case "literal_error":
            rule = "one of " + first["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        case "string_too_short" | "too_short":
            return f"`{name}` must not be empty"
        case "value_error":
            return f"`{name}` {first['ctx']['error']}" if name else f"{first['ctx']['error']}"
        case _:
            # What follows a comma is how pydantic tried: "unable to parse string as an integer".
            rule = first["msg"].removeprefix("Input should be ").split(",")[0]
            if name in settings.model_fields and is_number(settings.model_fields[name]):
                shown = str(given)
    return f"`{name}` must be {rule}; got {shown if len(shown) <= 80 else f'{shown[:77]}...'}"
