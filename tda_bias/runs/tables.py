"""Tables: written as CSV, Markdown and LaTeX; read with the columns and types they must have."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tda_bias.runs.files import atomic, write_text
from tda_bias.runs.text import latex_text, markdown_text

if TYPE_CHECKING:
    import pandas as pd

# What spreadsheets compute; after apostrophes, so that reading gives back what was written.
# A command's option computes nothing.
_COMPUTED = r"(?!--[a-z-]+$)[=+\-@\t\r]"
_FORMULA = re.compile(rf"'*{_COMPUTED}")
_QUOTED = re.compile(rf"'+{_COMPUTED}")


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV; texts that a spreadsheet would compute get an apostrophe in front."""
    return str(_with_texts(table, _quoted).to_csv(index=False))


def _quoted(text: str) -> str:
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _with_texts(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The same table with its texts changed; a column without a change keeps its type."""
    changed = {
        str(name): [change(v) if isinstance(v, str) else v for v in column]
        for name, column in table.items()
        if column.dtype.kind not in "fiub"
        and any(isinstance(v, str) and change(v) != v for v in column)
    }
    return table.assign(**changed)


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
        columns: Those it must have; of CSV, those called texts stay texts (``007``).

    Raises:
        ValueError: saying in one line what does not fit.
    """
    import pandas as pd

    try:
        if name.endswith(".csv"):
            texts = {column: kind for column, kind in columns.items() if kind is str}
            # A target may be called "None" or "NA": only an empty field is an undefined one.
            table = pd.read_csv(
                io.BytesIO(content), dtype=texts, keep_default_na=False, na_values=[""]
            )
            table = _with_texts(table, lambda text: text[1:] if _QUOTED.match(text) else text)
        else:
            table = pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        # Damaged Parquet makes Arrow raise errors of a dozen classes, without a common one.
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise ValueError(f"no table ({reason})") from error
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
