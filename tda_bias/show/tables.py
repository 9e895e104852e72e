"""Tables as CSV, Markdown and LaTeX, for papers and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tda_bias.show.text import latex_text, markdown_text
from tda_bias.store.files import atomic, write_text

if TYPE_CHECKING:
    import pandas as pd


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, whole or not at all."""
    with atomic(path) as temporary:
        table.to_csv(temporary, index=False)


def write_table(folder: Path, name: str, table: pd.DataFrame, caption: str) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV, each whole or not at all."""
    write_csv(folder / f"{name}.csv", table)
    write_text(folder / f"{name}.md", f"{markdown(table)}\n\n{markdown_text(caption)}\n")
    write_text(folder / f"{name}.tex", latex(table, caption, name))
    return [folder / f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers to three decimals; names stand there as they are."""
    shown = _rounded(table).map(markdown_text)
    rows = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *shown.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def latex(table: pd.DataFrame, caption: str, label: str) -> str:
    """A table in LaTeX (booktabs)."""
    styled = _rounded(table).style.hide(axis="index").format(escape="latex")
    styled = styled.format_index(escape="latex", axis=1)
    text = styled.to_latex(
        hrules=True,
        caption=latex_text(caption),
        label=f"tab:{label}",
        position_float="centering",
    )
    return str(text)


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    shown = table.copy()
    for name in shown.columns:
        if shown[name].dtype.kind == "f":
            shown[name] = [("" if v != v else f"{v:.3f}") for v in shown[name]]
        else:
            shown[name] = ["" if v != v or v is None else str(v) for v in shown[name]]
    return shown
