"""Failures that are expected, each as one line for a person."""

from __future__ import annotations

import re
from typing import Any


def expected(error: Exception) -> str | None:
    """The line for a person about an error; None if it is a mistake of the program."""
    from tda_bias.types import InputError

    if isinstance(error, InputError):
        return str(error)
    if hasattr(error, "format_message"):  # of the click that typer uses, its own or another
        usual = str(error.format_message()) + _option_for_argument(error)
        return _option_now(error) or usual
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: {error.filename}"[:400]
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which may not be loaded
        return "out of memory on the accelerator; lower --batch-size"
    return None


# Options whose values stand in the place of an argument most often, the likeliest first; before
# them the one that is called as the command.
_MEANT = ("model", "pairs", "attribute", "category")


def _option_for_argument(error: Any) -> str:
    """The option to use for an argument that a command does not take."""
    found = re.search(r"unexpected extra argument\S* \((\S+?)[ )]", error.format_message())
    context = getattr(error, "ctx", None)
    if found is None or context is None:
        return ""
    options = context.command.params
    if any(option.param_type_name == "argument" for option in options):
        return ""
    flags = {option.name: option.opts[0] for option in options}
    likely = sorted(_MEANT, key=lambda name: name != context.info_name)
    lacking = [name for name in likely if name in flags and not context.params.get(name)]
    return f"; options have names: {flags[lacking[0]]} {found[1]}" if lacking else ""


# Options that were called otherwise, by command.
_FORMER = {
    ("pairs", "--set"): "--pairs",
    ("compare", "--crows"): "--pairs crows --pairs-data",
    ("compare", "--blimp"): "--pairs blimp --pairs-data",
}


def _option_now(error: Any) -> str:
    """The message for an option that was renamed, with its new name; empty for other mistakes."""
    command, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    now = _FORMER.get((str(getattr(command, "info_name", "")), str(option)))
    return f"No such option: {option}; it is {now} now" if now else ""
