"""Heads and changed heads against what the model says, as matplotlib axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from tda_bias.ablation.finding import what_was_read
from tda_bias.ablation.prune_curve import ALLOWED_LOSS
from tda_bias.ablation.study import end_of
from tda_bias.crossref.crossref import match_counts, signed_quantity
from tda_bias.scores.stereoset import log_odds
from tda_bias.show.figures import (
    BLUE,
    GREY,
    LIGHT_GREY,
    ORANGE,
    PAGE,
    RANDOM,
    captioned,
    label_point,
    look,
    plain_numbers,
    print_figure,
    print_style,
)
from tda_bias.show.names import named, named_map
from tda_bias.show.text import counted, short_name
from tda_bias.stats.correlation import power
from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.ablation.study import AblationStudy
    from tda_bias.crossref.crossref import CrossReference


_CURVE_TITLES = {"beta": "|beta| (nats)", "log_odds": "log-odds (nats)"}


# -- twins -----------------------------------------------------------------------------------------


def plot_items_against_twins(items: pd.DataFrame, *, ax: Axes) -> Axes:
    """Each item's log-odds against its twin's.

    On the dashed line a preference does not change with the target: it is wording. The distance
    from the line is beta, the part that is about the target. ``items`` are those of
    ``stereoset_scores`` with twins.

    Raises:
        InputError: if the items have no twins.
    """
    if "log_prob_s_twin" not in items:
        raise InputError("the items have no twins; run `tdabias stereoset --twins auto`")
    triple = log_odds(items, "sum")
    twin = (items["log_prob_s_twin"] - items["log_prob_a_twin"]).to_numpy(float)
    known = np.isfinite(triple) & np.isfinite(twin)
    triple, twin = triple[known], twin[known]
    limit = 1.05 * max(np.abs(triple).max(initial=1.0), np.abs(twin).max(initial=1.0))
    ax.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    ax.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    above = triple > twin
    for chosen, colour, name in (
        (above, BLUE, "more stereotype than about another target"),
        (~above, ORANGE, "as much, or less"),
    ):
        label = f"{name} ({int(chosen.sum())} of {len(triple)})"
        ax.scatter(twin[chosen], triple[chosen], s=7, color=colour, alpha=0.6, label=label, lw=0)
    ends = [-limit, limit]
    ax.plot(ends, ends, color=GREY, lw=0.8, ls="--", zorder=0, label="the same: wording")
    ax.set_xlim(-limit, limit)
    ax.set_ylim(-limit, limit)
    ax.set_aspect("equal")
    ax.set_xlabel("the same text about another target:\nlog P(stereotype) - log P(anti-stereotype)")
    ax.set_ylabel("log P(stereotype) - log P(anti-stereotype), nats")
    r = float(np.corrcoef(twin, triple)[0, 1]) if len(triple) > 2 else float("nan")
    ax.set_title(
        f"r = {r:.3f}; triple {np.mean(triple):+.2f} (SD {np.std(triple, ddof=1):.1f}),\n"
        f"minus twin {np.mean(triple - twin):+.2f} (SD {np.std(triple - twin, ddof=1):.1f})",
        fontsize="small",
    )
    return ax


def plot_twin_differences(items: pd.DataFrame, *, ax: Axes) -> Axes:
    """Histogram of beta item by item: the distance from the line, on a scale of its own."""
    beta = items["beta_sum"].dropna().to_numpy(float)
    # 0 is an edge: no bin holds values of both signs.
    width = float(np.ptp(beta)) / 24 or 1.0
    edges = width * np.arange(np.floor(beta.min() / width), np.ceil(beta.max() / width) + 1)
    ax.hist(beta[beta > 0], bins=list(edges), color=BLUE, alpha=0.7)
    ax.hist(beta[beta <= 0], bins=list(edges), color=ORANGE, alpha=0.7)
    mean = float(beta.mean())
    ax.axvline(mean, color="black", lw=0.8)
    where: Any = {"xycoords": ("data", "axes fraction"), "shift": (3, 0), "va": "top"}
    label_point(ax, f"mean {mean:+.2f}", (mean, 0.96), fontsize=7, **where)
    ax.set_xlabel("the item minus its twin (beta), nats")
    ax.set_ylabel("items")
    return ax


# -- targets ---------------------------------------------------------------------------------------


def plot_targets(table: pd.DataFrame, quantity: str, summary: str, *, ax: Axes) -> Axes:
    """Targets as points: what their heads do against what the model says, with Spearman's rho.

    The table is that of a cross-reference; ``quantity`` is the column on the vertical axis,
    ``summary`` that on the horizontal one.
    """
    x, y = table[summary].to_numpy(float), table[quantity].to_numpy(float)
    for category, rows in table.groupby("category"):
        ax.scatter(rows[summary], rows[quantity], s=16, label=str(category))
    ax.margins(x=0.12)
    _name_points(ax, list(table["target"]), x, y)
    varied = len(np.unique(x)) > 1 and len(np.unique(y)) > 1
    rho = f"{spearmanr(x, y).statistic:.2f}" if varied else "undefined"
    ax.set_title(f"{counted(len(table), 'target')}, Spearman {rho}", fontsize="small")
    ax.locator_params("x", nbins=5)
    ax.set_xlabel(named(summary))
    ax.set_ylabel(named(quantity))
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
            label_point(ax, names[index], (x[index], y[index]), fontsize=6, alpha=0.8)


@print_style()
def targets_figure(crossed: CrossReference) -> Figure:
    """Targets as points: the risk and the signed mean against what their heads do."""
    table = crossed.targets
    figure = print_figure(PAGE, 3.2)
    shown = ("r", signed_quantity(table.columns))
    for ax, quantity in zip(figure.subplots(1, 2), shown, strict=True):
        plot_targets(table, quantity, "mean_abs_T", ax=ax)
    needed = power(len(table))["significant"]
    return captioned(
        figure,
        f"{short_name(crossed.record.model.name)}: {counted(len(table), 'target')} "
        f"({match_counts(table)}). "
        f"|Spearman| must reach {needed:.2f} for p < .05, before any correction.",
    )


# -- ablation --------------------------------------------------------------------------------------


def plot_ablation(
    study: AblationStudy,
    *,
    by: str | None = None,
    outcome: str = "log_odds",
    ax: Axes,
) -> Axes:
    """Size of the effect of every head on an outcome against its place in a ranking.

    ``by`` is a column of ``study.heads``, the map that the run ranks by if None; the outcome is one
    of ``study.outcomes``.
    """
    by = by or f"z_{study.record.rank_by}"
    end = end_of(outcome)
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
    if (heads[f"effect{end}"].abs() > 0).any():  # a risk without any volatility has no effects
        ax.set_yscale("log")
        plain_numbers(ax.yaxis)
    ax.set_xlabel("gradient importance" if by == "importance" else named_map(by.removeprefix("z_")))
    if by == "importance":
        ax.set_xscale("log")
        plain_numbers(ax.xaxis)
    named = {"log_odds": "the mean log-odds|, nats", "beta": "the mean beta|, nats"}
    ax.set_ylabel(f"|change of {named.get(outcome, f'{outcome}|')}")
    return ax


@print_style()
def ablation_figure(study: AblationStudy) -> Figure:
    """Effects against the run's map, and against gradient importance, on primary outcomes."""
    outcomes = study.primary
    rankings = [None, *(["importance"] if "importance" in study.heads else [])]
    figure = print_figure(PAGE, 3.0 * len(outcomes))
    panels = figure.subplots(len(outcomes), len(rankings), squeeze=False)
    for row, outcome in zip(panels, outcomes, strict=True):
        for ax, by in zip(row, rankings, strict=True):
            plot_ablation(study, by=by, outcome=outcome, ax=ax)
    # Once for all panels, where it covers no head.
    legend = panels[0, 0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper center", ncols=2, frameon=False)
    control = "; right, the control: gradient importance" * (len(rankings) > 1)
    return captioned(
        figure,
        f"{study.record.category}: {what_was_read(study, 'triple')}, "
        f"{counted(len(study.heads), 'head')}{control}.",
    )


def plot_prune_curve(curve: pd.DataFrame) -> Figure:
    """Quantities on the targets that chose nothing, against what the ablation costs.

    A point is 0, 1, 2, 4, ... heads; the number at the end of a line is its last. The band holds
    nine of ten random orders at their mean cost. Left of the dashed line the cost is allowed.
    """
    quantities = [name for name in ("beta", "log_odds") if f"{name}_test" in curve]
    figure = print_figure(PAGE * len(quantities) / 2, 3.1)
    panels = np.atleast_1d(figure.subplots(1, len(quantities)))
    for ax, name in zip(panels, quantities, strict=True):
        _curve_panel(ax, curve, name)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _curve_panel(ax: Axes, curve: pd.DataFrame, quantity: str) -> None:
    left = curve[f"{quantity}_test"]
    cost = curve["log_ppl"] - float(curve.loc[curve["k"] == 0, "log_ppl"].iloc[0])
    curve = curve.assign(cost=cost, left=left.abs() if quantity == "beta" else left)
    if (curve["ranking"] == RANDOM).any():
        by_k = curve[curve["ranking"] == RANDOM].groupby("k")
        low, high = (by_k["left"].quantile(q) for q in (0.05, 0.95))
        label = "random orders, 9 of 10"
        ax.fill_between(by_k["cost"].mean(), low, high, color=LIGHT_GREY, alpha=0.35, label=label)
    named = curve[curve["ranking"] != RANDOM]
    for number, (name, rows) in enumerate(named.groupby("ranking", sort=False)):
        colour, marker = look(str(name), number)
        ax.plot(
            rows["cost"], rows["left"], color=colour, marker=marker, ms=3.5, lw=1, label=str(name)
        )
        last = rows.iloc[-1]
        at = last["cost"], last["left"]
        label_point(ax, f"{last['k']:.0f}", at, fontsize=6, color=colour)
    ax.axvline(ALLOWED_LOSS, color="black", lw=0.5, ls="--", label="2 % of perplexity")
    if quantity != "beta":
        ax.axhline(0, color="black", lw=0.5)
    ax.set_xlabel("Change of log-perplexity (nats)")
    ax.set_ylabel(_CURVE_TITLES[quantity])


# -- training --------------------------------------------------------------------------------------


def plot_conditions(
    conditions: pd.DataFrame, frontier: pd.DataFrame, quantity: str = "target effect"
) -> Figure:
    """Every condition in a row: beta remaining on unseen targets, and its cost.

    A filled mark is the check within the guards that was kept, its interval over folds; a hollow
    one the last check, as is the band, which spans the random sets. The tables are those of
    ``tda_bias.debias.summary``; the quantity is named as in ``show.names``.
    """
    rows = conditions[conditions["condition"] != RANDOM].reset_index(drop=True)
    last = frontier.groupby(["condition", "draw"], as_index=False).last()
    random = last[last["condition"] == RANDOM]
    last = last[last["condition"] != RANDOM].set_index("condition")
    figure = print_figure(PAGE, 1.1 + 0.2 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    for ax, name in ((left, "beta"), (right, "perplexity")):
        if len(random):
            label = "random heads: all sets, last check"
            low, high = random[name].min(), random[name].max()
            if low < high:
                ax.axvspan(low, high, color=LIGHT_GREY, alpha=0.35, lw=0, label=label)
            else:  # a single set
                ax.axvline(low, color=LIGHT_GREY, lw=2, label=label)
        for place, row in enumerate(rows.to_dict("records")):
            colour, marker = look(str(row["condition"]), place)
            ends = ("low", "high") if name == "beta" else ()
            limits = [row.get(end, np.nan) for end in ends]
            if row["condition"] in last.index:
                at_last = float(last[name][row["condition"]])
                draw_dot(ax, place, at_last, (), colour=colour, marker=marker, face="white")
            draw_dot(ax, place, row[name], limits, colour=colour, marker=marker)
    before = float(conditions["before"].iloc[0])
    _line(left, before, f"untouched, {before:.3f}")
    _line(left, 0.0, "no bias")
    _line(right, 1.0, "1 %: allowed")
    left.set_yticks(range(len(rows)), rows["condition"])
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlabel(f"{quantity} remaining (nats per token)")
    right.set_xlabel("change of perplexity (%)")
    for face, label in ((GREY, "kept, within the guards"), ("white", "last check")):
        left.plot([], [], "o", color=GREY, mfc=face, ms=4, label=label)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=3)
    return figure


def draw_dot(
    ax: Axes,
    place: float,
    value: float,
    limits: Sequence[float],
    *,
    colour: str,
    marker: str = "o",
    face: str | None = None,
) -> None:
    """Draw a value in a row as a dot on its interval, where there is one."""
    if len(limits) and np.isfinite(limits).all():
        ax.plot(limits, [place, place], color=colour, lw=1)
    ax.plot(value, place, marker, color=colour, mfc=face or colour, ms=4)


def _line(ax: Axes, value: float, label: str) -> None:
    """Draw a dashed line and name it above the axes."""
    ax.axvline(value, color=GREY, lw=0.6, ls="--")
    where: Any = {"xycoords": ("data", "axes fraction"), "shift": (0, 2), "ha": "center"}
    label_point(ax, label, (value, 1), va="bottom", fontsize=6, color=GREY, **where)
