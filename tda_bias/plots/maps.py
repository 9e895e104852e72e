"""Maps of heads, layers by heads: square cells, grey where chance gives as much, colour above."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke

from tda_bias.show.figures import COLUMN, ORANGE, PAGE, print_figure

# Inches: sides of a cell, the height of a map at most, and what labels and bar take beside and
# below it.
_SMALLEST_CELL, _LARGEST_CELL, _HIGHEST = 0.09, 0.2, 7.0
_BESIDE, _BELOW, _CAPTION = 0.6, 1.55, 0.6
# Inches between labels of ticks; a map's room at least; what labels take of another plot's height.
_TICK, _LOWEST, _LABELS = 0.19, 0.6, 0.8
# Points of a bar's label, and its letters in an inch.
_POINTS, _LETTERS = 8, 13
# Up to what chance gives, and above it, from the smallest on; the page has the same.
GREYS, FOUND = ("#ffffff", "#8c8c8c"), ("#f6b98f", ORANGE, "#6b2700")
_GREYS = LinearSegmentedColormap.from_list("chance", GREYS)
_COLOURS = LinearSegmentedColormap.from_list("found", FOUND)
_OUTLINE = [withStroke(linewidth=2.2, foreground="white")]
# The scale reaches beyond chance by this share of it, whatever the data are.
_ROOM = 1.3


def maps_figure(layers: int, heads: int, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes for maps of equal shape, which grows with their layers and heads.

    It is as wide as a column, or as a page where the cells or several maps need that.
    """
    wide = panels > 1 or (COLUMN - _BESIDE) / heads < _SMALLEST_CELL
    beside = 2 if panels > 1 and _cell(2, heads) >= _SMALLEST_CELL else 1
    width, rows = PAGE if wide else COLUMN, math.ceil(panels / beside)
    tallest = max(_HIGHEST / (layers * rows), _SMALLEST_CELL)
    cell = min(_LARGEST_CELL, (width / beside - _BESIDE) / heads, tallest)
    figure = print_figure(width, rows * (cell * layers + _BELOW) + _CAPTION)
    if panels == 1:
        figure.set_layout_engine("compressed")  # constrained, for axes of a fixed shape
    axes = [figure.add_subplot(rows, beside, 1 + place) for place in range(panels)]
    for ax in axes:
        ax.set_anchor("S")  # at its bar, where the room is higher than the map
    return figure, axes


def maps_over_plots(
    layers: int, heads: int, panels: int, height: float
) -> tuple[Figure, list[Axes], list[Axes]]:
    """A page of maps of equal shape over one row of as many other plots, ``height`` inches each."""
    beside = panels if _cell(panels, heads) >= _SMALLEST_CELL else 2
    rows = math.ceil(panels / beside)
    cell = min(_LARGEST_CELL, _cell(beside, heads), _HIGHEST / (layers * rows))
    high = [max(cell * layers, _LOWEST)] * rows
    figure = print_figure(PAGE, sum(high) + rows * _BELOW + height + _CAPTION)
    grid = figure.add_gridspec(rows + 1, panels, height_ratios=[*high, height - _LABELS])
    wide = panels // beside
    above = []
    for place in range(panels):
        row, column = divmod(place, beside)
        ax = figure.add_subplot(grid[row, column * wide : (column + 1) * wide])
        ax.set_anchor("S")
        above.append(ax)
    return figure, above, [figure.add_subplot(grid[rows, place]) for place in range(panels)]


def _cell(beside: int, heads: int) -> float:
    """Inches of a cell's side where so many maps stand beside each other on a page."""
    return (PAGE / beside - _BESIDE) / heads


def settled(figure: Figure) -> Figure:
    """The figure laid out once: the first layout of axes of a fixed shape is not the last."""
    figure.draw_without_rendering()
    return figure


