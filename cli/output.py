"""What a command has to say: as tables with remarks, as JSON, or as CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from .settings import Format
from .text import print_lines, print_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Output:
    """One result in every format.

    Attributes:
        shown: Tables and sentences, in the order in which they are printed.
        values: The same for other programs, as JSON.
        rows: The main table, as CSV.
    """

    shown: Sequence[Table | str]
    values: Mapping[str, Any]
    rows: pd.DataFrame

    def print(self, format: Format, *, quiet: bool = False) -> None:
        """Print it; nothing else goes to standard output.

        Args:
            format: How.
            quiet: Leave out the tables that are for people.
        """
        if format == "json":
            from tda_bias.runs.files import plain

            typer.echo(json.dumps(plain(self.values), indent=2, allow_nan=False))
        elif format == "csv":
            from tda_bias.runs.tables import csv_text

            typer.echo(csv_text(self.rows), nl=False)
        elif not quiet:
            for part in self.shown:
                if isinstance(part, Table):
                    print_table(part)
                else:
                    print_lines(part)


def rounded_lines(precision: str) -> list[str]:
    """What is said of numbers that come from rounded matrix products."""
    if precision == "float32":
        return []
    return [f"Matrix products were computed in {precision}: numbers are rounded."]
