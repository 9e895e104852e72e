"""The tables and figures of the PVF papers, for runs of this tool beside what is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pvf import plots
from pvf.preferences import PreferencesRecord
from pvf.report import RiskReport, load_report, reports_of
from pvf.words import load_classes, load_templates, load_words, packaged
from tda_bias.show.figures import (
    COLUMN,
    PAGE,
    Entry,
    captioned,
    named_apart,
    of_paper,
    print_figure,
)
from tda_bias.show.tables import paper_table, write_table
from tda_bias.show.text import counted, short_name
from tda_bias.store.run import Run

# What the papers print.
_PUBLISHED = "published.yaml"
# The words of BVF's figure 11.
_WORDS_OF_FIGURE_11 = ("nurse", "stylist", "receptionist", "doctor", "programmer", "captain")


# -- tables ----------------------------------------------------------------------------------------


def risk_table(reports: Mapping[str, RiskReport], table: str) -> pd.DataFrame:
    """A table of the PVF papers: published rows, and ours marked so.

    Reports are by the name of their row, each measured as the papers did (``unlike_the_papers``).
    """
    risk = packaged(_PUBLISHED)["risk"]
    rows = [
        {**dict(zip(risk["columns"], row, strict=True)), "from": "paper"}
        for row in risk["tables"][table]["rows"]
    ]
    for name, report in reports.items():
        ours = {key: getattr(report.risk, key) for key in ("R", "R_p", "R_v")}
        same = paper_name(report.model)
        rows.append({"model": name, **ours, "from": "here", "the same as": same})
    risks = pd.DataFrame(rows)
    return risks.sort_values("R", ascending=False, kind="stable").reset_index(drop=True)


def unlike_the_papers(report: RiskReport, table: str) -> list[str]:
    """Reasons against a risk in a published table: other words, templates or weights."""
    preferences, reasons = report.preferences, []
    if table not in packaged("classes.yaml"):
        return ["its templates or words are not published"]
    listed = load_words("occupations").words
    if set(preferences.x) != set(listed):
        reasons.append(f"words x are others than the papers' {len(listed)} occupations")
    classes = load_classes(table).classes
    words = {word for members in classes.values() for word in members}
    if set(preferences.classes) != set(classes) or not set(preferences.words) <= words:
        reasons.append(f"words y are others than the papers' of {table}")
    if set(preferences.templates) != set(load_templates("gender" if table == "gender" else "race")):
        reasons.append("templates are others than the papers' ten")
    if report.x_weights is not None:
        reasons.append("words x have weights")
    if report.reference is not None:
        reasons.append("preferences are compared with a reference")
    if report.config.criterion != "linf":
        reasons.append("the criterion is another norm")
    return reasons


def paper_name(model: str) -> str:
    """The name under which the papers report a model; empty if none does."""
    names = packaged(_PUBLISHED)["names"]
    return next((str(paper) for paper, loaded in names.items() if model in loaded), "")


def write_risk_tables(runs: Sequence[Run], out: Path, left_out: Callable[[str], None]) -> int:
    """Write the papers' tables of risk beside those of every run of ``tdabias pvf``.

    A row of this tool has the name of its model, or of its folder where several are of one model.
    ``left_out`` is called with a line about each run that no published table can be compared with.

    Returns:
        Number of tables.
    """
    pvf = [run for run in runs if run.command == "pvf"]
    written = 0
    for name, entry in (packaged(_PUBLISHED)["risk"]["tables"] if pvf else {}).items():
        file = "risk_" + name.replace(",", "").replace(" ", "_")
        alike = []
        for run in pvf:
            if run.record_as(PreferencesRecord).words.y.name != name:
                continue
            if reasons := unlike_the_papers(run.load(load_report), name):
                left_out(f"{run.folder} in {file}: {'; '.join(reasons)}")
            else:
                alike.append(run)
        beside = {row: run.load(load_report) for row, run in named_apart(alike).items()}
        caption = f"Risk, {name}: {entry['source']}" + ("; and this tool" if beside else "")
        write_table(out, file, paper_table(risk_table(beside, name), caption))
        written += 1
    return written


# -- figures ---------------------------------------------------------------------------------------


def _signed_means(runs: Sequence[Run]) -> Figure:
    figure = print_figure(COLUMN if len(runs) == 1 else PAGE, 3.2)
    plots.plot_signed_means(reports_of(runs), ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def _distributions(runs: Sequence[Run]) -> Figure:
    figure = print_figure(PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    plots.plot_distribution(runs[0].load(load_report), quantity="r_p", ax=left)
    plots.plot_distribution(runs[0].load(load_report), quantity="r_v", ax=right)
    return captioned(figure, _words(runs[0]))


def _preferences(runs: Sequence[Run]) -> Figure:
    """The published six words by template; the extremes where they were not read."""
    report = runs[0].load(load_report)
    read = set(_WORDS_OF_FIGURE_11) <= set(report.preferences.x)
    rows = list(_WORDS_OF_FIGURE_11) if read else plots.extreme_words(report)
    figure = print_figure(PAGE, 1.9 + 0.22 * len(rows))
    plots.plot_preferences(report.preferences, rows, ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def _change(runs: Sequence[Run]) -> Figure:
    figure = print_figure(COLUMN, 2.8)
    plots.plot_change(*reports_of(runs).values(), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _size(runs: Sequence[Run]) -> Figure:
    figure = print_figure(COLUMN, 2.8)
    plots.plot_against_size(reports_of(runs), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _reference(runs: Sequence[Run]) -> Figure:
    report = runs[0].load(load_report)
    figure = print_figure(COLUMN, 3.6)
    plots.plot_reference(report, ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} On the line both are equal.")


def _words(run: Run) -> str:
    report = run.load(load_report)
    n = report.controls
    weighted = "" if report.x_weights is None else f" ({len(report.of_weight)} weighted)"
    return (
        f"{short_name(run.model)}: {counted(n['x'], 'word')}{weighted}, "
        f"{counted(n['templates'], 'template')} (weights like {n['n_effective_contexts']:.1f} of "
        f"them); listed words hold {n['union_mass_mean']:.2g} of the probability."
    )


def _measure(run: Run) -> object:
    """Key of runs which may stand in one figure."""
    return run.load(load_report).measure


_ALL: dict[str, Any] = {"together": "all", "comparable": _measure}
_TWO: dict[str, Any] = {"together": "two", "comparable": _measure, "fewest": 2}
FIGURES: tuple[Entry, ...] = (
    Entry(*of_paper("pvf5_signed_means"), "pvf", _signed_means, **_ALL),
    Entry(*of_paper("pvf6_change"), "pvf", _change, **_TWO),
    Entry(*of_paper("pvf7_size"), "pvf", _size, **_ALL, fewest=2),
    Entry(*of_paper("pvf10_distributions"), "pvf", _distributions),
    Entry(*of_paper("pvf11_preferences"), "pvf", _preferences),
    Entry(
        "pvf_reference", "Preferences against a reference of one's own", "pvf", _reference,
        holds=lambda run: run.load(load_report).reference is not None, option="--reference bls",
    ),
)  # fmt: skip
