"""BBQ's scores of several runs in one picture: can a model answer, and whom does it name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.show.figures import (
    BLUE,
    GREY,
    ORANGE,
    PAGE,
    Entry,
    captioned,
    print_figure,
    print_style,
)
from tda_bias.show.text import counted, short_names
from tda_bias.store.run import Run
from unqover.bbq.result import BBQScores
from unqover.bbq.scores import EITHER_PERSON

Row = Mapping[str, Any]
# Of ambiguous items: measure, name, colour, marker, and how far from the middle of its row.
_BIAS = (("s_AMB", "s_AMB", BLUE, "o", 0.14), ("bias", "by probability", ORANGE, "s", -0.14))


def plot_right(results: Sequence[BBQScores], *, ax: Axes) -> Axes:
    """Of persons named in disambiguated items, the share that is right; naming either gets .5."""
    rows = list(_rows(results))
    for place, (result, category) in enumerate(rows):
        row = result.value("right", "disambiguated", category=category)
        _draw(ax, row, len(rows) - 1 - place, color=GREY, marker="o")
    ax.axvline(EITHER_PERSON, color="black", linewidth=0.8, linestyle="--")
    ax.set_yticks(range(len(rows)), _labels(results)[::-1])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlabel("named persons that are right\n(disambiguated; dashed: either person)")
    return ax


def plot_ambiguous(results: Sequence[BBQScores], *, ax: Axes) -> Axes:
    """s_AMB and the bias by probability of ambiguous items; 0 for no preference."""
    rows = list(_rows(results))
    for measure, name, colour, marker, shift in _BIAS:
        label: str | None = name
        for place, (result, category) in enumerate(rows):
            row = result.value(measure, "ambiguous", category=category)
            at = len(rows) - 1 - place + shift
            _draw(ax, row, at, color=colour, marker=marker, label=label)
            label = None
    ax.axvline(0, color="black", linewidth=0.8, linestyle="--")
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    ax.set_ylim(-0.6, len(rows) - 0.4)
    most = max(abs(limit) for limit in ax.get_xlim())
    ax.set_xlim(-most, most)
    ax.set_xlabel("biased answers less the others\n(ambiguous; dashed: none)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return ax


def bbq_figure(results: Sequence[BBQScores]) -> Figure:
    """Both panels, a row for each category of each run."""
    rows = len(list(_rows(results)))
    with print_style():
        figure = print_figure(PAGE, 1.5 + 0.3 * rows)
        left, right = figure.subplots(1, 2)
        plot_right(results, ax=left)
        plot_ambiguous(results, ax=right)
        items = counted(sum(result.record.items for result in results), "item")
        levels = sorted({f"{result.record.confidence:.0%}" for result in results})
        return captioned(figure, f"{items}; {' and '.join(levels)} intervals over templates.")


def _rows(results: Sequence[BBQScores]) -> Iterator[tuple[BBQScores, str]]:
    for result in results:
        for category in dict.fromkeys(result.items["category"]):
            yield result, str(category)


def _labels(results: Sequence[BBQScores]) -> list[str]:
    """What every row is of: model, category, language, and how it was asked."""
    models = short_names([result.record.model.name for result in results])
    by_run = dict(zip(map(id, results), models, strict=True))
    labels = []
    for result, category in _rows(results):
        record = result.record
        way = " · letters" if record.ask == "letter" else ""
        chat = " · chat" if record.chat is not None else ""
        labels.append(f"{by_run[id(result)]} · {category} ({record.language}){way}{chat}")
    return labels


def _draw(ax: Axes, row: Row, at: float, *, label: str | None = None, **look: Any) -> None:
    """A value with its interval; nothing where it is undefined."""
    value = row["value"]
    if value != value:
        return
    ax.plot([value], [at], linestyle="none", markersize=4, label=label, **look)
    if row["low"] == row["low"]:
        ax.plot([row["low"], row["high"]], [at, at], color=look["color"], linewidth=1.2)


# -- the catalogue ---------------------------------------------------------------------------------


def _load(folder: Path) -> BBQScores:
    return BBQScores.load(folder)


def _figure(runs: Sequence[Run]) -> Figure:
    return bbq_figure([run.load(_load) for run in runs])


FIGURES: tuple[Entry, ...] = (
    Entry("bbq_scores", "BBQ: right answers, and bias where none is right", "bbq", _figure,
          together="all"),
)  # fmt: skip
