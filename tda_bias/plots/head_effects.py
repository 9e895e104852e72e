"""Heads' effects on a model's risks beside what their attention shows, as matplotlib axes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tda_bias.crossref.head_crossref import (
    NOT_MEASURED,
    RISKS,
    HeadCrossReference,
    primary,
)
from tda_bias.show.figures import (
    COLOURS,
    GREY,
    ORANGE,
    PAGE,
    captioned,
    plain_numbers,
    print_figure,
    print_style,
)
from tda_bias.show.names import named_map
from tda_bias.show.text import counted, number_text, p_text


def plot_effect_map(table: pd.DataFrame, column: str, *, ax: Axes, title: str) -> Axes:
    """A column of heads as a map, layers by heads, about 0."""
    by_head = table.pivot(index="layer", columns="head", values=column)
    values = by_head.to_numpy(float)
    limit = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    image = ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    ax.set_title(title)
    ax.set_xlabel("head")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=11))
    # Rows are named by the model's numbers of its layers.
    names = dict(enumerate(by_head.index))
    ax.yaxis.set_major_formatter(lambda place, _: str(names.get(round(place), "")))
    ax.figure.colorbar(image, ax=ax, location="bottom", shrink=0.9).ax.tick_params(labelsize=6)
    return ax


def plot_effects_against_z(result: HeadCrossReference, risk: str, *, ax: Axes) -> Axes:
    """The size of each head's effect on a risk against its place in the run's ranking.

    Sizes have a logarithmic axis; a head without any effect has no point.
    """
    table, ranking = result.heads, f"z_{result.record.rank_by}"
    measured = table[table["chosen"] != NOT_MEASURED]
    every, exact = table[f"effect_{risk}"].abs(), measured[f"exact_{risk}"].abs()
    ax.scatter(table[ranking], every.where(every > 0), s=5, color=GREY, label="first order")
    ax.scatter(
        measured[ranking], exact.where(exact > 0), s=14, facecolor="none", edgecolor=ORANGE,
        label="exact",
    )  # fmt: skip
    (row,) = primary(result).query("risk == @risk").to_dict("records")
    if (every > 0).any():
        ax.set_yscale("log")
        plain_numbers(ax.yaxis)
    rho, p = number_text(row["spearman"]), p_text(row["p_within_layers"])
    ax.set_title(f"Spearman {rho}\np within layers {p}", fontsize=7)
    ax.set_xlabel(named_map(result.record.rank_by))
    ax.set_ylabel(f"|change of {risk}|")
    return ax


def plot_exact_against_estimates(table: pd.DataFrame, *, ax: Axes) -> Axes:
    """Measured effects against first-order ones, risk by risk; on the line they agree."""
    measured = table[table["chosen"] != NOT_MEASURED]
    limit = 0.0
    for risk, colour, marker in zip(RISKS, COLOURS, "os^", strict=False):
        first, exact = measured[f"effect_{risk}"], measured[f"exact_{risk}"]
        ax.scatter(first, exact, s=9, lw=0, color=colour, marker=marker, label=risk)
        limit = max(limit, 1.1 * float(np.abs([first, exact]).max()))
    limit = limit or 1.0
    ax.plot([-limit, limit], [-limit, limit], color=GREY, lw=0.8, ls="--", zorder=0)
    ax.set_xlim(-limit, limit)
    ax.set_ylim(-limit, limit)
    ax.set_xlabel("change, first order")
    ax.set_ylabel("change, exact")
    ax.set_title(f"{counted(len(measured), 'head')}", fontsize=7)
    ax.legend(frameon=False, fontsize=6, handletextpad=0.1, borderpad=0)
    return ax


@print_style()
def head_effects_figure(result: HeadCrossReference) -> Figure:
    """The map of z beside those of the effects on each risk, and below them the scatters."""
    record, table = result.record, result.heads
    layers = table["layer"].nunique()
    figure = print_figure(PAGE, 3.0 + min(max(1.2 + 0.07 * layers, 1.6), 4.0))
    maps, scatters = figure.subplots(2, 1 + len(RISKS), height_ratios=[1.3, 1])
    plot_effect_map(table, f"z_{record.rank_by}", ax=maps[0], title=named_map(record.rank_by))
    maps[0].set_ylabel("layer")
    plot_exact_against_estimates(table, ax=scatters[0])
    for risk, above, below in zip(RISKS, maps[1:], scatters[1:], strict=True):
        plot_effect_map(table, f"effect_{risk}", ax=above, title=f"effect on {risk}")
        plot_effects_against_z(result, risk, ax=below)
    legend = scatters[1].get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper right", ncols=2, frameon=False)
    needed = primary(result)["significant"].max()
    return captioned(
        figure,
        f"{record.model.name}, {record.category}: {counted(len(table), 'head')}; "
        f"{counted(record.words, 'word')} in {counted(record.templates, 'template')}. Effect: "
        f"change on ablation ({record.ablation}), to first order; red raises the risk. A Spearman "
        f"that is {number_text(needed)} away from what the means of layers give has p < .05, "
        "before any correction.",
    )
