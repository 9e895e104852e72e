"""Numbers and findings as text, for commands, tables, captions and pages alike."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from tda_bias.types import STARTER_CAUTION

if TYPE_CHECKING:
    from tda_bias.store.record import RunRecord

# Below it four decimals would hide the size of a p-value.
_SMALLEST = 1e-4


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


def short_name(name: str) -> str:
    """A name that fits into a figure: of a long one, as a folder's, the end.

    Examples:
        >>> short_name("smollm2-135m")
        'smollm2-135m'
        >>> short_name("/home/somebody/models/checkpoints/step-1000/tiny")
        '…ebody/models/checkpoints/step-1000/tiny'
    """
    return name if len(name) <= 40 else f"…{name[-39:]}"


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
    """A finding in the parts in which every measuring command prints it."""

    result: Sequence[str]  # what was found, first and plainly, with its correction
    control: Sequence[str] = ()  # what it must be compared with: chance, twins, length, ...
    power: Sequence[str] = ()  # the smallest effect that would have been found
    next: Sequence[str] = ()  # commands that follow, with this run's paths
    details: Sequence[str] = ()  # printed with ``--verbose``, and on the page of ``report``

    def then(self, *commands: str) -> Finding:
        """The same, with the commands that follow it."""
        return replace(self, next=commands)

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Label and wrap the parts; commands are not wrapped."""
        whole_words = TextWrapper(_WIDTH - _LABEL, break_on_hyphens=False, break_long_words=False)
        lines = []
        for label in ("result", "control", "power"):
            rows = [row for sentence in getattr(self, label) for row in whole_words.wrap(sentence)]
            lines += _labelled(label, rows)
        lines += _labelled("next", self.next)
        return [*lines, *self.details] if verbose else lines

    def as_values(self) -> dict[str, list[str]]:
        """The same for other programs."""
        return {name: list(part) for name, part in vars(self).items()}


def _labelled(label: str, rows: Sequence[str]) -> list[str]:
    labels = [label.upper(), *[""] * len(rows)]
    return [f"{label:{_LABEL}}{row}" for label, row in zip(labels, rows, strict=False)]


def data_remarks(record: RunRecord) -> list[str]:
    """Remarks on every number of a run: on how its texts were read, and on where they come from."""
    data = record.data
    if data is None:
        return [*record.remarks]
    starter = [STARTER_CAUTION] if data.source == "starter" else []
    return [*record.remarks, *data.remarks, *starter]


def rounded_lines(precision: str) -> list[str]:
    """Remark on numbers that come from rounded matrix products."""
    if precision == "float32":
        return []
    return [f"Matrix products were computed in {precision}: numbers are rounded."]


# -- commands that follow a run --------------------------------------------------------------------


def report_of(folder: Path) -> str:
    """The command that follows every run: its page."""
    return f"tdabias report {quote(str(folder))}"


def data_option(record: RunRecord | None) -> str:
    """The ``--data`` and ``--twins`` of a run, where not the defaults, for a command after it."""
    defaults = {"data": "stereoset", "twins": "auto"}
    settings = record.settings if record is not None else {}
    given = {name: str(settings.get(name, default)) for name, default in defaults.items()}
    return "".join(
        f" --{name} {quote(value)}" for name, value in given.items() if value != defaults[name]
    )
