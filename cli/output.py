"""How far a command is, on standard error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from .settings import OutputSettings

# Takes what is done, and all there is where that is known.
Moved = Callable[[int, int | None], None]


def progress_bar(settings: OutputSettings, title: str, unit: str) -> AbstractContextManager[Moved]:
    """Show how far something is: at once in a terminal, every ten seconds in a log."""
    from tda_bias.show.progress import progress_bar

    log = not settings.console.is_terminal
    return progress_bar(title, unit, log=log, quiet=settings.quiet)
