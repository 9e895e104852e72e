"""A finding in four labelled parts, as commands print it and as pages and programs read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING

from tda_bias.types import STARTER_CAUTION

if TYPE_CHECKING:
    from tda_bias.runs.record import DataRecord

# Columns of the printed parts, the label's included.
_WIDTH, _LABEL = 80, 9
NEUTRAL_IS_NOT_GOOD = (
    "A score (ss) of 50 is neutral, not good: a model that knows nothing gets it too."
)


@dataclass(frozen=True)
class Finding:
    """A finding in the parts in which every measuring command prints it.

    Attributes:
        result: What was found, first and plainly, with its correction.
        control: What it must be compared with: chance, twins, length, reliability.
        power: The smallest effect that would have been found.
        next: Commands that follow, with this run's paths.
        details: What else is known; printed with ``--verbose``, and on the page of ``report``.
    """

    result: Sequence[str]
    control: Sequence[str] = ()
    power: Sequence[str] = ()
    next: Sequence[str] = ()
    details: Sequence[str] = ()

    def then(self, *commands: str) -> Finding:
        """The same, with the commands that follow it."""
        return replace(self, next=commands)

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Label and wrap the parts; commands are not wrapped."""
        lines = []
        for label in ("result", "control", "power", "next"):
            part: Sequence[str] = getattr(self, label)
            rows = [
                row
                for sentence in part
                for row in ([sentence] if label == "next" else _wrapped(sentence))
            ]
            heads = [label.upper(), *[""] * len(rows)]
            lines += [f"{head:{_LABEL}}{row}" for head, row in zip(heads, rows, strict=False)]
        return [*lines, *self.details] if verbose else lines

    def as_values(self) -> dict[str, list[str]]:
        """The same for other programs."""
        return {name: list(part) for name, part in vars(self).items()}


def _wrapped(sentence: str) -> list[str]:
    return wrap(sentence, _WIDTH - _LABEL, break_on_hyphens=False, break_long_words=False)


def data_remarks(data: DataRecord | None) -> list[str]:
    """Remarks on every number that comes from some texts."""
    if data is None:
        return []
    return [*data.remarks, *([STARTER_CAUTION] if data.source == "starter" else [])]
