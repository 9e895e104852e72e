"""The commands there are; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .examples import epilog

# Module and function of each command, or module with an ``app`` of several, by its name; and the
# first sentence of its help, so that the program's own help imports none of them. In the order of
# the work, a panel of the help each.
PANELS = {
    "Measure": {
        "heads": "Rank a model's attention heads by how differently they hold stereotypes "
        "together.",
        "stereoset": "Score a model on StereoSet: stereotype, language-model and idealised CAT "
        "score.",
        "pairs": "Score a model on minimal pairs: CrowS-Pairs, WinoBias, Winogender, BLiMP, or "
        "your own.",
        "pvf": "Prejudice and volatility in a model's output probabilities.",
        "unqover": "Ask underspecified questions about pairs of people, and measure whom the model "
        "picks.",
    },
    "Test": {
        "confirm": "Choose heads on half of the targets and test them on the others, or on other "
        "data.",
        "crossref": "Correlate, over StereoSet's targets, what heads do with what the model says.",
        "ablate": "Remove heads of a run and measure what changes; compare with random heads.",
        "prune-curve": "Remove more and more heads by rankings: what is left of the bias, at what "
        "cost.",
    },
    "Change": {
        "edit": "Switch off, damp or average heads for good; the model loads with plain "
        "transformers.",
        "export": "Write chosen heads for other programs: rule, p and q, parameter names and "
        "slices.",
        "debias": "Train chosen heads for less bias, and compare with random and all heads.",
        "compare": "Measure two models alike, item by item: what changed, how sure, and at what "
        "cost.",
    },
    "Read": {
        "report": "Write one page that opens anywhere: findings, map of heads, texts, charts, "
        "tables.",
        "show": "Print a finished run again, from its folder and without the model.",
        "figures": "Draw every figure and table that saved runs allow, ready for print.",
        "reproduce": "Run what the head paper did and write one page that sets its values beside "
        "these.",
        "ls": "List models, data, categories and groups that can be used here, or finished runs.",
    },
    "Texts": {
        "twins": "Make the twins of triples: the same texts about the other gender or another "
        "target.",
    },
}
COMMANDS = {name: text for commands in PANELS.values() for name, text in commands.items()}


class _Program(TyperGroup):
    """The commands of the table, as the program's help lists them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=text, rich_help_panel=panel)
            for panel, commands in PANELS.items()
            for name, text in commands.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """A command with its options, from the module of its name.

    The module holds a function of that name that ``options.command`` made, or ``app``, a group.
    """
    word = name.replace("-", "_")
    module = import_module(f".{word}", __package__)
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name)(getattr(module, word))
    made = typer.main.get_command(app)
    made.epilog = epilog(name)
    return made


def program() -> Any:
    """The program, ready to be called with a command line."""
    app = typer.Typer(
        name="tdabias",
        cls=_Program,
        help="Which attention heads carry a language model's stereotypes, and how sure are we.",
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    return typer.main.get_command(app)


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
