"""Changes between two models, and between two maps of heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.runs.figures import (
    BLUE,
    COLUMN,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PAGE,
    captioned,
    print_figure,
)

_COLOURS = {"bias": BLUE, "quality": GREEN, "knowledge": ORANGE}
_ROW = 0.17  # inches


def plot_comparison(comparison: ModelComparison) -> Figure:
    """The change of every outcome with its interval; dotted where a guard ends.

    Args:
        comparison: From ``compare_models``.
    """
    table = comparison.table.dropna(subset=["change"])
    units = list(dict.fromkeys(table["unit"]))
    rows = [int((table["unit"] == unit).sum()) for unit in units]
    figure = print_figure(PAGE, 0.9 + sum(_ROW * n + 0.55 for n in rows))
    grid = figure.subplots(len(units), 1, height_ratios=[n + 1 for n in rows], squeeze=False)
    for ax, unit in zip(grid[:, 0], units, strict=True):
        _panel(ax, table[table["unit"] == unit], unit)
    for kind in dict.fromkeys(table["kind"]):
        grid[0, 0].plot([], [], "o", ms=4, color=_COLOURS[kind], label=kind)
    grid[0, 0].legend(
        frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.1
    )
    record = comparison.record
    return captioned(
        figure,
        f"{record.after.name} minus {record.model.name}: change, {record.confidence:.0%} "
        "interval over clusters. Right: before and after. Filled: primary outcomes. Dotted: how "
        "much worse an outcome may get.",
    )


def _panel(ax: Axes, table: pd.DataFrame, unit: str) -> None:
    places = np.arange(len(table))[::-1]
    for place, row in zip(places, table.to_dict("records"), strict=True):
        colour = _COLOURS[row["kind"]]
        ends = [row["low"], row["high"]]
        if np.isfinite(ends).all():
            ax.plot(ends, [place, place], color=colour, lw=1)
        face = colour if row["primary"] else "white"
        ax.plot(row["change"], place, "o", ms=4, mec=colour, mfc=face)
        if row["guard"]:
            ax.plot([row["margin"]] * 2, [place - 0.4, place + 0.4], ":", color="black", lw=1.2)
        ax.annotate(
            f"{row['before']:.3g} → {row['after']:.3g}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=6,
        )
    ax.axvline(0, color="black", lw=0.5)
    ax.set_yticks(places, table["outcome"].to_list(), fontsize=6)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(unit, labelpad=1)
    ax.margins(x=0.08)


# -- heads -----------------------------------------------------------------------------------------


def plot_head_comparison(comparison: HeadsComparison) -> Figure:
    """Maps of two runs against each other, where heads are matched, and their layer profiles."""
    matched = comparison.record.matched
    figure = print_figure(PAGE if matched else COLUMN, 3.1)
    axes = figure.subplots(1, 2 if matched else 1, squeeze=False)[0]
    if matched:
        _scatter(axes[0], comparison)
    _profiles(axes[-1], comparison)
    record = comparison.record
    said = ", ".join(
        f"{row['over']} {row['rho']:.2f} (chance {row['chance_low']:.2f} to "
        f"{row['chance_high']:.2f})"
        for row in comparison.agreement.to_dict("records")
    )
    return captioned(figure, f"{record.category}, {record.by}. Spearman over {said}.")


def _scatter(ax: Axes, comparison: HeadsComparison) -> None:
    heads = comparison.heads
    certain = heads["p_holm"] < 0.05
    for heads_of, colour, label in (
        (heads[~certain], LIGHT_GREY, "within the noise"),
        (heads[certain], ORANGE, "moved, Holm p < .05"),
    ):
        ax.scatter(heads_of["before"], heads_of["after"], s=6, color=colour, label=label)
    for row in heads[certain].nlargest(8, "z").to_dict("records"):
        ax.annotate(
            f"L{row['layer']}H{row['head']}",
            (row["before"], row["after"]),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=5,
        )
    values = heads[["before", "after"]].to_numpy()
    ends = [np.nanmin(values), np.nanmax(values)]
    ax.plot(ends, ends, color="black", lw=0.5)
    ax.set_xlabel(f"map of {comparison.record.model.name}")
    ax.set_ylabel(f"map of {comparison.record.after.name}")
    ax.legend(frameon=False)


def _profiles(ax: Axes, comparison: HeadsComparison) -> None:
    names = {"before": comparison.record.model.name, "after": comparison.record.after.name}
    for (side, layers), colour, marker in zip(
        comparison.layers.groupby("model", sort=False), (BLUE, ORANGE), "os", strict=True
    ):
        ax.plot(layers["depth"], layers["value"], marker=marker, ms=3, lw=1, color=colour,
                label=names[str(side)])  # fmt: skip
    ax.set_xlabel("relative depth")
    ax.set_ylabel(f"{comparison.record.by}, mean over heads")
    ax.legend(frameon=False)
