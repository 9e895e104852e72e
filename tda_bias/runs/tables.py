"""Tables: written as CSV, Markdown and LaTeX; read with the columns and types they must have."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tda_bias.runs.files import atomic, write_text
from tda_bias.runs.text import latex_text, markdown_text

if TYPE_CHECKING:
    import pandas as pd

# What spreadsheets compute; behind apostrophes, so that reading gives back what was written.
# A command's option computes nothing.
_COMPUTED = r"(?!--[a-z-]+$)[=+\-@\t\r]"
_FORMULA = re.compile(rf"'*{_COMPUTED}")
_QUOTED = re.compile(rf"'+{_COMPUTED}")


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV; texts that a spreadsheet would compute get an apostrophe in front."""
    return str(_with_texts(table, _quoted).to_csv(index=False))


def csv_table(content: bytes, *, dtype: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """A table from what ``csv_text`` made.

    Args:
        content: The file.
        dtype: Types of columns that are known; a target called ``007`` is a text.
    """
    import pandas as pd

    # A target may be called "None" or "NA": only an empty field is an undefined one.
    read = pd.read_csv(
        io.BytesIO(content), dtype=dict(dtype or {}), keep_default_na=False, na_values=[""]
    )
    return _with_texts(read, _unquoted)


def _quoted(value: Any) -> Any:
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _unquoted(value: Any) -> Any:
    return value[1:] if isinstance(value, str) and _QUOTED.match(value) else value


def _with_texts(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    """The same table, itself where no text changes."""
    changed = {
        name: [change(value) for value in column]
        for name, column in table.items()
        if column.dtype.kind not in "fiub" and any(change(v) is not v for v in column)
    }
    if changed:
        table = table.copy()
    for name, values in changed.items():
        table[name] = values
    return table


# -- writing ---------------------------------------------------------------------------------------


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table, whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(csv_text(table), encoding="utf-8")


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
    import pandas as pd

    try:
        if name.endswith(".csv"):
            return csv_table(content, dtype=dtype)
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        # Damaged Parquet makes Arrow raise errors of a dozen classes, without a common one.
        raise ValueError(f"no table ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
