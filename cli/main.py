"""The command line: registers commands, and turns every expected failure into one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console

from tda_bias.types import InputError

from . import ablate, crossref, export, figures, heads, pvf, reproduce, stereoset, unqover

app = typer.Typer(
    name="tdabias",
    help="Which attention heads carry a language model's stereotypes, and how sure are we.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("heads")(heads.heads)
app.add_typer(pvf.app, name="pvf")
app.command("unqover")(unqover.unqover)
app.command("ablate")(ablate.ablate)
app.command("export")(export.export)
app.command("crossref")(crossref.crossref)
app.command("stereoset")(stereoset.stereoset)
app.command("figures")(figures.figures)
app.command("reproduce")(reproduce.reproduce)

# Typer brings its own copy of click or uses the installed one, depending on its version: this is
# the base of its usage errors in either case.
_UsageError: type[Any] = next(k for k in typer.BadParameter.__mro__ if k.__base__ is Exception)


def _version(asked: bool) -> None:
    if asked:
        print(f"tdabias {version('tdabias')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        0; 1 after a failure that is a bug elsewhere; 2 for unusable input; 130 after Ctrl-C.
    """
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        result = app(args=arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except InputError as error:
        errors.print(f"Error: {error}")
    except _UsageError as error:
        errors.print(f"Error: {error.format_message()}")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return 2


def main() -> None:
    """Entry point of the ``tdabias`` script."""
    sys.exit(run())
