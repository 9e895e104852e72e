"""Tables: written as CSV, Markdown and LaTeX; read with the columns and types they must have."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tda_bias.runs.files import write_csv, write_text
from tda_bias.runs.spreadsheets import csv_table
from tda_bias.runs.text import latex_text, markdown_text

# -- writing ---------------------------------------------------------------------------------------


def write_table(folder: Path, name: str, table: pd.DataFrame, caption: str) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV, each whole or not at all."""
    write_csv(folder / f"{name}.csv", table)
    write_text(folder / f"{name}.md", f"{markdown(table)}\n\n{markdown_text(caption)}\n")
    write_text(folder / f"{name}.tex", latex(table, caption, name))
    return [folder / f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers to three decimals; names stand there as they are."""
    shown = _rounded(table).map(markdown_text)
    return str(shown.to_markdown(index=False, disable_numparse=True))


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


# -- reading ---------------------------------------------------------------------------------------

# The columns a table must have, and the type of each: a name, or a regular expression that at least
# one column matches. It may have more. That the values are as they were written is what the file's
# hash in ``run.json`` says.
Columns = Mapping[str, type]

_KINDS = {
    float: ("fiu", "numbers"),
    int: ("iu", "whole numbers"),
    bool: ("b", "true or false"),
    str: ("OSU", "texts"),
}


def parsed_table(content: bytes, name: str, columns: Columns) -> pd.DataFrame:
    """Read a table from the bytes of a CSV or Parquet file.

    Args:
        content: The bytes.
        name: The file's name, whose ending says which.
        columns: Those it must have.

    Raises:
        ValueError: saying in one line what does not fit.
    """
    texts = {column: str for column, kind in columns.items() if kind is str}
    table = plain_table(content, name, dtype=texts)
    for column, kind in columns.items():
        matching = [c for c in table if re.fullmatch(column, str(c))]
        if not matching:
            raise ValueError(f"lacks the column {column!r}")
        kinds, said = _KINDS[kind]
        for found in matching:
            if table[found].dtype.kind not in kinds:
                raise ValueError(f"the column {found!r} must hold {said}")
            if kind is float:
                table[found] = table[found].astype(float)
    return table


def plain_table(
    content: bytes, name: str, *, dtype: Mapping[str, type] | None = None
) -> pd.DataFrame:
    """A table from the bytes of a CSV or Parquet file, whatever its columns.

    Args:
        content: The bytes.
        name: The file's name, whose ending says which.
        dtype: Types of columns of CSV that are known; Parquet knows its own.

    Raises:
        ValueError: saying in one line what does not fit.
    """
    try:
        if name.endswith(".csv"):
            return csv_table(content, dtype=dtype)
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        # Damaged Parquet makes Arrow raise errors of a dozen classes, without a common one.
        raise ValueError(f"no table ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
