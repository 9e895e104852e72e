"""The figures of underspecified questions, as they stand in print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tda_bias.runs.figures import Entry
from tda_bias.runs.run import Run
from unqover.answers import Answers
from unqover.plots import report_figures
from unqover.report import Report, bias_report


def load_report(folder: Path) -> Report:
    """The report of a run's answers, with the default numbers of flips and resamples."""
    return bias_report(Answers.load(folder))


def questions(name: str) -> Callable[[Sequence[Run]], Figure]:
    """A function that draws one of the figures of underspecified questions."""

    def draw(runs: Sequence[Run]) -> Figure:
        return runs[0].load(_drawn)[name]

    return draw


def _drawn(folder: Path) -> dict[str, Figure]:
    return report_figures(load_report(folder))


FIGURES: tuple[Entry, ...] = (
    Entry(
        "unqover_heat_map",
        "Comparative bias by subject and attribute",
        "unqover",
        questions("heat_map"),
    ),
    Entry(
        "unqover_attributes",
        "Attributes ranked by comparative bias",
        "unqover",
        questions("attributes"),
    ),
    Entry(
        "unqover_interaction",
        "Interaction of two factors",
        "unqover",
        questions("interaction"),
        holds=lambda run: not run.load(load_report).joint.empty,
    ),
)
