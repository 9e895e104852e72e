"""Runs to figures at print size, each with its caption line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from figures.runs import Run
from figures.style import COLUMN, PAGE, captioned

if TYPE_CHECKING:
    from pvf.results import RiskReport


def _one(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


# -- heads -----------------------------------------------------------------------------------------


def step_function(runs: Sequence[Run]) -> Figure:
    """The births of the run's example text as a step function."""
    from tda_bias.illustrations import plot_step_function

    example = runs[0].example
    figure = _one(COLUMN, 2.6)
    plot_step_function(example, ax=figure.subplots())
    return captioned(figure, f"{example.model}, L0H0, one text of {len(example.tokens)} tokens.")


def pattern(runs: Sequence[Run]) -> Figure:
    """The example text's first pattern."""
    from tda_bias.illustrations import plot_pattern

    example = runs[0].example
    figure = _one(COLUMN, 3.4)
    plot_pattern(example, ax=figure.subplots())
    return captioned(
        figure, f"{example.model}: one stereotype text of the group {example.group!r}."
    )


def filtration(runs: Sequence[Run]) -> Figure:
    """The graph of the example's first tokens, edge by edge."""
    from tda_bias.illustrations import filtration_figure

    example = runs[0].example
    figure = filtration_figure(example, n_tokens=min(6, len(example.tokens)))
    return captioned(
        figure,
        f"{example.model}, L0H0, the first tokens of one text. Edges are dropped from the weakest; "
        "solid ones form the maximum spanning tree: dropping one gives birth to a component, "
        "dropping a dashed one is the death of a cycle. The two sorted sets of weights are all "
        "that the statistic sees.",
    )


def swap(_: Sequence[Run]) -> Figure:
    """Two made-up clusters before and after a swap."""
    from tda_bias.illustrations import plot_swap

    figure = _one(PAGE, 2.8)
    plot_swap(axes=figure.subplots(1, 2, sharey=True))
    return captioned(
        figure,
        "Made-up sets. Dashed: the texts that change places. Bold: the centre of each cluster. The "
        "statistic is the difference of the two variances over that of the unrelated texts.",
    )


def heat_map(category: str) -> Callable[[Sequence[Run]], Figure]:
    """A function that draws the map of one category."""

    def draw(runs: Sequence[Run]) -> Figure:
        from tda_bias.plots import caption, plot_heatmap

        result = runs[0].heads
        by = result.rank_by
        layers, _ = result.category_map(category).shape
        figure = _one(COLUMN, min(1.5 + 0.1 * layers, 4.6))
        plot_heatmap(result, ax=figure.subplots(), category=category, by=by)
        return captioned(figure, caption(result, category, by))

    return draw


def means(runs: Sequence[Run]) -> Figure:
    """Means over groups by category."""
    from tda_bias.overview_plots import plot_category_means

    figure = _one(COLUMN, 2.6)
    plot_category_means(runs[0].heads, ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} Bars: mean; lines: its standard error over groups."
    )


def spreads(runs: Sequence[Run]) -> Figure:
    """Standard deviations over groups by category."""
    from tda_bias.overview_plots import plot_category_spreads

    figure = _one(COLUMN, 2.6)
    plot_category_spreads(runs[0].heads, ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} T divides by a variance that is near 0 in some heads."
    )


def length(runs: Sequence[Run]) -> Figure:
    """S against the length statistic, both dimensions."""
    from tda_bias.overview_plots import plot_length_control

    figure = _one(PAGE, 3.0)
    for dim, ax in enumerate(figure.subplots(1, 2)):
        plot_length_control(runs[0].heads, dim=dim, ax=ax)
    return captioned(figure, f"{_texts(runs[0])} One point per group; without unstable heads.")


def reliability(runs: Sequence[Run]) -> Figure:
    """Split-half reliability of groups and maps."""
    from tda_bias.overview_plots import plot_reliability

    figure = _one(COLUMN, 2.8)
    plot_reliability(runs[0].heads, ax=figure.subplots())
    return captioned(figure, f"{_texts(runs[0])} Random halves of the contexts, Spearman-Brown.")


def calibration(_: Sequence[Run]) -> Figure:
    """p-values of simulated groups without any effect."""
    from tda_bias.calibration import calibration
    from tda_bias.overview_plots import plot_calibration

    found = calibration()
    figure = _one(COLUMN, 2.8)
    plot_calibration(found, ax=figure.subplots())
    return captioned(
        figure,
        f"{found.n_groups} simulated groups of {found.n_contexts} contexts and 20 heads whose two "
        "clusters do not differ: a p-value should lie on the diagonal. This is why the default is "
        "paired and not the published one.",
    )


