"""Maps of heads, layers by heads, as matplotlib axes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from tda_bias.heads.record import map_columns
from tda_bias.runs.text import counted, number_text
from tda_bias.types import RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

# Visible on dark cells too.
_OUTLINE = [withStroke(linewidth=2.2, foreground="white")]
_PUBLISHED = {"relative": "|relative statistic|", "statistic": "|S|", "metric": "|metric T|"}
_TESTS = {"evidence": "dispersion", "location": "location"}


def plot_heatmap(
    result: HeadBias, *, ax: Axes | None = None, category: str, by: RankBy = "evidence"
) -> Axes:
    """The map of a category, in the unit that heads are ranked by.

    Heads with a family-wise p < .05 carry a filled dot, those with
    q < .05 an open one; unstable heads are crossed out.

    Args:
        result: From ``head_bias``.
        ax: Where to draw; a new figure without it.
        category: Which map.
        by: Which map.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    values = result.category_map(category, by=by)
    unstable = result.layer_by_head("unstable", category).astype(bool)
    limit, extend = _limit(values, unstable)
    tested = map_columns(by, result.category.columns).tested
    p_max, q = (result.layer_by_head(f"{name}_{tested}", category) for name in ("p_max", "q"))
    label = _label(by, twins=tested.endswith("_twin"))
    draw_map(ax, values, p_max, q, limit=limit, extend=extend, label=label)
    layer, head = np.nonzero(unstable)
    ax.scatter(head, layer, s=18, marker="x", color="black", linewidth=0.8, path_effects=_OUTLINE)
    ax.set_title(f"{category} · {result.record.model.name}", fontsize="medium")
    return ax


def draw_map(
    ax: Axes,
    values: Float[np.ndarray, "layer head"],
    p_max: Float[np.ndarray, "layer head"],
    q: Float[np.ndarray, "layer head"],
    *,
    limit: float,
    label: str,
    extend: str = "neither",
) -> None:
    """Draw values around 0; filled dots have a family-wise p < .05, open ones q < .05."""
    image = ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    family = p_max < 0.05
    for chosen, face, edge in ((family, "black", "white"), ((q < 0.05) & ~family, "none", "black")):
        layer, head = np.nonzero(chosen)
        ax.scatter(head, layer, s=18, marker="o", facecolor=face, edgecolor=edge)
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=13))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=17))
    ax.figure.colorbar(image, ax=ax, pad=0.02, extend=extend).set_label(label)


def _label(by: RankBy, *, twins: bool) -> str:
    """Label of the colour scale."""
    if by in _PUBLISHED:
        return f"mean z over groups of {_PUBLISHED[by]}"
    what = f"{_TESTS[by]} test, triple minus twin" if twins else f"{_TESTS[by]} test"
    return f"z, {what}\n(SDs above the mean under exchange)"


def _limit(values: np.ndarray, unstable: np.ndarray) -> tuple[float, str]:
    """The largest size among stable heads, and which end of the scale others go beyond.

    An unstable head must not wash out all others.
    """
    stable = values[~unstable & np.isfinite(values)]
    limit = float(np.abs(stable).max(initial=0.0)) or 1.0
    above, below = np.nanmax(values) > limit, np.nanmin(values) < -limit
    return limit, {(1, 1): "both", (1, 0): "max", (0, 1): "min"}.get((above, below), "neither")


def caption(result: HeadBias, category: str, by: RankBy) -> str:
    """The line under a map: how many texts, and how many heads chance would give."""
    c = result.controls(category)
    below = c["hot_spots_p05"]
    return (
        f"{counted(c['groups'], 'group')}, {counted(c['triples'], 'triple')}. {below} of "
        f"{c['heads']} heads have a "
        f"p < .05 ({c['hot_spots_expected']:.1f} expected by chance), "
        f"{c['hot_spots_p_max05']} with family-wise p < .05 (filled), "
        f"{c['hot_spots_q05']} with q < .05 (filled or open). "
        f"Split-half reliability {number_text(c['reliability'])}. Crosses: unstable in some group."
    )


def heatmap_figure(result: HeadBias) -> Figure:
    """One map per category of the run, each with its control line, at a page's width."""
    names = result.categories
    layers, heads = result.category_map(names[0]).shape
    height = min(max(2.6 + 0.11 * layers, 3.2), 7.5)
    width = min(max(3.6 + 0.11 * heads, 4.6), 7.0)
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    for index, category in enumerate(names):
        ax = figure.add_subplot(rows, columns, index + 1)
        plot_heatmap(result, ax=ax, category=category, by=result.rank_by)
        text = textwrap.fill(caption(result, category, result.rank_by), int(width * 14))
        ax.set_xlabel(f"head\n\n{text}", fontsize="small")
    return figure
