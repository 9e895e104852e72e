"""Options of a command, built from its settings: each is declared once, in a pydantic class.

A value comes from, the first that has it:

1. the command line: ``--n-permutations 999``;
2. the environment: ``TDABIAS_<COMMAND>_<OPTION>``, for example
   ``TDABIAS_HEADS_N_PERMUTATIONS=999`` or ``TDABIAS_PVF_RISK_SEED=1``; several values stand with
   commas between them;
3. the YAML file of ``--config``: ``n_permutations: 999``;
4. the default that the class gives.

What is given by its place (a folder of a run) comes from the command line alone. All values meet
the same checks, those of the class.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.markup import escape

from tda_bias.store.settings import (
    is_number,
    plain_type,
    read_settings,
    setting_names,
    takes_several,
    unknown_setting,
    validated,
)
from tda_bias.types import MAX_COUNT, InputError

Settings = TypeVar("Settings", bound=BaseModel)

# One letter means the same in every command.
SHORT = {
    "attribute": "-a",
    "batch_size": "-b",
    "category": "-c",
    "config": "-C",
    "documents": "-n",
    "k": "-k",
    "limit": "-L",
    "model": "-m",
    "out": "-o",
}
# What few need: listed after the others, in a panel of its own.
_ADVANCED = {
    "adjust", "allowed", "anchor", "batch_size", "check_items", "cluster", "device_map", "domain",
    "dtype", "forms", "keep_patterns", "n_rates", "n_splits", "overwrite", "precision", "pvalue",
    "random_seed", "resume", "seed", "shard", "start", "train_items", "width", "windows",
}  # fmt: skip
# What most commands have stands last in their help, in this order.
_LAST = ("top", "limit", "seed", "out", "config", "resume", "format", "quiet", "verbose")
_VALUE = re.compile(r"[\w-]+(,| \(| and | or |/)")
_CONFIG = Annotated[
    Path | None,
    typer.Option("--config", SHORT["config"], help="YAML file of settings; flags win."),
]


class Positional:
    """Marks a setting that is given by its place: ``run: Annotated[Path, Positional()]``."""


def taking(
    settings: type[Settings],
    does: Callable[[Settings], None],
    *,
    file: type[BaseModel] | None = None,
) -> Callable[..., None]:
    """Make what takes settings a function for typer, with an option for each of their fields.

    Args:
        settings: The command's settings; descriptions are the help texts.
        does: What is done with them.
        file: Settings of a whole that this command is a part of: a configuration file of the whole
            serves here too, and what it says of other parts is passed over.
    """

    def run(context: typer.Context, config: Path | None = None, **given: Any) -> None:
        flags = {name: value for name, value in given.items() if value not in (None, [])}
        words = context.command_path.split()[1:]  # without the program's name
        if context.invoked_subcommand is not None:
            if flags or config:
                name = next(iter(flags), "config").rstrip("_").replace("_", "-")
                command = " ".join(["tdabias", *words, context.invoked_subcommand])
                raise InputError(f"give --{name} after the command: {command} --...")
            return
        # Without a name there is nothing that variables could begin with.
        parts = getattr(context.command, "commands", {})
        environment = values_of_environment(settings, words, parts=parts) if words else {}
        chosen = merged(settings, flags, environment=environment, config=config, file=file)
        if getattr(chosen, "quiet", False):
            logging.disable(logging.WARNING)
        try:
            does(chosen)
        finally:
            logging.disable(logging.NOTSET)

    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *_parameters(settings),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def merged(
    settings: type[Settings],
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, tuple[Any, str]] | None = None,
    config: Path | None = None,
    file: type[BaseModel] | None = None,
) -> Settings:
    """Settings from flags, the environment and a file; the first that names a value has it.

    Flags are named as fields; ``environment`` is of ``values_of_environment``, ``file`` as in
    ``taking``.

    Raises:
        InputError: on an unknown name, a value that does not fit, or an unreadable file.
    """
    fields = settings.model_fields
    given = {
        **_of_file(config, settings, file or settings),
        **(environment or {}),
        **{fields[name].alias or name: (value, "") for name, value in flags.items()},
    }
    source = {name: where for name, (_, where) in given.items()}
    return validated(settings, {name: value for name, (value, _) in given.items()}, source=source)


def command_line(words: list[str], settings: BaseModel) -> str:
    """A command line that gives these settings again: everything that is not a default."""
    arguments, options = [], []
    fields = type(settings).model_fields
    for name in _declared(type(settings)):
        field, value = fields[name], getattr(settings, name)
        if name not in settings.model_fields_set or value is None:
            continue
        several = list(value or ["none"]) if isinstance(value, tuple) else [value]
        flag = _flag(name, field)
        if _by_place(field):
            arguments += [str(item) for item in several]
        elif isinstance(value, bool):
            if value != field.default:
                options.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            options += [word for item in several for word in (flag, str(item))]
    return shlex.join(["tdabias", *words, *arguments, *options])


# -- where values come from ------------------------------------------------------------------------


def _of_file(
    config: Path | None, settings: type[BaseModel], whole: type[BaseModel]
) -> dict[str, tuple[Any, str]]:
    if config is None:
        return {}
    values, by_place = read_settings(config), _names_by_place(settings)
    here = set(setting_names(settings)) - by_place
    for name in values:
        if name in by_place:
            raise InputError(f"{config}: `{name}` is given on the command line, not in a file")
        if name not in here | set(setting_names(whole)):
            raise InputError(f"{config}: {unknown_setting(name, settings, but=by_place)}")
    return {name: (value, str(config)) for name, value in values.items() if name in here}


def values_of_environment(
    settings: type[BaseModel], words: list[str], *, parts: Collection[str] = ()
) -> dict[str, tuple[Any, str]]:
    """Values and variables of a command's settings, by name, from the environment.

    ``words`` are the command's, ``["pvf", "risk"]``; variables of its ``parts`` begin alike.

    Raises:
        InputError: on a variable that begins like the command's and is none of them.
    """
    begin = "_".join(["TDABIAS", *words, ""]).upper()
    others = tuple(f"{begin}{part}_".upper() for part in parts)
    by_place = _names_by_place(settings)
    by_name = {field.alias or name: field for name, field in settings.model_fields.items()}
    values: dict[str, tuple[Any, str]] = {}
    for variable, text in os.environ.items():
        if not variable.startswith(begin) or variable.startswith(others):
            continue
        name = variable.removeprefix(begin).lower()
        if name not in by_name or name in by_place:
            unknown = unknown_setting(name, settings, but=by_place)
            raise InputError(f"environment variable {variable}: {unknown}")
        several = [part.strip() for part in text.split(",")]
        values[name] = (several if takes_several(by_name[name]) else text, variable)
    return values


# -- the signature ---------------------------------------------------------------------------------


def _parameters(settings: type[BaseModel]) -> Iterator[inspect.Parameter]:
    """Parameters for typer, one for each setting, and ``--config``.

    In the order of the help: what must be given, the command's settings, those that all have.
    """
    fields = settings.model_fields
    names = [name for name in _declared(settings) if name not in _LAST]
    names.sort(key=lambda name: not fields[name].is_required())
    for name in (*names, *(name for name in _LAST if name in fields or name == "config")):
        required = name != "config" and _by_place(fields[name]) and fields[name].is_required()
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=_CONFIG if name == "config" else _annotation(name, fields[name]),
            default=inspect.Parameter.empty if required else None,
        )


def _declared(settings: type[BaseModel]) -> list[str]:
    """Fields in the order of classes: the command's own first, then those it shares."""
    names = [name for part in settings.__mro__ for name in getattr(part, "__annotations__", {})]
    return [name for name in dict.fromkeys(names) if name in settings.model_fields]


