"""The entry point: turns every expected failure into one line, and an interruption into 130.

Next to nothing is imported before interruptions are looked after: not even ``typing``.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def main() -> None:
    """Entry point of the ``tdabias`` script."""
    stop = _Stop()
    stop.listen()
    try:
        status = run()
    except BaseException:
        # An interruption while modules are loaded comes out as whatever error they make of it.
        if not stop.asked:
            raise
        status = 130
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        0; 2 for unusable input; 130 after Ctrl-C, SIGTERM or SIGHUP.
    """
    import typer
    from rich.console import Console

    from tda_bias.types import InputError

    from .commands import program

    if arguments is None:
        arguments = sys.argv[1:]
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    # Typer brings its own copy of click or uses the installed one, depending on its version: this
    # is the base of its usage errors in either case.
    usage_error: type[Any] = next(k for k in typer.BadParameter.__mro__ if k.__base__ is Exception)
    try:
        # Without a command, help: typer would end with an error that has no text.
        result = program()(list(arguments) or ["--help"], "tdabias", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except InputError as error:
        errors.print(f"Error: {error}")
    except usage_error as error:
        errors.print(f"Error: {error.format_message()}")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return 2


class _Stop:
    """SIGTERM and SIGHUP are treated as Ctrl-C: what is finished is kept, and named."""

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # What is ignored stays so: under nohup, and in the background of a script.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)

    def __call__(self, *_: object) -> None:
        self.asked = True
        raise KeyboardInterrupt
