"""Heads' effects on a model's risks beside what their attention shows, as matplotlib axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.crossref.head_crossref import (
    NOT_MEASURED,
    RISKS,
    HeadCrossReference,
    primary,
)
from tda_bias.plots.maps import cross_out, draw_map, draw_tested_map, maps_over_plots, settled
from tda_bias.show.figures import (
    COLOURS,
    GREY,
    ORANGE,
    captioned,
    plain_numbers,
    print_style,
)
from tda_bias.show.names import named_map
from tda_bias.show.text import counted, number_text, p_text, short_name


def plot_effect_maps(table: pd.DataFrame, *, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Heads' effects on each risk as maps, layers by heads, on one scale about 0."""
    maps = [_by_head(table, f"effect_{risk}") for risk in RISKS]
    known = np.concatenate([values[np.isfinite(values)] for values in maps])
    limit = float(np.abs(known).max(initial=0.0)) or 1.0
    for ax, risk, values in zip(axes, RISKS, maps, strict=True):
        image = draw_map(
            ax, values, layers=_layers(table), cmap="RdBu_r", limits=(-limit, limit),
            label=f"change of {risk}, first order",
        )  # fmt: skip
        if image.colorbar is not None:
            places, labels = _three_ticks(limit)
            image.colorbar.set_ticks(places, labels=labels)
        ax.set_title(f"effect on {risk}")
    return axes


def _three_ticks(limit: float) -> tuple[list[float], list[str]]:
    """0 and the round numbers before both ends of a scale, with their labels: these are short."""
    power = 10.0 ** np.floor(np.log10(limit))
    end = float(np.floor(limit / power * (1 + 1e-9)) * power)
    return [-end, 0.0, end], [f"{-end:g}", "0", f"{end:g}"]


def plot_ranking_map(result: HeadCrossReference, *, ax: Axes) -> Axes:
    """The map that ranks the heads: coloured above what the largest reaches by chance, else grey.

    Unstable heads are crossed out.
    """
    table, record = result.heads, result.record
    values = _by_head(table, f"z_{record.rank_by}")
    unstable = _by_head(table, "unstable").astype(bool)
    above = np.zeros(values.shape, bool) if record.chance is None else values > record.chance
    draw_tested_map(
        ax, values, survives=above & ~unstable, unstable=unstable, chance=record.chance,
        layers=_layers(table), label=named_map(record.rank_by),
    )  # fmt: skip
    cross_out(ax, unstable)
    ax.set_title("the map that ranks")
    return ax


def _by_head(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column, layers by heads."""
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def _layers(table: pd.DataFrame) -> list[int]:
    """The model's numbers of its layers."""
    return sorted(table["layer"].unique())


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
    ax.set_xticks(*_three_ticks(limit))
    ax.set_xlabel("change, first order")
    ax.set_ylabel("change, exact")
    ax.set_title(f"{counted(len(measured), 'head')}", fontsize=7)
    ax.legend(frameon=False, fontsize=6, handletextpad=0.1, borderpad=0)
    return ax


@print_style()
def head_effects_figure(result: HeadCrossReference) -> Figure:
    """The map of z beside those of the effects on each risk, and below them the scatters."""
    record, table = result.record, result.heads
    shape = table["layer"].nunique(), table["head"].nunique()
    figure, maps, scatters = maps_over_plots(*shape, 1 + len(RISKS), 2.4)
    plot_ranking_map(result, ax=maps[0])
    plot_effect_maps(table, axes=maps[1:])
    plot_exact_against_estimates(table, ax=scatters[0])
    for risk, below in zip(RISKS, scatters[1:], strict=True):
        plot_effects_against_z(result, risk, ax=below)
    legend = scatters[1].get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper right", ncols=2, frameon=False)
    needed = primary(result)["significant"].max()
    captioned(
        figure,
        f"{short_name(record.model.name)}, {record.category}: {counted(len(table), 'head')}; "
        f"{counted(record.words, 'word')} in {counted(record.templates, 'template')}. Effect: "
        f"change on ablation ({record.ablation}), to first order; red raises the risk. A Spearman "
        f"that is {number_text(needed)} away from what the means of layers give has p < .05, "
        "before any correction.",
    )
    return settled(figure)