def draw_map(
    ax: Axes,
    values: Float[np.ndarray, "layer head"],
    *,
    layers: Sequence[int],
    cmap: str | Colormap,
    limits: tuple[float, float],
    label: str,
    extend: str = "neither",
) -> AxesImage:
    """Draw values as square cells, with the model's numbers of its layers and a bar below."""
    image = ax.imshow(values, cmap=cmap, vmin=limits[0], vmax=limits[1], aspect="equal")
    wide = _room(ax)
    high = values.shape[0] * min(_LARGEST_CELL, wide / values.shape[1])
    ax.set_xlabel("head", labelpad=1)
    ax.set_ylabel("layer")
    for axis, names, most in (
        (ax.xaxis, range(values.shape[1]), min(13, wide / _TICK)),
        (ax.yaxis, layers, min(17, high / _TICK)),
    ):
        places = range(0, len(names), math.ceil(len(names) / max(most, 1)))
        axis.set_ticks(places, [str(names[place]) for place in places])
    bar = ax.figure.colorbar(
        image, ax=ax, location="bottom", extend=extend, aspect=30, pad=0.02, fraction=0.1
    )
    lines = textwrap.wrap(label, int((wide + _BESIDE) * _LETTERS))
    bar.set_label("\n".join(lines), fontsize=_POINTS)
    return image


def _room(ax: Axes) -> float:
    """Inches of width that axes have for a map."""
    place, whole = ax.get_subplotspec(), ax.get_figure(root=True)
    share = 1.0 if place is None else len(place.colspan) / place.get_gridspec().ncols
    return (COLUMN if whole is None else whole.get_figwidth()) * share - _BESIDE


def draw_tested_map(
    ax: Axes,
    values: Float[np.ndarray, "layer head"],
    *,
    survives: Bool[np.ndarray, "layer head"],
    unstable: Bool[np.ndarray, "layer head"],
    chance: float | None,
    layers: Sequence[int],
    label: str,
) -> AxesImage:
    """Draw a map whose heads were tested: colour for those that survive correction, else grey.

    ``chance`` is the value that the largest head reaches in one of twenty draws without any effect:
    the bar has a line there, below it grey, above it colour. Without one, heads that survive have
    one colour, and the bar is of the others. An unstable head may lie beyond an end of the scale.
    """
    low, top = scale(values[~unstable], chance)
    beyond = bool((values > top).any()), bool((values < low).any())
    extend = {(True, True): "both", (True, False): "max", (False, True): "min"}.get(
        beyond, "neither"
    )
    grey: Colormap = _GREYS
    found: Colormap = ListedColormap([ORANGE])
    said = label
    if chance is not None:
        grey, found = _grey_to(chance, low, top), _COLOURS
        said = f"{label}; line: chance (family-wise p = .05)"
    image = draw_map(
        ax, values, layers=layers, cmap=grey, limits=(low, top), label=said, extend=extend,
    )  # fmt: skip
    ax.imshow(
        np.where(survives, values, np.nan), cmap=found, aspect="equal",
        vmin=low if chance is None else chance, vmax=top,
    )  # fmt: skip
    if chance is not None and image.colorbar is not None:
        image.colorbar.ax.axvline(chance, color="black", linewidth=1.2)
    return image


def cross_out(ax: Axes, unstable: Bool[np.ndarray, "layer head"]) -> None:
    """Draw a cross over each unstable head, visible on dark cells too."""
    layer, head = np.nonzero(unstable)
    ax.scatter(head, layer, s=14, marker="x", color="black", linewidth=0.8, path_effects=_OUTLINE)


def scale(values: Float[np.ndarray, "*any"], chance: float | None) -> tuple[float, float]:
    """The ends of a tested map's scale, which reaches beyond chance whatever the values are."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    top = float(max(high, 0.0 if chance is None else _ROOM * chance))
    return float(low if low < top else top - 1.0), top


def _grey_to(chance: float, low: float, top: float) -> ListedColormap:
    """Grey from the lowest value to what chance gives, colour from there to the highest."""
    place = np.linspace(low, top, 512)
    grey = _GREYS(np.clip((place - low) / max(chance - low, 1e-9), 0, 1))
    colour = _COLOURS(np.clip((place - chance) / max(top - chance, 1e-9), 0, 1))
    return ListedColormap(np.where((place > chance)[:, None], colour, grey))