def _annotation(name: str, field: FieldInfo) -> Any:
    """A typer parameter. All but switches are read as text, so that the class alone checks them."""
    plain, choices = plain_type(field), _choices(field)
    about: dict[str, Any] = {"help": _help(field), "autocompletion": None}
    if choices:
        about["autocompletion"] = lambda incomplete: [
            c for c in choices if c.startswith(incomplete)
        ]
    if _by_place(field):
        kind: Any = plain if plain in (str, Path) else str
        return Annotated[list[kind] if takes_several(field) else kind, typer.Argument(**about)]
    flag = _flag(name, field)
    about["rich_help_panel"] = "Advanced" if name in _ADVANCED else None
    if plain is bool:
        off = f"/--no-{flag.removeprefix('--')}" if field.default else ""
        return Annotated[bool | None, typer.Option(flag + off, **about)]
    names = [flag, SHORT[name]] if name in SHORT else [flag]
    option = typer.Option(*names, metavar=_type_name(field), **about)
    return Annotated[list[str] | None if takes_several(field) else str | None, option]


def _flag(name: str, field: FieldInfo) -> str:
    return f"--{(field.alias or name).replace('_', '-')}"


def _help(field: FieldInfo) -> str:
    """The description as a sentence, with the choices that it does not name, and the default."""
    text = (field.description or "").removesuffix(".")
    choices, remarks = _choices(field), []
    # A value that begins a list of values keeps its letters.
    if not (_VALUE.match(text) and not is_number(field)) and text.split(":")[0] not in choices:
        text = text[:1].upper() + text[1:]
    if choices and not all(choice in text for choice in choices):
        remarks.append(f"one of {', '.join(choices)}")
    if field.is_required() and not _by_place(field):
        remarks.append("required")
    elif not field.is_required() and field.default is not False and field.default not in (None, ()):
        default = field.default if isinstance(field.default, tuple) else (field.default,)
        remarks.append(f"default: {', '.join(map(str, default))}")
    # Round brackets, and escaped: square ones are markup in help texts, and vanish.
    return escape(f"{text} ({'; '.join(remarks)})." if remarks else f"{text}.")


def _type_name(field: FieldInfo) -> str:
    """The type and its limits: ``<int 1..100>``."""
    name = {int: "int", float: "float", Path: "path"}.get(plain_type(field), "str")
    if takes_several(field):
        return f"<list[{name}]>"
    ends: dict[str, Any] = {}
    for rule in field.metadata if is_number(field) else ():
        ends |= {end: getattr(rule, end) for end in ("ge", "gt", "le", "lt") if hasattr(rule, end)}
    low, high = ends.get("ge", ends.get("gt", "")), ends.get("le", ends.get("lt", ""))
    # A limit that only a slip reaches is not worth a word.
    high = "" if high != "" and high >= MAX_COUNT else high
    return f"<{name} {low}..{high}>" if ends else f"<{name}>"


def _names_by_place(settings: type[BaseModel]) -> set[str]:
    fields = settings.model_fields.items()
    return {field.alias or name for name, field in fields if _by_place(field)}


def _by_place(field: FieldInfo) -> bool:
    return any(isinstance(mark, Positional) for mark in field.metadata)


def _choices(field: FieldInfo) -> tuple[str, ...]:
    plain = plain_type(field)
    return get_args(plain) if get_origin(plain) is Literal else ()
