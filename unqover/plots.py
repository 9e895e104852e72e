"""Reports to matplotlib axes, and the figures of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.show.figures import BLUE, GREEN, GREY, ORANGE, Entry, print_figure
from tda_bias.show.text import counted, p_text, short_name
from tda_bias.stats.resampling import LEVEL
from tda_bias.store.run import Run
from unqover.bbq.plots import FIGURES as BBQ
from unqover.bias import compared, factorial
from unqover.report import Report, cells_of, load_report

_MOST_BARS = 24


def plot_heat_map(report: Report, *, ax: Axes) -> Axes:
    """Gamma of every subject on every attribute; of kinds where attributes are sensitive.

    Red: preferred for it over the subjects it was compared with; blue: the others are. Groups of
    subjects are named beside their rows; an asterisk marks the attributes on which a group has
    q < .05, or the cell where every subject is its own group.
    """
    table, answers = report.subjects, report.answers
    order = list(answers.subjects)
    wide = table.pivot_table("gamma", "subject", _column(report), sort=False).loc[order]
    if not _sensitive(report):
        ranked = _of_first_factor(report).sort_values("gamma", kind="stable")
        ranked = ranked[ranked["group"] == answers.asked.levels[0][0]]
        wide = wide[[name for name in ranked["attribute"] if name in wide.columns]]
    most = float(np.nanmax(np.abs(wide.to_numpy()))) or 1.0
    image = ax.imshow(wide, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    ax.set_xticks(range(wide.shape[1]), wide.columns, rotation=90, fontsize="small")
    ax.set_yticks(range(wide.shape[0]), wide.index, fontsize="x-small")
    if len(set(answers.asked.levels)) < len(order):
        _name_groups(ax, answers.combinations)
    if not _sensitive(report):
        _mark_survivors(ax, report, wide)
    ax.figure.colorbar(image, ax=ax, label="comparative bias gamma(x, a)", pad=0.02)
    ax.set_title(_counted(report), fontsize="small", loc="left")
    return ax


def _name_groups(ax: Axes, groups: Sequence[str]) -> None:
    """Draw a line between groups of rows, and write their names on the right."""
    end = 0
    for name, rows in groupby(groups):
        start, end = end, end + len(list(rows))
        if start:
            ax.axhline(start - 0.5, color="black", linewidth=0.8)
        ax.annotate(
            name,
            (1.01, (start + end - 1) / 2),
            xycoords=("axes fraction", "data"),
            rotation=270,
            va="center",
            fontsize="small",
        )


def _mark_survivors(ax: Axes, report: Report, wide: pd.DataFrame) -> None:
    """Mark what has q < .05 with an asterisk, and say so below."""
    answers, groups = report.answers, _of_first_factor(report)
    kept = groups[groups["q"] < LEVEL]
    if answers.level_of(0) == list(answers.subjects):
        for group, attribute in zip(kept["group"], kept["attribute"], strict=True):
            column, row = list(wide.columns).index(attribute), list(wide.index).index(group)
            ax.text(column, row, "*", ha="center", va="center")
    else:
        marked = set(kept["attribute"])
        ax.set_xticklabels([f"{name} *" if name in marked else name for name in wide.columns])
    factor = answers.asked.factors[0]
    ax.set_xlabel(
        f"* gamma by {factor} has q < .05" if len(kept) else f"no gamma by {factor} has q < .05",
        fontsize="small",
    )


def plot_attributes(report: Report, *, ax: Axes) -> Axes:
    """Attributes ranked by the first group's gamma, with intervals; pale where q is .05 or more."""
    table = _of_first_factor(report)
    name = str(table["group"].iloc[0])
    rows = table[table["group"] == name].dropna(subset=["gamma"])
    rows = (by_kind(rows) if _sensitive(report) else rows).sort_values("gamma")
    if len(rows) > _MOST_BARS:
        rows = pd.concat([rows.head(_MOST_BARS // 2), rows.tail(_MOST_BARS // 2)])
    place = np.arange(len(rows))
    colour = np.where(rows["gamma"] > 0, ORANGE, BLUE)
    bars = ax.barh(place, rows["gamma"], color=colour, alpha=0.75, height=0.7)
    title = _counted(report)
    if not _sensitive(report):
        survives = (rows["q"] < LEVEL).to_numpy()
        for bar, solid in zip(bars, survives, strict=True):
            bar.set_alpha(0.85 if solid else 0.3)
        error = [rows["gamma"] - rows["low"], rows["high"] - rows["gamma"]]
        ax.errorbar(rows["gamma"], place, xerr=error, fmt="none", ecolor="black", elinewidth=0.8)
        marked = "dark: q < .05" if survives.any() else "none has q < .05"
        title += f"\n{report.config.confidence:.0%} intervals over subjects; {marked}"
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(place, rows[_column(report)], fontsize="small")
    others = [g for g in table["group"].unique() if g != name]
    against = others[0] if len(others) == 1 else "the others"
    ax.set_xlabel(f"gamma({name}, a): > 0 where {name} is preferred to {against}")
    ax.set_title(title, fontsize="small", loc="left")
    return ax


def plot_interaction(report: Report, *, ax: Axes) -> Axes:
    """Gamma of every combination of two factors: parallel lines do not interact.

    It is drawn of the attribute with the largest interaction. Where ``report.joint`` is empty,
    there is none.
    """
    answers = report.answers
    names, gamma, _ = cells_of(answers, compared(answers.log_prob, "two_way").C)
    assert gamma is not None
    number = int(np.abs(factorial(gamma).interaction).max((0, 1)).argmax())
    cells = gamma[:, :, number]
    order = np.argsort(cells.mean(1))
    styles = [(ORANGE, "o", "-"), (BLUE, "s", "--"), (GREEN, "^", ":"), (GREY, "D", "-.")]
    for column, name in enumerate(names[1]):
        colour, marker, line = styles[column % len(styles)]
        ax.plot(cells[order, column], color=colour, marker=marker, linestyle=line, label=name)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(range(len(order)), [names[0][i] for i in order], rotation=60, ha="right")
    names_shown = answers.asked.kinds if answers.asked.sensitive[number] else answers.attributes
    ax.set_ylabel(f"gamma for “{names_shown[number]}”")
    ax.legend(title=answers.asked.factors[1], frameon=False, fontsize="small")
    ax.set_title(_counted(report), fontsize="small", loc="left")
    return ax


def report_figures(report: Report) -> dict[str, Figure]:
    """The figures that every run gets."""
    answers = report.answers
    n_columns = len(set(answers.asked.kinds if _sensitive(report) else answers.attributes))
    wide, high = max(4.8, 2.6 + 0.24 * n_columns), min(14.0, 3.0 + 0.15 * len(answers.subjects))
    figures = {
        "heat_map": _drawn(plot_heat_map, report, wide, high),
        "attributes": _drawn(plot_attributes, report, 5.4, 1.6 + 0.2 * min(n_columns, _MOST_BARS)),
    }
    if not report.joint.empty:
        figures["interaction"] = _drawn(plot_interaction, report, 5.4, 3.8)
    return figures


def _drawn(plot: Callable[..., Axes], report: Report, width: float, height: float) -> Figure:
    figure = print_figure(width, height)
    plot(report, ax=figure.subplots())
    return figure


def by_kind(table: pd.DataFrame) -> pd.DataFrame:
    """Mean gamma over the attributes of each kind, for what no summary spells out."""
    return table.groupby("kind", sort=False)["gamma"].mean().reset_index()


def _sensitive(report: Report) -> bool:
    return any(report.answers.asked.sensitive)


def _column(report: Report) -> str:
    return "kind" if _sensitive(report) else "attribute"


def _of_first_factor(report: Report) -> pd.DataFrame:
    return report.groups[report.groups["factor"] == report.answers.asked.factors[0]]


def _counted(report: Report) -> str:
    """Model and questions, and mu beside its chance level."""
    answers, first = report.answers, report.summary.iloc[0]
    subjects = counted(len(answers.subjects), "subject")
    return (
        f"{short_name(answers.model)} · {answers.asked.name} · {subjects}, "
        f"{counted(len(answers.asked.templates), 'template')}\nμ {first['mu']:.3f}, by chance "
        f"{first['mu_chance']:.3f} (p {p_text(first['mu_p'])})"
    )


# -- the catalogue ---------------------------------------------------------------------------------


def _figures(folder: Path) -> dict[str, Figure]:
    return report_figures(load_report(folder))


def _named(name: str) -> Callable[[Sequence[Run]], Figure]:
    return lambda runs: runs[0].load(_figures)[name]


def _is_joint(run: Run) -> bool:
    return not run.load(load_report).joint.empty


FIGURES: tuple[Entry, ...] = (
    Entry(
        "unqover_heat_map", "Comparative bias by subject and attribute", "unqover",
        _named("heat_map"),
    ),
    Entry(
        "unqover_attributes", "Attributes ranked by comparative bias", "unqover",
        _named("attributes"),
    ),
    Entry(
        "unqover_interaction", "Interaction of two factors", "unqover", _named("interaction"),
        holds=_is_joint,
    ),
    *BBQ,
)  # fmt: skip
