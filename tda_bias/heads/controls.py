"""The controls that lie inside a run of heads: random weights, and placebo twins."""

from __future__ import annotations

from pathlib import Path

from tda_bias.heads.finding import PlaceboContrast, placebo_contrast
from tda_bias.heads.result import HeadBias
from tda_bias.store.files import RECORD
from tda_bias.store.identity import Changes, identity
from tda_bias.store.record import EarlierRunError
from tda_bias.twins import PLACEBOS

# Folders inside a run: of the same with random weights, and of placebo twins.
UNTRAINED = "untrained"
PLACEBO = "placebo-{}"
# Settings that say which of the data's texts were read.
_TEXTS = ("category", "pairs", "group", "limit", "twins")


def untrained_control(result: HeadBias, folder: Path) -> HeadBias | None:
    """The run with random weights inside a run's folder, as far as it can be compared."""
    return _inside(result, folder / UNTRAINED)


def placebo_contrasts(result: HeadBias, folder: Path, category: str) -> dict[str, PlaceboContrast]:
    """By placebo, the tests with twins beside those with placebo twins; only what was run."""
    runs = {name: _inside(result, folder / PLACEBO.format(name)) for name in PLACEBOS}
    contrasts = {name: placebo_contrast(result, run, category) for name, run in runs.items() if run}
    return {name: contrast for name, contrast in contrasts.items() if contrast is not None}


def _inside(result: HeadBias, at: Path) -> HeadBias | None:
    """The control of a run in a folder; None without one, or if it is of other settings or data.

    One of an earlier version that lies there must not end a new run after all its work.
    """
    if not (at / RECORD).is_file():
        return None
    try:
        control = HeadBias.load(at)
    except EarlierRunError:
        return None
    of_run, of_control = (
        [
            record.data,
            *(getattr(record.model, name) for name in ("architecture", "parameters", "dtype")),
            *(record.settings.get(name) for name in _TEXTS),
            identity(record.config, Changes.TABLES),
        ]
        for record in (result.record, control.record)
    )
    return control if of_run == of_control else None
