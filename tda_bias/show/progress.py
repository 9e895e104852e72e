"""How far a computation is: a bar in a terminal and a notebook, lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

_SECONDS_IN_A_LOG = 10.0


@contextmanager
def progress_bar(
    title: str, unit: str = "it", *, log: bool = False, quiet: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar for whatever takes ``progress``, in a notebook and a terminal, or lines for a log.

    The speed is that from a second after the first call on: what an earlier run finished is told
    within it.

    ```python
    with progress_bar("heads") as progress:
        result = tda_bias.head_bias(model, triples, progress=progress)
    ```

    Args:
        title: What is being done.
        unit: What is counted: texts, pairs, ...
        log: Whether a line is printed every ten seconds, and one at the end, in place of a bar.
        quiet: Whether nothing is shown.

    Yields:
        What to call with what is done, and with all there is or None.
    """
    from tqdm import tqdm

    # With `miniters` no other thread of tqdm's prints between two lines.
    lines: dict[str, Any] = {"file": _Lines(), "mininterval": _SECONDS_IN_A_LOG, "miniters": 1}
    with tqdm(desc=title, unit=f" {unit}", disable=quiet, **(lines if log else {})) as bar:
        first: float | None = None

        def moved(done: int, total: int | None) -> None:
            nonlocal first
            if first is None:
                first = monotonic()
            bar.total = total
            if monotonic() - first < 1.0:
                bar.unpause()
                bar.initial = bar.n = bar.last_print_n = done
            else:
                bar.update(done - bar.n)

        yield moved


class _Lines:
    """Standard error for tqdm: each update is a line of its own."""

    def write(self, text: str) -> None:
        if update := text.strip():
            sys.stderr.write(f"{update}\n")

    def flush(self) -> None:
        sys.stderr.flush()
