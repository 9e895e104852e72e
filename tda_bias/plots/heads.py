"""Runs of heads as matplotlib axes: maps, layers by heads, and the whole run with its controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from tda_bias.heads.ranking_controls import chance_level
from tda_bias.heads.tables import survives
from tda_bias.plots.maps import cross_out, draw_tested_map, maps_figure, settled
from tda_bias.show.figures import BLUE, COLOURS, GREEN, GREY, ORANGE, captioned, print_style
from tda_bias.show.names import named_map
from tda_bias.show.text import counted, number_text, short_name
from tda_bias.stats.resampling import LEVEL
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError, RankBy

_PUBLISHED = {"relative": "|relative statistic|", "statistic": "|S|", "metric": "|metric T|"}


class Maps(Protocol):
    """What is drawn of a run of heads; ``tda_bias.HeadBias`` has it, and draws itself by this."""

    # Tables and record of the run, and which map ranks its heads.
    @property
    def groups(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def combined(self) -> pd.DataFrame: ...  # noqa: D102
    @property
    def record(self) -> Any: ...  # noqa: D102
    @property
    def rank_by(self) -> RankBy: ...  # noqa: D102
    @property
    def categories(self) -> list[str]: ...  # noqa: D102
    # Of a category: its map, any column layers by heads, the columns of a ranking, its controls.
    def category_map(self, category: str, *, by: RankBy) -> np.ndarray: ...  # noqa: D102
    def layer_by_head(self, column: str, category: str) -> np.ndarray: ...  # noqa: D102
    def columns(self, category: str, *, by: RankBy) -> Any: ...  # noqa: D102
    def controls(self, category: str) -> dict[str, Any]: ...  # noqa: D102
    def category_summary(self) -> pd.DataFrame: ...  # noqa: D102


def plot_heatmap(
    result: Maps, *, ax: Axes | None = None, category: str, by: RankBy = "evidence"
) -> Axes:
    """The map of a category, in the unit that heads are ranked by.

    Heads that survive correction are coloured, the others grey, the darker the larger. A
    family-wise p < .05 has a filled dot, a q < .05 an open one; unstable heads are crossed out.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    values = result.category_map(category, by=by)
    unstable = result.layer_by_head("unstable", category).astype(bool)
    tested = result.columns(category, by=by).tested
    p_max, q = (result.layer_by_head(f"{name}_{tested}", category) for name in ("p_max", "q"))
    family = p_max < LEVEL
    draw_tested_map(
        ax,
        values,
        survives=survives(p_max, q),
        unstable=unstable,
        chance=chance_level(result.controls(category), by, tested),
        layers=result.record.model.layers,
        label=_unit(by, tested),
    )
    for chosen, face, edge in (
        (family, "black", "white"),
        ((q < LEVEL) & ~family, "none", "black"),
    ):
        layer, head = np.nonzero(chosen)
        ax.scatter(head, layer, s=12, marker="o", facecolor=face, edgecolor=edge, linewidth=0.8)
    cross_out(ax, unstable)
    ax.set_title(f"{category} · {short_name(result.record.model.name)}", fontsize="medium")
    return ax


def _unit(by: RankBy, tested: str) -> str:
    """What the bar of a map counts."""
    if by in _PUBLISHED:
        return f"mean z over groups of {_PUBLISHED[by]}"
    against = ", triple minus twin" if tested.endswith("_twin") else ""
    return f"{named_map(by)}{against}: SDs above the mean under exchange"


def caption(result: Maps, category: str, by: RankBy) -> str:
    """The line under a map: how many texts, and how many heads chance would give."""
    c = result.controls(category)
    below = c["hot_spots_p05"]
    return (
        f"{counted(c['groups'], 'group')}, {counted(c['triples'], 'triple')}. {below} of "
        f"{c['heads']} heads have "
        f"p < .05 ({c['hot_spots_expected']:.1f} expected by chance), "
        f"{c['hot_spots_p_max05']} with family-wise p < .05 (filled), "
        f"{c['hot_spots_q05']} with q < .05 (filled or open); the others are grey. "
        f"Split-half reliability {number_text(c['reliability'])}. Crosses: unstable in some group."
    )


@print_style()
def heatmap_figure(result: Maps) -> Figure:
    """One map per category of the run, with their control lines below."""
    by, names = result.rank_by, result.categories
    layers, heads = result.category_map(names[0], by=by).shape
    figure, axes = maps_figure(layers, heads, len(names))
    for ax, name in zip(axes, names, strict=True):
        plot_heatmap(result, ax=ax, category=name, by=by)
    lines = [caption(result, name, by) for name in names]
    if len(names) > 1:
        lines = [f"{name}: {line}" for name, line in zip(names, lines, strict=True)]
    return settled(captioned(figure, "\n".join(lines)))


# -- a whole run -----------------------------------------------------------------------------------

_MARKERS = ("o", "s", "^", "D")


_CATEGORIES = {
    "mean": (BLUE, "mean over groups of the\nmean metric T over heads"),
    "sd": (ORANGE, "SD over groups of the\nmean metric T over heads"),
}


