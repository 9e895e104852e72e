"""Maps of heads, layers by heads: square cells, grey where chance gives as much, colour above."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tda_bias.show.figures import COLUMN, ORANGE, PAGE, print_figure

# Inches: sides of a cell, the height of a map at most, and what labels and bar take beside and
# below it.
_SMALLEST_CELL, _LARGEST_CELL, _HIGHEST = 0.09, 0.2, 7.0
_BESIDE, _BELOW, _CAPTION = 0.6, 1.55, 0.6
# Points of a bar's label, and its letters in an inch.
_POINTS, _LETTERS = 8, 13
_GREYS = LinearSegmentedColormap.from_list("chance", ["#ffffff", "#8c8c8c"])
_COLOURS = LinearSegmentedColormap.from_list("found", ["#f6b98f", ORANGE, "#6b2700"])
# The scale reaches beyond chance by this share of it, whatever the data are.
_ROOM = 1.3


def maps_figure(layers: int, heads: int, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes for maps of equal shape, which grows with their layers and heads.

    It is as wide as a column, or as a page where the cells or several maps need that.
    """
    wide = panels > 1 or (COLUMN - _BESIDE) / heads < _SMALLEST_CELL
    beside = 2 if panels > 1 and (PAGE / 2 - _BESIDE) / heads >= _SMALLEST_CELL else 1
    width, rows = PAGE if wide else COLUMN, math.ceil(panels / beside)
    tallest = max(_HIGHEST / (layers * rows), _SMALLEST_CELL)
    cell = min(_LARGEST_CELL, (width / beside - _BESIDE) / heads, tallest)
    figure = print_figure(width, rows * (cell * layers + _BELOW) + _CAPTION)
    figure.set_layout_engine("compressed")  # constrained, for axes of a fixed shape
    return figure, [figure.add_subplot(rows, beside, 1 + place) for place in range(panels)]


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
    ax.set_xlabel("head", labelpad=1)
    ax.set_ylabel("layer")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(13, values.shape[1] + 1)))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=min(17, values.shape[0] + 1)))
    for axis, names in (
        (ax.xaxis, dict(enumerate(range(values.shape[1])))),
        (ax.yaxis, dict(enumerate(layers))),
    ):
        axis.set_major_formatter(_named(names))
    bar = ax.figure.colorbar(
        image, ax=ax, location="bottom", extend=extend, aspect=30, pad=0.02, fraction=0.1
    )
    place, whole = ax.get_subplotspec(), ax.get_figure(root=True)
    panels = 1 if place is None else place.get_gridspec().ncols
    inches = COLUMN if whole is None else whole.get_figwidth()
    lines = textwrap.wrap(label, int(inches / panels * _LETTERS))
    bar.set_label("\n".join(lines), fontsize=_POINTS)
    return image


def _named(names: Mapping[int, int]) -> FuncFormatter:
    """Ticks at whole places are called by name, those between and beyond by nothing."""
    return FuncFormatter(lambda place, _: str(names.get(round(place), "")))


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
    stable = values[~unstable & np.isfinite(values)]
    low, high = (stable.min(), stable.max()) if stable.size else (0.0, 1.0)
    top = float(max(high, 0.0 if chance is None else _ROOM * chance))
    low = float(min(low, top - 1e-9))
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


def _grey_to(chance: float, low: float, top: float) -> ListedColormap:
    """Grey from the lowest value to what chance gives, colour from there to the highest."""
    place = np.linspace(low, top, 512)
    grey = _GREYS(np.clip((place - low) / max(chance - low, 1e-9), 0, 1))
    colour = _COLOURS(np.clip((place - chance) / max(top - chance, 1e-9), 0, 1))
    return ListedColormap(np.where((place > chance)[:, None], colour, grey))
