"""Tables as CSV that a spreadsheet may open: no name in them is taken for a formula."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
