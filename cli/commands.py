"""The commands there are; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

# Module and function of each command, or module with an ``app`` of several, by its name; and the
# first sentence of its help, so that the program's own help imports none of them. In the order of
# the work, a panel of the help each.
PANELS = {
    "Measure": {
        "heads": "Rank heads by how differently they attend to stereotype and anti-stereotype "
        "texts.",
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
        "ablate": "Ablate the top heads of a run, and compare with ablating random heads.",
    },
    "Change": {
        "edit": "Switch off, damp or average heads for good; the model loads with plain "
        "transformers.",
        "debias": "Train chosen heads for less bias, and compare with random heads.",
        "compare": "Measure two models alike, item by item: what changed, how sure, and at what "
        "cost.",
    },
    "Read": {
        "report": "Write one page that opens anywhere: findings, map of heads, texts, figures, "
        "tables.",
        "show": "Print a finished run again, from its folder and without the model.",
        "figures": "Draw every figure and table that saved runs allow, ready for print.",
        "reproduce": "Reproduce the head paper's tables, figures and claims for a model, on one "
        "page.",
        "ls": "List models, data, categories and groups that can be used here, or finished runs.",
    },
    "Texts": {
        "twins": "Make the twins of triples: the same texts about the other gender or another "
        "target.",
    },
}
COMMANDS = {name: text for commands in PANELS.values() for name, text in commands.items()}

# Commands that stand in the module of another one.
_MODULES = {"show": "report", "reproduce": "figures"}

# An example of each command, for the end of its help: a command of its page of the docs.
_HEADS = "--model smollm2-135m --category gender --data starter"
_RUN = "runs/smollm2-135m/gender"
EXAMPLES = {
    "heads": f"tdabias heads {_HEADS} --top 5",
    "confirm": f"tdabias confirm {_RUN} --top 5 --n-permutations 99",
    "unqover": "tdabias unqover --model smollm2-135m --class gender --subjects 4 --attributes 6 "
    "--top 3",
    "stereoset": f"tdabias stereoset {_HEADS}",
    "pairs": "tdabias pairs --model smollm2-135m --set winogender --limit 4",
    "twins": "tdabias twins --category gender --data starter --out twins.jsonl",
    "pvf": "tdabias pvf --model smollm2-135m --attribute pronouns --top 3",
    "ablate": f"tdabias ablate {_RUN} --top 2 --limit 2 --out runs/ablation",
    "edit": "tdabias edit --model smollm2-135m --head L5H3 --head L10H0 --how zero --out edited",
    "compare": "tdabias compare smollm2-135m without-four --data starter --limit 3 "
    "--only stereoset --only winogender --out compared",
    "crossref": "tdabias crossref runs/items/heads runs/items/stereoset --items",
    "debias": f"tdabias debias {_HEADS} --out runs/smollm2-135m/debias-gender",
    "reproduce": f"tdabias reproduce {_HEADS} --limit 3 --n-permutations 99",
    "report": f"tdabias report {_RUN} --out report.html",
    "figures": f"tdabias figures {_RUN} --as png",
    "show": f"tdabias show {_RUN} --top 3",
    "ls": "tdabias ls categories",
}


class _Program(TyperGroup):
    """Loads the command that is asked for, and no other."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """A command with its options, from the module of its name or the one in ``_MODULES``.

    The module holds a function of that name that ``options.command`` made, or ``app``, a group.
    """
    module = import_module(f".{_MODULES.get(name, name)}", __package__)
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name)(getattr(module, name))
    made = typer.main.get_command(app)
    if name in EXAMPLES:
        made.epilog = f"[bold]Example[/bold]\n{escape(EXAMPLES[name])}"
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
    whole: Any = typer.main.get_command(app)
    whole.commands = {
        name: TyperCommand(name, help=text, rich_help_panel=panel)
        for panel, commands in PANELS.items()
        for name, text in commands.items()
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
