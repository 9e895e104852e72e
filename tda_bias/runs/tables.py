"""Tables: written as CSV, Markdown and LaTeX; read with the columns and types they must have."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.errors import SchemaErrors

from tda_bias.runs.files import write_csv, write_text
from tda_bias.runs.spreadsheets import csv_table
from tda_bias.runs.text import latex_text, markdown_text
from tda_bias.types import InputError

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

# Types as pandas names them, for messages.
_KINDS = {
    "float64": "numbers",
    "int64": "whole numbers",
    "bool": "true or false",
    "str": "texts",
    "category": "names",
}


def numbers(**options: Any) -> pa.Column:
    """A column of numbers, some of which may be undefined (NaN)."""
    return pa.Column(float, nullable=True, coerce=True, **options)


def finite(**options: Any) -> pa.Column:
    """A column of numbers that are all defined."""
    return pa.Column(float, coerce=True, **options)


def shares(**options: Any) -> pa.Column:
    """A column of probabilities, p- or q-values; NaN where undefined."""
    return pa.Column(
        float,
        pa.Check.in_range(0.0, 1.0, error="numbers between 0 and 1"),
        nullable=True,
        coerce=True,
        **options,
    )


def counts(**options: Any) -> pa.Column:
    """A column of whole numbers from 0 on: how many, or which layer."""
    return pa.Column(int, pa.Check.ge(0, error="numbers from 0 on"), **options)


def texts(**options: Any) -> pa.Column:
    """A column of texts."""
    return pa.Column(str, **options)


def flags(**options: Any) -> pa.Column:
    """A column of true and false."""
    return pa.Column(bool, **options)


def columns(kinds: Mapping[str, pa.Column]) -> pa.DataFrameSchema:
    """The columns a table must have; it may have more. Names are fixed unless ``regex`` is set."""
    return pa.DataFrameSchema(dict(kinds))


def parsed_table(content: bytes, name: str, schema: pa.DataFrameSchema) -> pd.DataFrame:
    """A table from the bytes of a CSV or Parquet file.

    Args:
        content: The bytes.
        name: The file's name, whose ending says which.
        schema: The columns it must have.

    Raises:
        ValueError: saying in one line what does not fit.
    """
    table = plain_table(content, name, dtype=_text_columns(schema))
    try:
        return schema.validate(table, lazy=True)
    except SchemaErrors as error:
        raise ValueError(_reason(error)) from None


def check_columns(table: pd.DataFrame, columns: Mapping[str, type], where: str) -> pd.DataFrame:
    """The table itself, if it has the columns it must have; it may have more.

    Args:
        table: The table as it was read.
        columns: Name of a column, or regular expression of the names of several, to ``str``,
            ``int``, ``float`` or ``bool``. Whole numbers are converted where ``float`` is wanted.
        where: The file, for the message.

    Raises:
        InputError: naming the first column that is missing or of another type.
    """
    table = table.copy(deep=False)
    for pattern, kind in columns.items():
        matching = [name for name in table.columns if re.fullmatch(pattern, str(name))]
        if not matching:
            raise InputError(f"{where}: lacks the column {pattern!r}")
        for name in matching:
            if kind is float and pd.api.types.is_integer_dtype(table[name]):
                table[name] = table[name].astype(float)
            if not _IS_OF[kind](table[name]):
                raise InputError(
                    f"{where}: the column {name!r} must hold {_WORDS[kind]}; it holds "
                    f"{table[name].dtype} values"
                )
    return table


_IS_OF: dict[type, Callable[[pd.Series], bool]] = {
    str: pd.api.types.is_string_dtype,
    int: pd.api.types.is_integer_dtype,
    float: pd.api.types.is_float_dtype,
    bool: pd.api.types.is_bool_dtype,
}
_WORDS = {str: "texts", int: "whole numbers", float: "numbers", bool: "true or false"}


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


def _text_columns(schema: pa.DataFrameSchema) -> dict[str, type]:
    return {
        name: str
        for name, column in schema.columns.items()
        if column.dtype and pa.dtypes.is_string(column.dtype)
    }


def _reason(error: SchemaErrors) -> str:
    first = error.failure_cases.iloc[0]
    column, check, case, row = (first[n] for n in ("column", "check", "failure_case", "index"))
    if check == "column_in_dataframe":
        return f"lacks the column {case!r}"
    if check.startswith("no_regex_column_match"):
        return f"lacks a column like {column!r}"
    if check == "not_nullable":
        return f"the column {column!r} is empty in row {int(row) + 1}"
    for kind, said in _KINDS.items():
        check = said if kind in check else check
    case = case.item() if isinstance(case, np.generic) else case
    return f"the column {column!r} must hold {check}; got {case!r}"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
