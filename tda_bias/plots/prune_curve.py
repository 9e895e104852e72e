"""What is left of the bias against what removing heads costs, for rankings and random orders."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.records.figures import BLUE, GREEN, LIGHT_GREY, ORANGE, PAGE, PINK, print_figure

_COLOURS, _MARKERS = (BLUE, ORANGE, GREEN, PINK), "osD^"
_TITLES = {"beta": "|beta| (nats)", "log_odds": "log-odds (nats)"}


def plot_prune_curve(curve: pd.DataFrame) -> Figure:
    """Quantities on the targets that chose nothing, against the log-perplexity.

    Args:
        curve: From ``prune_curve``.
    """
    quantities = [name for name in ("beta", "log_odds") if f"{name}_test" in curve]
    figure = print_figure(PAGE * len(quantities) / 2, 2.8)
    for ax, name in zip(
        np.atleast_1d(figure.subplots(1, len(quantities))), quantities, strict=True
    ):
        _panel(ax, curve, name)
    return figure


def _panel(ax: Axes, curve: pd.DataFrame, quantity: str) -> None:
    absolute = quantity == "beta"
    for number, (_, own) in enumerate(curve[curve["ranking"] == "random"].groupby("draw")):
        label = "random orders" if number == 0 else None
        ax.plot(own["log_ppl"], _shown(own, quantity, absolute), color=LIGHT_GREY, lw=0.5,
                label=label)  # fmt: skip
    named = curve[curve["ranking"] != "random"]
    for number, (name, own) in enumerate(named.groupby("ranking", sort=False)):
        ax.plot(
            own["log_ppl"],
            _shown(own, quantity, absolute),
            color=_COLOURS[number % 4],
            marker=_MARKERS[number % 4],
            ms=3.5,
            lw=1,
            label=str(name),
        )
        for x, y, k in zip(own["log_ppl"], _shown(own, quantity, absolute), own["k"], strict=True):
            ax.annotate(str(k), (x, y), xytext=(2, 2), textcoords="offset points", fontsize=5)
    if not absolute:
        ax.axhline(0, color="black", lw=0.5)
    ax.set_xscale("log")
    ax.set_xlabel("log-perplexity of neutral text")
    ax.set_ylabel(_TITLES[quantity])
    ax.legend(frameon=False)


def _shown(own: pd.DataFrame, quantity: str, absolute: bool) -> np.ndarray:
    values = own[f"{quantity}_test"].to_numpy(float)
    return np.abs(values) if absolute else values
