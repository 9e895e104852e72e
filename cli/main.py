"""The entry point: turns every expected failure into one line, and an interruption into 130."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """Entry point of the ``tdabias`` script."""
    try:
        _stop_as_with_ctrl_c()
        _prepare_streams()
        _prepare_libraries()
        status = run()
        sys.stdout.flush()
    except BaseException as error:
        # What a library makes of an interruption can be any other error.
        if _signals or isinstance(error, KeyboardInterrupt):
            status = INTERRUPTED
        elif isinstance(error, OSError) and error.filename is None:
            status = _cannot_print(error)  # errors of files name the file
        else:
            raise
    gc.freeze()  # what is loaded need not be searched once more before the prompt: 1.5 s
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        0; 2 for unusable input; 130 after Ctrl-C, SIGTERM or SIGHUP.
    """
    import typer
    from rich.console import Console

    from tda_bias.types import ShareDone

    from .program import program

    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if arguments is None:
        arguments = sys.argv[1:]
    try:
        # Without a command, help: typer would end with an error that has no text.
        result = program()(list(arguments) or ["--help"], "tdabias", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except ShareDone as done:
        if str(done):
            errors.print(str(done))
        return 0
    except Exception as error:
        message = _message(error)
        if message is None or _signals:
            raise
        from tda_bias.store.cache import launched

        index, count = launched()
        who = f"Process {index + 1} of {count}: " if count > 1 else ""
        errors.print(f"{who}Error: {_printable(message)}")
        return 2


def _message(error: Exception) -> str | None:
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


# Options whose values stand in the place of an argument most often, the likeliest first.
_MEANT = ("pairs", "model", "attribute", "category")


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
    lacking = [name for name in _MEANT if name in flags and not context.params.get(name)]
    return f"; options have names: {flags[lacking[0]]} {found[1]}" if lacking else ""


# Options that were called otherwise, by command.
_FORMER = {("pairs", "--set"): "--pairs"}


def _option_now(error: Any) -> str:
    """What to type for an option that has another name now; empty for every other mistake."""
    command, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    now = _FORMER.get((str(getattr(command, "info_name", "")), str(option)))
    return f"No such option: {option}; it is {now} now" if now else ""


def _printable(text: str) -> str:
    """A message in one line that sends no commands to a terminal, whatever it quotes from data."""
    kept = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text.strip())
    return "".join(kept)


_signals: list[int] = []  # that asked the program to stop


def _stop(number: int, _: object) -> None:
    _signals.append(number)
    raise KeyboardInterrupt


def _stop_as_with_ctrl_c() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C; what is ignored, as under nohup, stays so."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            # One that knows fewer characters than a text gets an escape for each of the others.
            stream.reconfigure(errors="backslashreplace")


def _prepare_libraries() -> None:
    """Set how libraries wait and what they print; variables that the user has set win.

    Loading them makes half a million objects that stay: the garbage collector searches all of them
    twice in a short run of ``heads``, and not nine times.

    Threads of OpenMP spin while they wait for each other: next to other programs a step of training
    then takes several times as long. transformers reports what a checkpoint lacks or has besides,
    with bars while it reads one; matplotlib says where it keeps its fonts.
    """
    import logging

    gc.set_threshold(20_000, 5, 2)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "MPLCONFIGDIR" not in os.environ:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _cannot_print(error: OSError) -> int:
    """Say that standard output takes nothing, and keep Python from trying again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    text = f"Error: cannot write to standard output: {error.strerror}; files that are done are kept"
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(1, 2)  # nor does the other one
    return 2


if __name__ == "__main__":
    main()