def agreement(runs: Sequence[Run]) -> Figure:
    """Spearman between models over groups."""
    from tda_bias.crossref import power
    from tda_bias.overview_plots import plot_agreement

    results = {_short(run, runs): run.heads for run in runs}
    figure = _one(COLUMN, 3.0)
    plot_agreement(results, ax=figure.subplots())
    n = min(len(result.groups) for result in results.values())
    return captioned(
        figure,
        f"Mean |relative| over heads of {n} or more groups; |Spearman| must reach "
        f"{power(n)['significant']:.2f} for p < .05. Models agree by the lengths they read "
        "already.",
    )


def _texts(run: Run) -> str:
    result = run.heads
    n = [result.controls(category) for category in result.categories]
    groups, triples = sum(c["groups"] for c in n), sum(c["triples"] for c in n)
    return f"{run.model}: {groups} groups, {triples} triples, {n[0]['heads']} heads."


def _short(run: Run, runs: Sequence[Run]) -> str:
    same = [other for other in runs if other.model == run.model]
    return run.model if len(same) == 1 else str(run.folder)


# -- ablation and cross-reference ------------------------------------------------------------------


def ablation(runs: Sequence[Run]) -> Figure:
    """Effect of removing heads against two rankings."""
    from tda_bias.behaviour_plots import plot_ablation

    study = runs[0].ablation
    figure = _one(PAGE, 3.0)
    left, right = figure.subplots(1, 2)
    plot_ablation(study, ax=left)
    plot_ablation(study, by="importance", ax=right)
    return captioned(
        figure,
        f"{study.record['category']}: {study.record['triples']} triples, {len(study.heads)} heads; "
        "right, the control: gradient importance.",
    )


def targets(runs: Sequence[Run]) -> Figure:
    """Targets: heads against output probabilities."""
    from tda_bias.behaviour_plots import plot_targets
    from tda_bias.crossref import match_counts, power, signed_quantity

    table = runs[0].targets
    signed = signed_quantity(table.columns)
    figure = _one(PAGE, 3.2)
    for ax, quantity in zip(figure.subplots(1, 2), ("r", signed), strict=True):
        plot_targets(table, quantity, "mean_abs_T", ax=ax)
    needed = power(len(table))["significant"]
    return captioned(
        figure,
        f"{runs[0].model}: {len(table)} targets ({match_counts(table)}). |Spearman| must reach "
        f"{needed:.2f} for p < .05, before any correction.",
    )


# -- pvf -------------------------------------------------------------------------------------------


def signed_means(runs: Sequence[Run]) -> Figure:
    """Box per model of signed means."""
    from pvf.plots import plot_signed_means

    figure = _one(COLUMN if len(runs) == 1 else PAGE, 3.2)
    plot_signed_means(_reports(runs), ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def distributions(runs: Sequence[Run]) -> Figure:
    """Histograms of prejudice and volatility over words."""
    from pvf.plots import plot_distribution

    figure = _one(PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    plot_distribution(runs[0].risk, quantity="r_p", ax=left)
    plot_distribution(runs[0].risk, quantity="r_v", ax=right)
    return captioned(figure, _words(runs[0]))


def preferences(runs: Sequence[Run]) -> Figure:
    """The published six words by template; the extremes where they were not read."""
    from pvf.plots import extreme_words, plot_preferences

    report = runs[0].risk
    published = ("nurse", "stylist", "receptionist", "doctor", "programmer", "captain")
    x = [word for word in published if word in report.preferences.x]
    rows = x if len(x) == len(published) else extreme_words(report)
    figure = _one(PAGE, 1.9 + 0.22 * len(rows))
    plot_preferences(report.preferences, rows, ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def change(runs: Sequence[Run]) -> Figure:
    """Risk before and after."""
    from pvf.plots import plot_change

    figure = _one(COLUMN, 2.8)
    plot_change(*_reports(runs).values(), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def size(runs: Sequence[Run]) -> Figure:
    """Risk against the number of parameters."""
    from pvf.plots import plot_against_size

    figure = _one(COLUMN, 2.8)
    plot_against_size(_reports(runs), ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _reports(runs: Sequence[Run]) -> dict[str, RiskReport]:
    """Reports by name; refuses a model that stands beside itself."""
    from pvf.results import comparison

    reports = {_short(run, runs): run.risk for run in runs}
    comparison(reports)
    return reports


def _words(run: Run) -> str:
    n = run.risk.controls
    return (
        f"{run.model}: {n['x']} words, {n['templates']} templates (weights like "
        f"{n['n_effective_contexts']:.1f} of them); listed words hold {n['union_mass_mean']:.2g} "
        "of the probability."
    )


# -- questions -------------------------------------------------------------------------------------


def questions(name: str) -> Callable[[Sequence[Run]], Figure]:
    """A function that draws one of the figures of underspecified questions."""

    def draw(runs: Sequence[Run]) -> Figure:
        return runs[0].question_figures[name]

    return draw
