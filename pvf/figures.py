"""The figures of the PVF papers, at print size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from pvf.plots import (
    extreme_words,
    plot_against_size,
    plot_change,
    plot_distribution,
    plot_preferences,
    plot_signed_means,
)
from pvf.report import RiskReport, comparison, load_report
from tda_bias.runs.figures import COLUMN, PAGE, Entry, captioned, named_apart, print_figure
from tda_bias.runs.run import Run
from tda_bias.runs.text import counted


def signed_means(runs: Sequence[Run]) -> Figure:
    """Box per model of signed means."""
    figure = print_figure(COLUMN if len(runs) == 1 else PAGE, 3.2)
    plot_signed_means(_reports(runs), ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def distributions(runs: Sequence[Run]) -> Figure:
    """Histograms of prejudice and volatility over words."""
    figure = print_figure(PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    plot_distribution(runs[0].load(load_report), quantity="r_p", ax=left)
    plot_distribution(runs[0].load(load_report), quantity="r_v", ax=right)
    return captioned(figure, _words(runs[0]))


def preferences(runs: Sequence[Run]) -> Figure:
    """The published six words by template; the extremes where they were not read."""
    report = runs[0].load(load_report)
    published = ("nurse", "stylist", "receptionist", "doctor", "programmer", "captain")
    x = [word for word in published if word in report.preferences.x]
    rows = x if len(x) == len(published) else extreme_words(report)
    figure = print_figure(PAGE, 1.9 + 0.22 * len(rows))
    plot_preferences(report.preferences, rows, ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def change(runs: Sequence[Run]) -> Figure:
    """Risk before and after."""
    figure = print_figure(COLUMN, 2.8)
    plot_change(*_reports(runs).values(), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def size(runs: Sequence[Run]) -> Figure:
    """Risk against the number of parameters."""
    figure = print_figure(COLUMN, 2.8)
    plot_against_size(_reports(runs), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _reports(runs: Sequence[Run]) -> dict[str, RiskReport]:
    """Reports by name; refuses a model that stands beside itself."""
    reports = {name: run.load(load_report) for name, run in named_apart(runs).items()}
    comparison(reports)
    return reports


def _words(run: Run) -> str:
    n = run.load(load_report).controls
    return (
        f"{run.model}: {counted(n['x'], 'word')}, {counted(n['templates'], 'template')} (weights "
        "like "
        f"{n['n_effective_contexts']:.1f} of them); listed words hold {n['union_mass_mean']:.2g} "
        "of the probability."
    )


def _prompts(run: Run) -> object:
    """Runs with the same words, templates and classes can stand side by side."""
    p = run.load(load_report).preferences
    return p.x, p.templates, p.classes


FIGURES: tuple[Entry, ...] = (
    Entry(
        "pvf5_signed_means",
        "PVF papers, figure 5: signed means by model",
        "pvf",
        signed_means,
        together="all",
        comparable=_prompts,
    ),
    Entry(
        "pvf6_change",
        "PVF papers, figures 6 and 8: before and after",
        "pvf",
        change,
        together="two",
        comparable=_prompts,
        fewest=2,
    ),
    Entry(
        "pvf7_size",
        "PVF papers, figure 7: risk against size",
        "pvf",
        size,
        together="all",
        comparable=_prompts,
        fewest=2,
    ),
    Entry(
        "pvf10_distributions",
        "PVF papers, figures 10 and 16: distributions over words",
        "pvf",
        distributions,
    ),
    Entry(
        "pvf11_preferences",
        "PVF papers, figure 11: preferences by word and template",
        "pvf",
        preferences,
    ),
)
