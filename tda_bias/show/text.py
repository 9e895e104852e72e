"""Numbers and findings as text, for commands, tables, captions and pages alike."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from tda_bias.show.brief import Brief
from tda_bias.types import STARTER_CAUTION

if TYPE_CHECKING:
    from tda_bias.store.record import RunRecord

# Below it four decimals would hide the size of a p-value.
_SMALLEST = 1e-4
# Places that a remark names.
_PLACES = 3


def number_text(value: float | None, decimals: int = 2) -> str:
    """A number, or ``undefined`` where there is none: NaN, infinite, or null in a saved record."""
    return "undefined" if value is None or not math.isfinite(value) else f"{value:.{decimals}f}"


def interval_text(low: float, high: float, decimals: int = 2, *, sign: str = "") -> str:
    """An interval; ``no interval`` where its limits are undefined: of too few clusters.

    With ``sign="+"`` positive limits show theirs too.

    Examples:
        >>> interval_text(-0.1, 0.25), interval_text(float("nan"), float("nan"))
        ('-0.10 to 0.25', 'no interval')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"{low:{sign}.{decimals}f} to {high:{sign}.{decimals}f}"


def p_text(value: float | None) -> str:
    """A p- or q-value: four decimals where they matter, never 0 for what is only small."""
    if value is None or not math.isfinite(value) or value >= 0.1:
        return number_text(value)
    return f"{value:.4f}" if value == 0 or value >= _SMALLEST else f"{value:.0e}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things.

    Examples:
        >>> counted(1, "target"), counted(2, "target"), counted(0, "process", "processes")
        ('1 target', '2 targets', '0 processes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that share a reason, in order, from pairs of a name and its reason.

    Examples:
        >>> by_reason([("a", "no data"), ("b", "too few"), ("c", "no data")])
        {'no data': ['a', 'c'], 'too few': ['b']}
    """
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        names.setdefault(reason, []).append(name)
    return names


def left_out(places: Sequence[str], noun: str, what: str) -> tuple[str, ...]:
    """The remark that items which have something are left out, with the first places, if any are.

    Examples:
        >>> left_out(["a.csv line 3"], "pair", "two equal texts")
        ('1 pair has two equal texts and is left out (a.csv line 3).',)
    """
    if not places:
        return ()
    has, are = ("has", "is") if len(places) == 1 else ("have", "are")
    shown = "; ".join(places[:_PLACES]) + ("; ..." if len(places) > _PLACES else "")
    return (f"{counted(len(places), noun)} {has} {what} and {are} left out ({shown}).",)


def short_name(name: str) -> str:
    """A name that fits into a figure: of a folder its own name, of any long one the end.

    Examples:
        >>> short_name("smollm2-135m"), short_name("openai-community/gpt2")
        ('smollm2-135m', 'openai-community/gpt2')
        >>> short_name("/home/somebody/checkpoints/step-1000/tiny")
        'tiny'
    """
    return short_names([name])[0]


def short_names(names: Sequence[str]) -> list[str]:
    """``short_name`` of several, with as much of their folders as tells them apart.

    Examples:
        >>> short_names(["./a/step-10", "./a/step-20"]), short_names(["./one/tiny", "./two/tiny"])
        (['step-10', 'step-20'], ['one/tiny', 'two/tiny'])
    """
    short = list(names)
    for kept in range(1, 1 + max((len(Path(name).parts) for name in names), default=0)):
        short = ["/".join(Path(name).parts[-kept:]) if is_path(name) else name for name in names]
        if len(set(short)) == len(set(names)):
            break
    return [name if len(name) <= 40 else f"…{name[-39:]}" for name in short]


def is_path(name: str) -> bool:
    """Tell whether a model's name is that of a folder: hub names have one slash at most."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def is_visible(text: str) -> bool:
    """Tell whether a text holds anything but spaces, control characters and those of no width."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)


# HTML's names where a backslash would not do in every dialect, or would end a cell of a table.
_MARKDOWN = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*[]"}, **{m: f"&#{ord(m)};" for m in "&<>|$"}}
)
_LATEX = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "{}$&#%_"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def markdown_text(text: str) -> str:
    """A text that Markdown shows as it is: no markup, no HTML, no mathematics."""
    return text.translate(_MARKDOWN)


def latex_text(text: str) -> str:
    """A text that LaTeX prints as it is: no command in it is run."""
    return text.translate(_LATEX)


# -- findings --------------------------------------------------------------------------------------

# Columns of the printed parts, the label's included.
_WIDTH, _LABEL = 80, 9
NEUTRAL_IS_NOT_GOOD = (
    "A score (ss) of 50 is neutral, not good: a model that knows nothing gets it too."
)


@dataclass(frozen=True)
class Finding:
    """A finding: what is printed of it at first, and the parts that ``--verbose`` adds."""

    result: Sequence[str]  # what was found, first and plainly, with its correction
    control: Sequence[str] = ()  # what it must be compared with: chance, twins, length, ...
    power: Sequence[str] = ()  # the smallest effect that would have been found
    next: Sequence[str] = ()  # commands that follow, with this run's paths
    details: Sequence[str] = ()  # printed with ``--verbose``, and on the page of ``report``
    brief: Brief | None = None  # printed at first; without one, the parts are

    def led_by(self, brief: Brief) -> Finding:
        """The same, with what is printed at first."""
        return replace(self, brief=brief)

    def then(self, *commands: str) -> Finding:
        """The same, with the commands that follow it."""
        return replace(self, next=commands)

    def lines(self, *, verbose: bool = False, program: str = "tdabias") -> list[str]:
        """Label and wrap the parts; commands are not wrapped, and begin with ``program``."""
        whole_words = TextWrapper(_WIDTH - _LABEL, break_on_hyphens=False, break_long_words=False)
        lines = []
        for label in ("result", "control", "power"):
            rows = [row for sentence in getattr(self, label) for row in whole_words.wrap(sentence)]
            lines += _labelled(label, rows)
        lines += _labelled("next", self.commands(program))
        return [*lines, *self.details] if verbose else lines

    def commands(self, program: str = "tdabias") -> list[str]:
        """The commands that follow, which begin with ``program``."""
        return [re.sub(r"^tdabias(?= )", lambda _: program, command) for command in self.next]

    def as_values(self) -> dict[str, Any]:
        """The same for other programs."""
        parts = {name: list(part) for name, part in vars(self).items() if name != "brief"}
        return parts if self.brief is None else {**self.brief.as_values(), **parts}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Finding:
        """What ``as_values`` gave."""
        parts = {name: values[name] for name in ("result", "control", "power", "next", "details")}
        return cls(**parts, brief=Brief.of_values(values) if "said" in values else None)


def _labelled(label: str, rows: Sequence[str]) -> list[str]:
    labels = [label.upper(), *[""] * len(rows)]
    return [f"{label:{_LABEL}}{row}" for label, row in zip(labels, rows, strict=False)]


def listed(names: Sequence[str]) -> str:
    """Names with commas and ``and``.

    Examples:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def data_remarks(record: RunRecord, *, starter: bool = True) -> list[str]:
    """Remarks on every number of a run: on how its texts were read, and on where they come from.

    Without ``starter`` the one on the starter texts is left out, where the first line has said that
    they demonstrate.
    """
    data = record.data
    if data is None:
        return [*record.remarks]
    caution = [STARTER_CAUTION] if starter and data.source == "starter" else []
    return [*record.remarks, *data.remarks, *caution]


def about_run(record: RunRecord, *more: str) -> list[str]:
    """The first line of a run: its model, what ``more`` says, and whether it only demonstrates."""
    starter = record.data is not None and record.data.source == "starter"
    return [short_name(record.model.name), *more, *(["demonstration only"] if starter else [])]


def rounded_lines(precision: str) -> list[str]:
    """Remark on numbers that come from rounded matrix products."""
    if precision == "float32":
        return []
    return [f"Matrix products were computed in {precision}: numbers are rounded."]


# -- commands that follow a run --------------------------------------------------------------------


def report_of(folder: Path, *others: Path) -> str:
    """The command that follows every run: its page, with runs made from it that are elsewhere."""
    folders = [folder, *(other for other in others if not other.is_relative_to(folder))]
    return f"tdabias report {' '.join(quote(str(one)) for one in folders)}"


def data_option(record: RunRecord | None, *, among: Collection[str] | None = None) -> str:
    """The options that choose the texts of a run, where not the defaults, for a command after it.

    These are ``--data``, ``--twins``, ``--limit`` and ``--group``, of which only those ``among``
    some groups, those of a category.
    """
    defaults: dict[str, Any] = {"data": "stereoset", "twins": "auto", "group": (), "limit": None}
    settings = record.settings if record is not None else {}
    options = []
    for name, default in defaults.items():
        value = settings.get(name, default)
        several = value if isinstance(value, list | tuple) else [value]
        if name == "group" and among is not None:
            several = [group for group in several if group in among]
        options += [f" --{name} {quote(str(one))}" for one in several if one != default]
    return "".join(options)
