"""Printed output of a command: a finding in four labelled parts, then tables; or JSON, or CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from .settings import OutputSettings
from .text import print_lines, print_table

if TYPE_CHECKING:
    import pandas as pd


# Columns of the printed parts, the label's included.
_WIDTH, _LABEL = 80, 9


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


@dataclass(frozen=True)
class Output:
    """One result in every format.

    Attributes:
        shown: Findings, tables and sentences, in the order in which they are printed.
        values: The same for other programs, as JSON.
        rows: The main table, as CSV.
    """

    shown: Sequence[Finding | Table | str]
    values: Mapping[str, Any]
    rows: pd.DataFrame

    def print(self, settings: OutputSettings) -> None:
        """Print it as the settings say; nothing else goes to standard output."""
        if settings.format == "json":
            from tda_bias.runs.files import plain

            typer.echo(json.dumps(plain(self.values), indent=2, allow_nan=False))
        elif settings.format == "csv":
            from tda_bias.runs.tables import csv_text

            typer.echo(csv_text(self.rows), nl=False)
        elif not settings.quiet:
            for part in self.shown:
                if isinstance(part, Table):
                    print_table(part)
                elif isinstance(part, Finding):
                    print_lines(*part.lines(verbose=settings.verbose))
                else:
                    print_lines(part)


def rounded_lines(precision: str) -> list[str]:
    """Remark on numbers that come from rounded matrix products."""
    if precision == "float32":
        return []
    return [f"Matrix products were computed in {precision}: numbers are rounded."]
