"""What a command is: a name, settings, and the places of what reads, computes and shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

_PACKAGE = __package__ or "tdabias_cli"


def imported(place: str) -> Any:
    """What stands at ``package.module:name``; a module of the command line begins with a dot.

    Commands name what they need in this way, so that nothing heavy is imported before it is used.
    """
    module, _, name = place.partition(":")
    found: Any = import_module(module, _PACKAGE)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@dataclass(frozen=True)
class Form:
    """One kind of run that a command leaves.

    Attributes:
        load: ``(folder) -> result``: the same from a finished run.
        shown: ``(result, folder, top=...) -> Output``: what is printed, then and again.
        compute: ``(settings, texts, work) -> result``, saved, usually by ``work.saved``. Empty
            where the command makes several runs by a function of its own.
        function: In the place of ``compute``, a function of the library ``(model, items, *, config,
            progress, cache) -> result``, which also takes what goes with the items.
        config: The class of its settings, which are among the command's.
        unit: What it counts.
        texts: ``(settings) -> texts``: what is to be read; what cannot be used is said before a
            model is loaded. Its ``record``, where it has one, is the data in the run's record, and
            another run in the folder must have the same. Empty where there is nothing to read.
        kept: Folder inside the run of finished parts.
        outcomes: ``(result) -> outcomes``: what the run comes to, in words (``show/verdict.py``).
    """

    load: str
    shown: str
    compute: str = ""
    function: str = ""
    config: str = ""
    unit: str = "texts"
    texts: str = ""
    kept: str = "parts"
    outcomes: str = ""


@dataclass(frozen=True)
class Audited:
    """How ``tdabias audit`` runs a command, for a model and some categories.

    Attributes:
        setting: The setting that a category becomes; empty for runs that belong to none.
        named: What the command calls a category, by its name in StereoSet; a category that is
            missing is not measured by it. Empty where every category is meant by its own name.
        takes: Settings that it takes from those of the audit, beside the model and its placement.
        runs: Settings of each run, beside the model and the category.
        quick: Settings with ``--quick``.
        less: What that leaves out, in words.
    """

    setting: str = ""
    named: Mapping[str, str] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()
    runs: tuple[Mapping[str, Any], ...] = ({},)
    quick: Mapping[str, Any] = field(default_factory=dict)
    less: str = ""


@dataclass(frozen=True)
class Spec:
    """A command.

    Attributes:
        name: As it is typed: ``pvf risk``.
        help: Its help text; the first paragraph stands in the list of commands too.
        settings: Its class of settings.
        example: A command line of its page of the docs, for the end of its help.
        forms: By the command's name in the record, the kinds of runs that it leaves. Settings with
            several say by their property ``form`` which is meant.
        run: ``(settings) -> Output`` of a command that leaves no run, or several.
        instead: By the name of a switch, what is done in the place of a run, as ``run``.
        file: Settings of a whole that this command is a part of: a configuration file of the whole
            serves here too, and what it says of other parts is passed over.
        panel: Of the group's help, for a command inside a group.
        audited: How ``tdabias audit`` runs it; None if it does not.
    """

    name: str
    help: str
    settings: str
    example: str = ""
    forms: Mapping[str, Form] = field(default_factory=dict)
    run: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    panel: str | None = None
    audited: Audited | None = None

    @property
    def summary(self) -> str:
        """The first paragraph of the help."""
        return self.help.partition("\n\n")[0]
