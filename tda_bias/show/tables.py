"""Tables as CSV, Markdown and LaTeX, for papers and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tda_bias.show.table import TableSpec
from tda_bias.show.text import latex_text, markdown_text
from tda_bias.store.files import atomic, write_text

if TYPE_CHECKING:
    import pandas as pd


def paper_table(table: pd.DataFrame, caption: str = "") -> TableSpec:
    """A data frame as papers print it: numbers to three decimals, nothing where undefined."""
    return TableSpec.of(table, caption, number=".3f", undefined="")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, whole or not at all."""
    with atomic(path) as temporary:
        table.to_csv(temporary, index=False)


def write_table(folder: Path, name: str, spec: TableSpec) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV, each whole or not at all.

    Its title is the caption; the CSV has its rows, with every digit.
    """
    import pandas as pd

    write_csv(folder / f"{name}.csv", pd.DataFrame(spec.rows))
    write_text(folder / f"{name}.md", f"{markdown(spec)}\n\n{markdown_text(spec.title)}\n")
    write_text(folder / f"{name}.tex", latex(spec, name))
    return [folder / f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]


def markdown(spec: TableSpec) -> str:
    """A table in Markdown, without its title; names stand there as they are."""
    cells = [[markdown_text(cell) for cell in row] for row in spec.cells()]
    rows = [spec.headings, ["---"] * len(spec.columns), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def latex(spec: TableSpec, label: str) -> str:
    """A table in LaTeX (booktabs), its title as the caption."""
    heading, *rows = (
        " & ".join(map(latex_text, cells)) + r" \\" for cells in (spec.headings, *spec.cells())
    )
    lines = [
        r"% Needs \usepackage{booktabs} before \begin{document}.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(spec.title)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{'l' * len(spec.columns)}}}",
        r"\toprule",
        heading,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"
