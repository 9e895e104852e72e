"""Command lines that follow a run, for the part ``next`` of a finding."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tda_bias.store.record import RunRecord


def report_of(folder: Path) -> str:
    """The command that follows every run: its page."""
    return f"tdabias report {quote(str(folder))}"


def data_option(record: RunRecord | None) -> str:
    """The ``--data`` and ``--twins`` of a run, where not the defaults, for a command after it."""
    defaults = {"data": "stereoset", "twins": "auto"}
    settings = record.settings if record is not None else {}
    given = {name: str(settings.get(name, default)) for name, default in defaults.items()}
    return "".join(
        f" --{name} {quote(value)}" for name, value in given.items() if value != defaults[name]
    )
