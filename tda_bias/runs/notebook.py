"""How results look at the end of a notebook's cell: a line or two, and the head of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

from tda_bias.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

# Rows of a table that are shown.
ROWS = 8


def summary_html(
    title: str, lines: Sequence[str] = (), tables: Mapping[str, pd.DataFrame] | None = None
) -> str:
    """A few kilobytes of HTML; names of models and targets are escaped.

    Args:
        title: What the result is.
        lines: What must be read beside it.
        tables: By what they show; of long ones the first rows.
    """
    parts = [f"<div><strong>{escape(title)}</strong>"]
    parts += [f"<p>{escape(line)}</p>" for line in lines]
    for name, table in (tables or {}).items():
        left = len(table) - ROWS
        more = f" (first {ROWS} of {len(table)})" if left > 0 else ""
        parts.append(f"<p>{escape(name)}{more}</p>")
        parts.append(
            table.head(ROWS).to_html(index=False, float_format="{:.3g}".format, na_rep="", border=0)
        )
    return "\n".join([*parts, "</div>"])


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar for whatever takes ``progress``, in a notebook and in a terminal.

    ```python
    with progress_bar("heads") as progress:
        result = tda_bias.head_bias(model, triples, progress=progress)
    ```

    Args:
        title: What is being done.

    Yields:
        What to call with what is done and with all there is.
    """
    from tqdm import tqdm

    with tqdm(desc=title) as bar:

        def moved(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield moved