def plot_categories(result: Maps, quantity: Literal["mean", "sd"] = "mean", *, ax: Axes) -> Axes:
    """Per category, mean (with its standard error) or SD over groups of a group's mean over heads.

    Source: Varadarajan & Songdechakraiwut, figures 8 (without the errors) and 9.
    """
    table = result.category_summary()
    colour, label = _CATEGORIES[quantity]
    place = np.arange(len(table))
    ax.bar(place, table[quantity], 0.6, color=colour, alpha=0.75)
    if quantity == "mean":
        ax.axhline(0, color=GREY, linewidth=0.8)
        error = table["standard_error"]
        ax.errorbar(place, table["mean"], error, fmt="none", ecolor="black", capsize=3)
    ax.set_xticks(place, _counted(table))
    ax.set_ylabel(label)
    return ax


def plot_length_control(result: Maps, *, dim: int = 1, ax: Axes) -> Axes:
    """Groups as points: mean S over stable heads against S of uniform attention, same lengths.

    Points on a rising line say that lengths, not stereotypes, make the difference.
    """
    for number, category in enumerate(result.categories):
        groups = result.groups[result.groups["category"] == category]
        x, y = groups[f"length_statistic_{dim}"], groups[f"S{dim}_mean_stable"]
        both = x.notna() & y.notna()
        rho = f"{spearmanr(x[both], y[both]).statistic:.2f}" if both.sum() > 2 else "undefined"
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        ax.scatter(
            x, y, s=14, alpha=0.8, color=colour, marker=marker, linewidth=0,
            label=f"{category}, Spearman {rho}",
        )  # fmt: skip
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.set_xlabel(f"length statistic, dimension {dim} (no model)")
    ax.set_ylabel("mean S over stable heads")
    ax.legend(frameon=False, fontsize="x-small")
    return ax


def plot_reliability(result: Maps, *, ax: Axes) -> Axes:
    """Split-half reliability of groups (points) and of category maps (bars).

    A diamond is the map's correlation with its own mean under flipped labels: what is reliable
    without any effect.
    """
    rng = generator(0)
    for number, category in enumerate(result.categories):
        values = result.groups.loc[result.groups["category"] == category, "reliability"]
        c = result.controls(category)
        # A saved record has null where a number is undefined.
        reliability, null = (
            np.nan if c[name] is None else c[name]
            for name in ("reliability", "null_map_correlation")
        )
        first = number == 0
        ax.bar(
            number, reliability, 0.6, color=BLUE, alpha=0.35,
            label="map" if first else None,
        )  # fmt: skip
        spread = number + rng.uniform(-0.2, 0.2, len(values))
        ax.scatter(
            spread, values, s=9, color=BLUE, alpha=0.8, linewidth=0,
            label="single groups" if first else None,
        )  # fmt: skip
        ax.scatter(
            number, null, marker="D", s=26, color=ORANGE, zorder=3,
            label="map with its mean under flips" if first else None,
        )  # fmt: skip
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(range(len(result.categories)), result.categories)
    ax.set_xlim(-0.8, len(result.categories) - 0.2)
    ax.set_ylabel("Spearman over heads")
    ax.set_ylim(min(-0.05, ax.get_ylim()[0]), 1)
    ax.legend(frameon=False, fontsize="x-small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return ax


def plot_calibration(pvalues: Mapping[str, np.ndarray], *, ax: Axes) -> Axes:
    """Share of p-values at or below each level where there is no effect; the diagonal is right."""
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, label="calibrated")
    for (name, values), colour, style in zip(
        pvalues.items(), (ORANGE, BLUE, GREEN), ("-", "-", "--"), strict=True
    ):
        label = f"{name}: {(values < LEVEL).mean():.1%} below .05"
        ax.ecdf(values, color=colour, linestyle=style, label=label)
    ax.axvline(0.05, color=GREY, linewidth=0.6, linestyle=":", label="p = .05")
    ax.set_xlabel("p")
    ax.set_ylabel("share of heads at or below")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def agreement(results: Mapping[str, Maps]) -> pd.DataFrame:
    """Spearman over common groups of their mean |relative| over heads, model by model."""
    size = {}
    for name, result in results.items():
        table = result.combined.assign(size=result.combined["combined_relative"].abs())
        size[name] = table.groupby(["category", "group"])["size"].mean()
    names = list(results)
    rho = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for number, first in enumerate(names):
        for second in names[:number]:
            both = pd.concat([size[first], size[second]], axis=1, join="inner").dropna().to_numpy()
            if len(both) < 4:
                raise InputError(
                    f"{first} and {second} have {len(both)} groups in common; 4 are needed"
                )
            rho.loc[first, second] = rho.loc[second, first] = float(spearmanr(both).statistic)
    return rho


def plot_agreement(results: Mapping[str, Maps], *, ax: Axes) -> Axes:
    """Do models single out the same groups? Mean |relative| over heads, Spearman over groups.

    Heads of different models have nothing in common; groups do.

    Raises:
        InputError: if two share fewer than four groups.
    """
    table = agreement(results)
    image = ax.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1)
    names = list(results)
    for (row, column), value in np.ndenumerate(table.to_numpy()):
        colour = "white" if abs(value) > 0.6 else "black"
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.figure.colorbar(image, ax=ax, label="Spearman over groups", shrink=0.8)
    return ax


def _counted(table: pd.DataFrame) -> list[str]:
    rows = zip(table["category"], table["groups"], strict=True)
    return [f"{category}\n{counted(int(groups), 'group')}" for category, groups in rows]
