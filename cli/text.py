"""Numbers and tables as commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd


def p_text(value: float) -> str:
    """A p-value: four decimals where they matter."""
    if value != value:
        return "undefined"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def table_of(table: pd.DataFrame, title: str) -> Table:
    """A data frame for the terminal, numbers to three digits."""
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        text = table[name].dtype.kind not in "fiu"
        shown.add_column(name, justify="left" if text else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    return shown
