"""The program that typer runs: its commands with their help and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from tda_bias.show.output import print_each
from tda_bias.show.terminal import say

from .commands import PANELS, PARTS, SPECS
from .spec import Spec, imported


class _Program(TyperGroup):
    """Loads the command that is asked for, and no other."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, with its options."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """A command with its options; one with commands inside is a group of them."""
    spec, parts = SPECS[name], [part for part in PARTS if part.name.startswith(f"{name} ")]
    app = typer.Typer(add_completion=False, invoke_without_command=True)
    if parts:
        app.callback(help=spec.help)(_function(spec))
        for part in parts:
            last = part.name.split()[-1]
            app.command(last, help=part.help, rich_help_panel=part.panel)(_function(part))
    else:
        app.command(name, help=spec.help)(_function(spec))
    made = typer.main.get_command(app)
    if spec.example:
        made.epilog = f"[bold]Example[/bold]\n{escape(spec.example)}"
    return made


def _function(spec: Spec) -> Callable[..., None]:
    from .options import taking
    from .run import perform

    def does(settings: Any) -> None:
        failures = print_each(perform(spec, settings), settings)
        if failures:
            say(settings.console, f"Failed: {'; '.join(failures)}.")
            raise typer.Exit(1)

    return taking(imported(spec.settings), does, file=imported(spec.file) if spec.file else None)


def program() -> Any:
    """The program, ready to be called with a command line."""
    app = typer.Typer(
        name="tdabias",
        cls=_Program,
        help="Which attention heads carry a language model's stereotypes, and how sure are we.",
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    whole: Any = typer.main.get_command(app)
    whole.commands = {
        spec.name: TyperCommand(spec.name, help=spec.summary, rich_help_panel=panel)
        for panel, specs in PANELS.items()
        for spec in specs
    }
    return whole


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"tdabias {version('tdabias')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself."""
