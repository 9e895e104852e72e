"""What a reader sees of a figure's texts: whether they are whole, and apart from each other."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text

# Pixels by which a text may reach over an edge or another text: boxes are a little larger than ink.
SLACK = 1.0


def unseen(figure: Figure) -> list[str]:
    """A line about every text that is cut off, and every two of axes and titles that overlap.

    Texts beside points and in cells may touch: there are as many as the data have.
    """
    FigureCanvasAgg(figure).draw()
    hidden = {id(label) for ax in figure.axes for axis in _axes_of(ax) for label in _beyond(axis)}
    shown = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ]
    cut = [f"cut off: {text.get_text()!r}" for text in shown if not _inside(figure, text)]
    of_axes = {id(text) for text in _labels(figure)}
    apart = [(text, _outline(text)) for text in shown if id(text) in of_axes]
    return cut + [
        f"overlap: {one.get_text()!r} and {other.get_text()!r}"
        for (one, first), (other, second) in combinations(apart, 2)
        if first.intersects_path(second, filled=True)
    ]


def _axes_of(ax: Axes) -> tuple[Axis, Axis]:
    return ax.xaxis, ax.yaxis


def _beyond(axis: Axis) -> Iterator[Text]:
    """Labels of ticks that lie outside an axis, which are not drawn."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
        if not low - slack <= tick.get_loc() <= high + slack:
            yield from (tick.label1, tick.label2)


def _inside(figure: Figure, text: Text) -> bool:
    box, whole = text.get_window_extent(), figure.bbox
    return bool(
        box.x0 >= whole.x0 - SLACK
        and box.x1 <= whole.x1 + SLACK
        and box.y0 >= whole.y0 - SLACK
        and box.y1 <= whole.y1 + SLACK
    )


def _labels(figure: Figure) -> Iterator[Text]:
    """Titles, labels and legends of a figure and its axes, and the labels of ticks."""
    for legend in figure.legends:
        yield from legend.get_texts()
    yield from (text for text in (figure._suptitle, figure._supxlabel) if text is not None)
    for ax in figure.axes:
        yield from (ax.title, ax._left_title, ax._right_title)
        if (legend := ax.get_legend()) is not None:
            yield from legend.get_texts()
        for axis in _axes_of(ax):
            yield from (axis.label, axis.get_offset_text())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                yield from (tick.label1, tick.label2)


def _outline(text: Text) -> Path:
    """The box of a text, turned as the text is."""
    turned, whole = text.get_rotation(), text.get_window_extent()
    text.set_rotation(0)
    flat = text.get_window_extent()
    text.set_rotation(turned)
    half = np.array([flat.width, flat.height]) / 2 - SLACK
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]) * np.maximum(half, 0.1)
    cos, sin = np.cos(np.radians(turned)), np.sin(np.radians(turned))
    centre = np.array([whole.x0 + whole.width / 2, whole.y0 + whole.height / 2])
    return Path(corners @ np.array([[cos, sin], [-sin, cos]]) + centre, closed=True)
