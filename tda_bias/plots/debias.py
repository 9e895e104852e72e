"""Bias that is left against what that cost, training by training."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.runs.figures import (
    BLUE,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    PAGE,
    PINK,
    plain_text,
    print_figure,
)

_COLOURS, _MARKERS = (BLUE, ORANGE, GREEN, PINK, GREY), "osD^vP*X"
_QUANTITIES = {
    "beta": "|mean of beta| (nats per token)",
    "rms": "rms of beta (nats per token)",
}


@plain_text
def plot_frontier(frontier: pd.DataFrame) -> Figure:
    """Beta on targets that were never seen, against the change of perplexity, check by check.

    Args:
        frontier: From ``tda_bias.debias.summary.frontier_table``.
    """
    figure = print_figure(PAGE, 3.0)
    axes = figure.subplots(1, 2)
    for ax, (name, title) in zip(axes, _QUANTITIES.items(), strict=True):
        _panel(ax, frontier, name)
        ax.set_xlabel("change of perplexity (%)")
        ax.set_ylabel(title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside right upper")
    return figure


def _panel(ax: Axes, frontier: pd.DataFrame, quantity: str) -> None:
    random = frontier[frontier["condition"] == "random"]
    for number, (_, line) in enumerate(random.groupby("draw")):
        label = "random heads" if number == 0 else None
        ax.plot(line["perplexity"], line[quantity].abs(), color=LIGHT_GREY, lw=0.6, label=label)
    named = frontier[frontier["condition"] != "random"]
    for number, (name, line) in enumerate(named.groupby("condition", sort=False)):
        ax.plot(
            line["perplexity"],
            line[quantity].abs(),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            ls="-" if number < len(_COLOURS) else "--",
            ms=3,
            lw=1,
            label=str(name),
        )
    before = frontier.loc[frontier["check"] == 0, quantity].abs().iloc[0]
    ax.axhline(before, color="black", lw=0.5, ls=":", label="untouched")
    for loss in (1, 2):
        ax.axvline(loss, color=LIGHT_GREY, lw=0.4, ls="--")
    ax.set_ylim(bottom=0)
