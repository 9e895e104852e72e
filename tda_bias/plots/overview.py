"""Overview of a whole run with its controls: categories, length, reliability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import spearmanr

from tda_bias.heads.result import agreement
from tda_bias.runs.figures import BLUE, COLOURS, GREEN, GREY, ORANGE
from tda_bias.runs.text import counted
from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.heads.resampled import Calibration
    from tda_bias.heads.result import HeadBias

_MARKERS = ("o", "s", "^", "D")


def plot_category_means(result: HeadBias, *, ax: Axes | None = None) -> Axes:
    """Per category, the mean over groups of a group's mean over heads, with its standard error.

    Source: Varadarajan & Songdechakraiwut, figure 8 (without the errors).
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    table = result.category_summary(by="metric")
    ax.axhline(0, color=GREY, linewidth=0.8)
    place = np.arange(len(table))
    ax.bar(place, table["mean"], 0.6, color=BLUE, alpha=0.75)
    ax.errorbar(
        place, table["mean"], table["standard_error"], fmt="none", ecolor="black", capsize=3
    )
    ax.set_xticks(place, _counted(table))
    ax.set_ylabel("mean over groups of the\nmean metric T over heads")
    return ax


def plot_category_spreads(result: HeadBias, *, ax: Axes | None = None) -> Axes:
    """Per category, the standard deviation over groups of a group's mean over heads.

    Source: Varadarajan & Songdechakraiwut, figure 9.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    table = result.category_summary(by="metric")
    place = np.arange(len(table))
    ax.bar(place, table["sd"], 0.6, color=ORANGE, alpha=0.75)
    ax.set_xticks(place, _counted(table))
    ax.set_ylabel("SD over groups of the\nmean metric T over heads")
    return ax


def plot_length_control(result: HeadBias, *, dim: int = 1, ax: Axes | None = None) -> Axes:
    """Groups as points: mean S over stable heads against S of uniform attention, same lengths.

    Points on a rising line say that lengths, not stereotypes, make the difference.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    for number, category in enumerate(result.categories):
        groups = result.groups[result.groups["category"] == category]
        x, y = groups[f"length_statistic_{dim}"], groups[f"S{dim}_mean_stable"]
        both = x.notna() & y.notna()
        rho = f"{spearmanr(x[both], y[both]).statistic:.2f}" if both.sum() > 2 else "undefined"
        ax.scatter(
            x, y, s=14, alpha=0.8, color=COLOURS[number], marker=_MARKERS[number], linewidth=0,
            label=f"{category}, Spearman {rho}",
        )  # fmt: skip
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.set_xlabel(f"length statistic, dimension {dim} (no model)")
    ax.set_ylabel("mean S over stable heads")
    ax.legend(frameon=False, fontsize="x-small")
    return ax


def plot_reliability(result: HeadBias, *, ax: Axes | None = None) -> Axes:
    """Split-half reliability of groups (points) and of category maps (bars).

    A diamond is the map's correlation with its own mean under flipped labels: what is reliable
    without any effect.
    """
    ax = ax or plt.subplots(layout="constrained")[1]
    rng = np.random.default_rng(0)
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
    ax.set_ylim(min(-0.05, ax.get_ylim()[0]), 1.3)
    ax.legend(frameon=False, fontsize="x-small", loc="upper left", ncols=2)
    return ax


def plot_calibration(result: Calibration, *, ax: Axes | None = None) -> Axes:
    """Share of p-values at or below each level where there is no effect; the diagonal is right."""
    ax = ax or plt.subplots(layout="constrained")[1]
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, label="calibrated")
    below = result.below()
    for (name, values), colour, style in zip(
        result.pvalues.items(), (ORANGE, BLUE, GREEN), ("-", "-", "--"), strict=True
    ):
        label = f"{name}: {below[name]:.1%} below .05"
        ax.ecdf(values, color=colour, linestyle=style, label=label)
    ax.axvline(0.05, color=GREY, linewidth=0.6, linestyle=":")
    ax.set_xlabel("p")
    ax.set_ylabel("share of heads at or below")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def plot_agreement(results: Mapping[str, HeadBias], *, ax: Axes | None = None) -> Axes:
    """Do models single out the same groups? Mean |relative| over heads, Spearman over groups.

    Heads of different models have nothing in common; groups do.

    Args:
        results: Two or more runs by name.
        ax: Where to draw.

    Raises:
        InputError: if there is one run, or two share fewer than four groups.
    """
    if len(results) < 2:
        raise InputError("ranking agreement needs runs of at least 2 models")
    ax = ax or plt.subplots(layout="constrained")[1]
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
