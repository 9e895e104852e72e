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
        "ablate": "Ablate the top heads of a run, and compare with ablating random heads.",
    },
    "Change": {
        "edit": "Switch off, damp or average heads for good; the model loads with plain "
        "transformers.",
        "debias": "Train chosen heads for less bias, and compare with random and all heads.",
        "compare": "Measure two models alike, item by item: what changed, how sure, and at what "
        "cost.",
    },
    "Read": {
        "report": "Write one page that opens anywhere: findings, map of heads, texts, charts, "
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

# An example of each command with some of what it prints, for the end of its help. The same stands
# in the command's page of the docs, whose commands a test runs again.
_RUN = "runs/smollm2-135m/gender"
EXAMPLES = {
    "heads": """\
$ tdabias heads --model smollm2-135m --category gender --data starter --top 5
RESULT   No head of smollm2-135m is found to treat gender differently (270
         heads, 48 triples).
┃ head  ┃    z ┃      p ┃ p (family-wise) ┃ q (FDR) ┃ unstable ┃
│ L22H2 │ 2.30 │ 0.0151 │            0.96 │    0.98 │          │""",
    "confirm": f"""\
$ tdabias confirm {_RUN} --top 5 --n-resamples 99
RESULT   Heads that stand out on some targets do not stand out on others more
         than chance.""",
    "unqover": """\
$ tdabias unqover --model smollm2-135m --class gender --subjects 4 --attributes 6 --top 3
┃ gender ┃ attribute     ┃  gamma ┃              95% ┃    q ┃   eta ┃
│ female │ lawyer        │ +0.020 │ -0.047 to +0.086 │ 0.95 │ +0.34 │""",
    "stereoset": """\
$ tdabias stereoset --model smollm2-135m --category gender --data starter
RESULT   Gender: the target effect (beta) is 0.90 nats of 2.62 (over 4 targets
         no interval; over items 0.38 to 1.41, p 0.0005).""",
    "pairs": """\
$ tdabias pairs --model smollm2-135m --set winogender --limit 4
│ plumber      │     2 │           -3.14 │            0.7 │                3.3 │
│ librarian    │     2 │            2.35 │           83.0 │               85.6 │""",
    "twins": """\
$ tdabias twins --category gender --data starter --out twins.jsonl
│ gender   │      48 │         48 │    48 │        0 │
  My [grandmother -> grandfather] visited us on Sunday.""",
    "pvf": """\
$ tdabias pvf --model smollm2-135m --attribute pronouns --top 3
RESULT   smollm2-135m: risk R 0.263, of which prejudice R_p 0.207 (0.158 to
         0.272) and volatility R_v 0.056, of male and female. 38 of 120 words
         lean to male, the others to female.""",
    "ablate": f"""\
$ tdabias ablate {_RUN} --top 2 --limit 2 --out runs/ablation
RESULT   Ablating the 2 top heads together changes the target effect (beta) from
         2.312 by -0.022 nats; random heads of the same layers change it by
         -0.074 (SD 0.200; p 0.81).""",
    "edit": """\
$ tdabias edit --model smollm2-135m --head L5H3 --head L10H0 --how zero --out edited
Model: edited/ (load it with transformers, tdabias is not needed)""",
    "compare": """\
$ tdabias compare smollm2-135m without-four --data starter --limit 3 \\
    --only stereoset --only winogender --out compared
RESULT   without-four is not measurably less biased than smollm2-135m; a loss of
         quality is not ruled out.
┃ outcome                ┃ before ┃ after ┃ change ┃        interval ┃    p ┃ Holm ┃
│ beta_sum_gender        │  1.672 │ 1.631 │ -0.041 │ -0.272 to 0.191 │ 0.75 │ 0.75 │""",
    "crossref": """\
$ tdabias crossref runs/items/heads runs/items/stereoset --items
RESULT   Profession: 2 heads follow the target effect (beta) of items after""",
    "debias": """\
$ tdabias debias --model smollm2-135m --category gender --data starter \\
    --n-random 3 --epochs 3 --out runs/smollm2-135m/debias-gender
POWER    With 3 random sets no p can be below 0.25.
┃ condition ┃ heads ┃ beta (95 %) ┃   rms ┃ ppl % ┃  lms ┃ guard ┃    p ┃
│ untouched │     0 │       0.073 │ 0.263 │  +0.0 │ 79.2 │  pass │      │
│ effect    │    27 │       0.073 │ 0.263 │  +0.0 │ 79.2 │  pass │ 0.25 │""",
    "reproduce": """\
$ tdabias reproduce --model smollm2-135m --category gender --data starter \\
    --limit 3 --n-resamples 99
Page: runs/smollm2-135m/reproduce/README.md""",
    "report": f"""\
$ tdabias report {_RUN} --out report.html
Page: report.html (1 run, 1.2 MB, one file that fetches nothing)""",
    "figures": f"""\
$ tdabias figures {_RUN} --format png
fig4_gender: Head paper, figure 4: hot spots, gender
10 figures (png), 2 tables. Files: figures/""",
    "show": f"""\
$ tdabias show {_RUN} --top 3
RESULT   No head of smollm2-135m is found to treat gender differently (270
         heads, 48 triples).
┃ head  ┃    z ┃      p ┃ p (family-wise) ┃ q (FDR) ┃ unstable ┃
│ L22H2 │ 2.30 │ 0.0151 │            0.96 │    0.98 │          │""",
    "ls": """\
$ tdabias ls categories
┃ category   ┃ groups ┃ triples ┃
│ gender     │      4 │      48 │""",
}


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
    module = import_module(f".{name}", __package__)
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
