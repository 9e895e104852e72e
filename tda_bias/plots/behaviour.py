"""Heads against behaviour, as matplotlib axes: targets, correlation maps, ablation effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import spearmanr

from tda_bias.crossref.targets import signed_quantity
from tda_bias.runs.figures import GREY, ORANGE, plain_numbers, plain_text
from tda_bias.runs.text import counted

if TYPE_CHECKING:
    from tda_bias.ablation.study import AblationStudy
    from tda_bias.crossref.crossref import CrossReference
    from tda_bias.crossref.target_tests import HeadMap


@plain_text
def plot_targets(
    table: pd.DataFrame, quantity: str, summary: str, *, ax: Axes | None = None
) -> Axes:
    """Targets as points: what their heads do against what the model says, with Spearman's rho.

    Args:
        table: From ``tda_bias.crossref.targets.joined``.
        quantity: Column on the vertical axis.
        summary: Column on the horizontal axis.
        ax: Where to draw; a new figure without it.
    """
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    x, y = table[summary].to_numpy(float), table[quantity].to_numpy(float)
    for category, rows in table.groupby("category"):
        ax.scatter(rows[summary], rows[quantity], s=16, label=str(category))
    ax.margins(x=0.12)
    _name_points(ax, list(table["target"]), x, y)
    varied = len(np.unique(x)) > 1 and len(np.unique(y)) > 1
    rho = f"{spearmanr(x, y).statistic:.2f}" if varied else "undefined"
    ax.set_title(f"{counted(len(table), 'target')}, Spearman {rho}", fontsize="small")
    ax.set_xlabel(f"{summary} over heads")
    ax.set_ylabel(quantity)
    if table["category"].nunique() > 1:
        ax.legend(frameon=False, fontsize="small")
    return ax


def _name_points(ax: Axes, names: list[str], x: np.ndarray, y: np.ndarray) -> None:
    """Name points from the outside in, leaving out names that would cover another."""
    place = np.column_stack([v - np.median(v) for v in (x, y)])
    spread = np.maximum(np.abs(place).max(0), 1e-12)
    outermost = np.argsort(-np.abs(place / spread).max(1), kind="stable")
    box = ax.get_window_extent()
    at = (np.column_stack([x, y]) - np.array([x.min(), y.min()])) / np.maximum(
        [np.ptp(x), np.ptp(y)], 1e-12
    )
    at = at * [box.width, box.height] * 72 / ax.figure.dpi
    taken: list[tuple[float, float, float]] = []
    for index in outermost:
        (across, up), width = at[index], 3.6 * len(names[index])
        if all(abs(up - u) > 8 or across > a + w or a > across + width for a, u, w in taken):
            taken.append((across, up, width))
            ax.annotate(
                names[index],
                (x[index], y[index]),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=6,
                alpha=0.8,
            )


@plain_text
def plot_correlation_map(tests: HeadMap, *, n: int, ax: Axes | None = None) -> Axes:
    """Spearman's rho over targets of every head's |T| with a quantity, layers by heads.

    Filled dots: family-wise p < .05; open ones: q < .05.

    Args:
        tests: From ``tda_bias.crossref.target_tests.head_map``.
        n: Number of targets, for the title.
        ax: Where to draw; a new figure without it.
    """
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    wide = {c: tests.table.pivot(index="layer", columns="head", values=c) for c in ("rho", "p_max")}
    wide["q"] = tests.table.pivot(index="layer", columns="head", values="q")
    rho = wide["rho"].to_numpy()
    limit = float(np.nanmax(np.abs(rho), initial=0.0)) or 1.0
    image = ax.imshow(rho, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    family = wide["p_max"].to_numpy() < 0.05
    discovery = (wide["q"].to_numpy() < 0.05) & ~family
    for chosen, face, edge in ((family, "black", "white"), (discovery, "none", "black")):
        layer, head = np.nonzero(chosen)
        ax.scatter(head, layer, s=18, marker="o", facecolor=face, edgecolor=edge)
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=13))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=17))
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(f"Spearman of |T| with {tests.quantity} over {counted(n, 'target')}")
    return ax


def crossref_figures(crossed: CrossReference) -> dict[str, Figure]:
    """The figures of a cross-reference by name: targets as points, and the heads with the risk."""
    targets = Figure(figsize=(9.0, 4.0), layout="constrained")
    shown = ("r", signed_quantity(crossed.targets.columns))
    for ax, quantity in zip(targets.subplots(1, 2), shown, strict=True):
        plot_targets(crossed.targets, quantity, "mean_abs_T", ax=ax)
    heads = Figure(figsize=(5.4, 5.6), layout="constrained")
    plot_correlation_map(crossed.head_map("r"), n=len(crossed.targets), ax=heads.subplots())
    return {"targets": targets, "head_map": heads}


@plain_text
def plot_ablation(
    study: AblationStudy,
    *,
    by: str | None = None,
    outcome: Literal["log_odds", "beta"] = "log_odds",
    ax: Axes | None = None,
) -> Axes:
    """Size of the effect of every head on an outcome against its place in a ranking.

    Args:
        study: From ``tda_bias.ablation.study.ablation_study``.
        by: Column of ``study.heads``; the map the run ranks by if None.
        outcome: The mean log-odds, or the mean of beta, which needs twins.
        ax: Where to draw; a new figure without it.
    """
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    by = by or f"z_{study.record.rank_by}"
    end = "" if outcome == "log_odds" else "_beta"
    heads = study.heads
    measured = heads[heads[f"exact{end}"].notna()]
    ax.scatter(
        heads[by], heads[f"effect{end}"].abs(), s=9, color=GREY, label="first order, every head"
    )
    ax.scatter(
        measured[by], measured[f"exact{end}"].abs(), s=16, facecolor="none", edgecolor=ORANGE,
        label="exact",
    )  # fmt: skip
    row = study.agreement.set_index("ranking").loc[by]
    rho, p = (row[f"{name}_effect{end}"] for name in ("rho", "p"))
    ax.set_title(f"Spearman {rho:.2f}, p {p:.2g}", fontsize="small")
    ax.set_yscale("log")
    plain_numbers(ax.yaxis)
    ax.set_xlabel("gradient importance" if by == "importance" else f"map: {by.removeprefix('z_')}")
    if by == "importance":
        ax.set_xscale("log")
        plain_numbers(ax.xaxis)
    named = "the mean log-odds" if outcome == "log_odds" else "the mean beta"
    ax.set_ylabel(f"|change of {named}|, nats")
    ax.legend(
        frameon=False, fontsize="small", loc="upper left" if by == "importance" else "upper right"
    )
    return ax


def ablation_figure(study: AblationStudy) -> Figure:
    """Effects against the run's map and against gradient importance; with twins, on beta too."""
    outcomes: tuple[Literal["log_odds", "beta"], ...] = ("log_odds",)
    if study.has_beta:
        outcomes = ("log_odds", "beta")
    figure = Figure(figsize=(9.0, 3.8 * len(outcomes)), layout="constrained")
    rows = figure.subplots(len(outcomes), 2, squeeze=False)
    for outcome, (left, right) in zip(outcomes, rows, strict=True):
        plot_ablation(study, outcome=outcome, ax=left)
        plot_ablation(study, by="importance", outcome=outcome, ax=right)
    # Once for all panels, where it covers no head.
    handles, labels = rows[0, 0].get_legend_handles_labels()
    for ax in rows.ravel():
        ax.get_legend().remove()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize="small"
    )
    return figure
