"""Reports to matplotlib axes."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.runs.figures import BLUE, GREEN, GREY, ORANGE, plain_text
from tda_bias.runs.text import counted
from tda_bias.types import InputError
from unqover.bias import comparative, factorial, scores
from unqover.report import Report, cells_of

_MOST_BARS = 24


@plain_text
def plot_heat_map(report: Report, *, ax: Axes | None = None) -> Axes:
    """Gamma of every subject on every attribute; of kinds where attributes are sensitive.

    Red: preferred for it over the subjects it was compared with; blue: the others are.
    """
    table = report.subjects
    column = "kind" if _sensitive(report) else "attribute"
    order = list(dict.fromkeys(table["subject"]))
    wide = table.pivot_table("gamma", "subject", column, sort=False).loc[order]
    wide = wide[wide.mean().index] if column == "kind" else wide[_by_contrast(report, wide)]
    ax = ax or plt.subplots(layout="constrained")[1]
    most = float(np.nanmax(np.abs(wide.to_numpy()))) or 1.0
    image = ax.imshow(wide, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    ax.set_xticks(range(wide.shape[1]), wide.columns, rotation=90, fontsize="small")
    ax.set_yticks(range(wide.shape[0]), wide.index, fontsize="x-small")
    levels = [report.answers.levels[report.answers.subjects.index(name)] for name in order]
    for row in range(1, len(order)):
        if levels[row] != levels[row - 1] and len(set(levels)) < len(order):
            ax.axhline(row - 0.5, color="black", linewidth=0.8)
    ax.figure.colorbar(image, ax=ax, label="comparative bias gamma(x, a)", pad=0.02)
    ax.set_title(_counted(report), fontsize="small", loc="left")
    return ax


@plain_text
def plot_attributes(report: Report, *, group: str | None = None, ax: Axes | None = None) -> Axes:
    """Attributes ranked by the gamma of a group, with intervals.

    Args:
        report: The report.
        group: A level of the first factor; its first one if None.
        ax: Where to draw.

    Raises:
        InputError: if there is no such group.
    """
    factor = report.answers.factors[0]
    table = report.groups[report.groups["factor"] == factor]
    name = group or str(table["group"].iloc[0])
    rows = table[table["group"] == name].dropna(subset=["gamma"])
    if rows.empty:
        raise InputError(f"`group` must be one of {', '.join(table['group'].unique())}")
    if _sensitive(report):
        rows = by_kind(rows)
    rows = rows.sort_values("gamma")
    if len(rows) > _MOST_BARS:
        rows = pd.concat([rows.head(_MOST_BARS // 2), rows.tail(_MOST_BARS // 2)])
    ax = ax or plt.subplots(layout="constrained")[1]
    place = np.arange(len(rows))
    colour = np.where(rows["gamma"] > 0, ORANGE, BLUE)
    ax.barh(place, rows["gamma"], color=colour, alpha=0.75, height=0.7)
    if "low" in rows:
        error = [rows["gamma"] - rows["low"], rows["high"] - rows["gamma"]]
        ax.errorbar(rows["gamma"], place, xerr=error, fmt="none", ecolor="black", elinewidth=0.8)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(place, rows["kind" if _sensitive(report) else "attribute"], fontsize="small")
    others = [g for g in table["group"].unique() if g != name]
    against = others[0] if len(others) == 1 else "the others"
    ax.set_xlabel(f"gamma({name}, a): > 0 where {name} is preferred to {against}")
    ends = f", {report.config.confidence:.0%} intervals over subjects" if "low" in rows else ""
    ax.set_title(_counted(report) + ends, fontsize="small", loc="left")
    return ax


@plain_text
def plot_interaction(
    report: Report, *, attribute: str | None = None, ax: Axes | None = None
) -> Axes:
    """Gamma of every combination of two factors on one attribute: parallel lines do not interact.

    Args:
        report: Of a joint class.
        attribute: Its name; the one with the largest interaction if None.
        ax: Where to draw.

    Raises:
        InputError: if the class is not joint, a combination is missing, or there is no such
            attribute.
    """
    answers = report.answers
    if len(answers.factors) != 2:
        raise InputError(f"class {answers.name} has one factor: there is no interaction to draw")
    names, gamma, _ = cells_of(answers, comparative(scores(answers.log_prob, "two_way")).C)
    if gamma is None:
        raise InputError("a combination of levels is missing: its interaction is not defined")
    left = factorial(gamma).interaction
    if attribute is not None and attribute not in answers.attributes:
        raise InputError(f"`attribute` must be one of those asked about; got {attribute!r}")
    largest = int(np.abs(left).max((0, 1)).argmax())
    number = largest if attribute is None else answers.attributes.index(attribute)
    ax = ax or plt.subplots(layout="constrained")[1]
    cells = gamma[:, :, number]
    order = np.argsort(cells.mean(1))
    styles = [(ORANGE, "o", "-"), (BLUE, "s", "--"), (GREEN, "^", ":"), (GREY, "D", "-.")]
    for column, name in enumerate(names[1]):
        colour, marker, line = styles[column % len(styles)]
        ax.plot(cells[order, column], color=colour, marker=marker, linestyle=line, label=name)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(range(len(order)), [names[0][i] for i in order], rotation=60, ha="right")
    shown = answers.kinds[number] if answers.sensitive[number] else answers.attributes[number]
    ax.set_ylabel(f"gamma for “{shown}”")
    ax.legend(title=answers.factors[1], frameon=False, fontsize="small")
    ax.set_title(_counted(report), fontsize="small", loc="left")
    return ax


def report_figures(report: Report) -> dict[str, Figure]:
    """The figures that every run gets."""
    answers = report.answers
    n_rows, n_columns = len(answers.subjects), len(set(report.answers.attributes))
    if _sensitive(report):
        n_columns = len(set(answers.kinds))
    size = (max(4.8, 2.6 + 0.24 * n_columns), min(14.0, 3.0 + 0.15 * n_rows))
    figures = {"heat_map": Figure(figsize=size, layout="constrained")}
    plot_heat_map(report, ax=figures["heat_map"].subplots())
    figures["attributes"] = Figure(
        figsize=(5.4, 1.4 + 0.2 * min(n_columns, _MOST_BARS)), layout="constrained"
    )
    plot_attributes(report, ax=figures["attributes"].subplots())
    if not report.joint.empty:
        figures["interaction"] = Figure(figsize=(5.4, 3.8), layout="constrained")
        plot_interaction(report, ax=figures["interaction"].subplots())
    return figures


def by_kind(table: pd.DataFrame) -> pd.DataFrame:
    """Mean gamma over the attributes of each kind, for what no summary spells out."""
    return table.groupby("kind", sort=False)["gamma"].mean().reset_index()


def _sensitive(report: Report) -> bool:
    return any(report.answers.sensitive)


def _by_contrast(report: Report, wide: pd.DataFrame) -> list[str]:
    """Attributes in the order of the first group's gamma."""
    table = report.groups[report.groups["factor"] == report.answers.factors[0]]
    rows = table[table["group"] == table["group"].iloc[0]].sort_values("gamma")
    return [name for name in rows["attribute"] if name in wide.columns]


def _counted(report: Report) -> str:
    answers = report.answers
    mu = report.summary.iloc[0]
    return (
        f"{answers.model} · {answers.name} · {counted(len(answers.subjects), 'subject')}, "
        f"{counted(len(answers.templates), 'template')}\nμ {mu['mu']:.3f}, by chance "
        f"{mu['mu_chance']:.3f}"
    )
