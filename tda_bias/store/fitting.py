"""Titles and labels of a figure that are too long for it: broken into lines before it is written."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# Breaking one label moves others.
_ROUNDS = 3
_FEWEST = 8  # letters in a line


def fit_texts(figure: Figure) -> None:
    """Break titles and axis labels that reach beyond their part of a figure into lines."""
    if not figure.axes:
        return
    for _ in range(_ROUNDS):
        figure.draw_without_rendering()
        broken = [
            _broken(text, room, upright=upright)
            for ax in figure.axes
            for text, room, upright in _labels(figure, ax)
        ]
        if not any(broken):
            return


def _labels(figure: Figure, ax: Axes) -> list[tuple[Text, tuple[float, float], bool]]:
    """Texts around axes, the ends of the room that each has, and whether they are upright."""
    from matplotlib.text import Text

    wide, high = _room(figure, ax)
    across = [text for text in ax.get_children() if isinstance(text, Text)]
    titles = [text for text in across if text not in ax.texts]
    return [
        *((text, wide, False) for text in (*titles, ax.xaxis.label)),
        (ax.yaxis.label, high, True),
    ]


def _room(figure: Figure, ax: Axes) -> tuple[tuple[float, float], tuple[float, float]]:
    """Pixels across and up that belong to axes: their cells of the grid, or all there is."""
    whole, place = figure.bbox, ax.get_subplotspec()
    if place is None:  # a colour bar, which may be as wide as what it is of
        middle = (ax.bbox.x0 + ax.bbox.x1) / 2
        for other in figure.axes:
            if other.get_subplotspec() is not None:
                wide, high = _room(figure, other)
                if wide[0] <= middle <= wide[1]:
                    return wide, (whole.y0, whole.y1)
        return (whole.x0, whole.x1), (whole.y0, whole.y1)
    grid = place.get_gridspec()
    left, right = (
        whole.x0 + whole.width * n / grid.ncols for n in (place.colspan.start, place.colspan.stop)
    )
    if grid.nrows == 1:
        return (left, right), (whole.y0, whole.y1)
    # Rows may differ in height: a label may be as long as its axes and what is around them.
    around = 0.1 * whole.height / grid.nrows
    return (left, right), (ax.bbox.y0 - around, ax.bbox.y1 + around)


def _broken(text: Text, room: tuple[float, float], *, upright: bool) -> bool:
    """Break a text that is longer than its room; tell whether that was so."""
    said = text.get_text()
    if not said.strip() or not text.get_visible():
        return False
    box = text.get_window_extent()
    low, high = (box.y0, box.y1) if upright else (box.x0, box.x1)
    if low >= room[0] and high <= room[1]:
        return False
    align = text.get_horizontalalignment()
    middle = (low + high) / 2
    free = {
        "left": room[1] - low,
        "right": high - room[0],
        "center": 2 * min(middle - room[0], room[1] - middle),
    }[align]
    longest = max(map(len, said.split("\n")))
    letters = max(_FEWEST, int(longest * 0.97 * free / (high - low)))
    lines = [line for part in said.split("\n") for line in textwrap.wrap(part, letters) or [""]]
    text.set_text("\n".join(lines))
    return "\n".join(lines) != said
