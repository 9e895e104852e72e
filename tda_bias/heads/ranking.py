"""Ranked heads as a table that says above it what was found."""

from __future__ import annotations

from html import escape

import pandas as pd


class Ranking(pd.DataFrame):
    """The heads of a ranking; ``said`` is printed above them. What is made of it is a plain table.

    Examples:
        >>> table = Ranking({"layer": [5], "head": [3]})
        >>> table.said = "No head is found to treat gender differently."
        >>> print(table)
        No head is found to treat gender differently.
           layer  head
        0      5     3
        >>> type(table.head(1)).__name__
        'DataFrame'
    """

    _metadata = ["said"]  # noqa: RUF012  (as pandas declares it)
    said: str = ""

    def __repr__(self) -> str:
        return f"{self.said}\n{super().__repr__()}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.said)}</p>\n{self.to_html(notebook=True)}"
