"""Draw the remaining bias against the cost of removing heads, for rankings and random orders."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.ablation.prune_curve import ALLOWED_LOSS
from tda_bias.runs.figures import (
    BLUE,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PAGE,
    PINK,
    plain_text,
    print_figure,
)

_COLOURS, _MARKERS, _LINES = (BLUE, ORANGE, GREEN, PINK, "black"), "osD^vP*", ("-", ":")
_TITLES = {"beta": "|beta| (nats)", "log_odds": "log-odds (nats)"}


@plain_text
def plot_prune_curve(curve: pd.DataFrame) -> Figure:
    """Quantities on the targets that chose nothing, against what the removal costs.

    A point is 0, 1, 2, 4, ... heads; the number at the end of a line is its last. What stands left
    of the dashed line costs no more than is allowed.

    Args:
        curve: From ``prune_curve``.
    """
    quantities = [name for name in ("beta", "log_odds") if f"{name}_test" in curve]
    figure = print_figure(PAGE * len(quantities) / 2, 3.1)
    panels = np.atleast_1d(figure.subplots(1, len(quantities)))
    for ax, name in zip(panels, quantities, strict=True):
        _panel(ax, curve, name)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panel(ax: Axes, curve: pd.DataFrame, quantity: str) -> None:
    base = float(curve.loc[curve["k"] == 0, "log_ppl"].iloc[0])
    for number, (_, rows) in enumerate(curve[curve["ranking"] == "random"].groupby("draw")):
        label = "random orders" if number == 0 else None
        ax.plot(
            rows["log_ppl"] - base, _shown(rows, quantity), color=LIGHT_GREY, lw=0.5, label=label
        )
    named = curve[curve["ranking"] != "random"]
    for number, (name, rows) in enumerate(named.groupby("ranking", sort=False)):
        cost, left = rows["log_ppl"].to_numpy() - base, _shown(rows, quantity)
        colour, line = _COLOURS[number % len(_COLOURS)], _LINES[number // len(_COLOURS) % 2]
        marker = _MARKERS[number % len(_MARKERS)]
        ax.plot(cost, left, line, color=colour, marker=marker, ms=3.5, lw=1, label=str(name))
        ax.annotate(
            f"{rows['k'].iloc[-1]}",
            (cost[-1], left[-1]),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=6,
            color=colour,
        )
    ax.axvline(ALLOWED_LOSS, color="black", lw=0.5, ls="--", label="2 % of perplexity")
    if quantity != "beta":
        ax.axhline(0, color="black", lw=0.5)
    ax.set_xlabel("Change of log-perplexity (nats)")
    ax.set_ylabel(_TITLES[quantity])


def _shown(rows: pd.DataFrame, quantity: str) -> np.ndarray:
    values = rows[f"{quantity}_test"].to_numpy(float)
    return np.abs(values) if quantity == "beta" else values
