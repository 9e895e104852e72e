"""The figures of the head paper, of ablations and of cross-references, at print size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from matplotlib.figure import Figure

from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.rank_tests import power
from tda_bias.crossref.targets import match_counts, signed_quantity
from tda_bias.debias.result import DebiasRun
from tda_bias.heads.kept_patterns import ExamplePattern
from tda_bias.heads.maps import PUBLISHED
from tda_bias.heads.paper_p import calibration as simulated
from tda_bias.heads.result import HeadBias
from tda_bias.plots.behaviour import plot_ablation, plot_targets
from tda_bias.plots.comparison import plot_comparison, plot_head_comparison
from tda_bias.plots.debias import plot_frontier
from tda_bias.plots.heat_map import caption, plot_heatmap
from tda_bias.plots.illustrations import (
    filtration_figure,
    plot_pattern,
    plot_step_function,
    plot_swap,
)
from tda_bias.plots.overview import (
    plot_agreement,
    plot_calibration,
    plot_category_means,
    plot_category_spreads,
    plot_length_control,
    plot_reliability,
)
from tda_bias.plots.twins import plot_items_against_twins
from tda_bias.runs.figures import COLUMN, PAGE, Entry, captioned, named_apart, print_figure
from tda_bias.runs.run import Run
from tda_bias.runs.text import counted
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.types import CATEGORIES

# -- heads -----------------------------------------------------------------------------------------


def step_function(runs: Sequence[Run]) -> Figure:
    """The births of the run's example text as a step function."""
    example = runs[0].load(ExamplePattern.load)
    figure = print_figure(COLUMN, 2.6)
    plot_step_function(example, ax=figure.subplots())
    return captioned(figure, f"{example.model}, L0H0, one text of {len(example.tokens)} tokens.")


def pattern(runs: Sequence[Run]) -> Figure:
    """The example text's first pattern."""
    example = runs[0].load(ExamplePattern.load)
    figure = print_figure(COLUMN, 3.4)
    plot_pattern(example, ax=figure.subplots())
    return captioned(
        figure, f"{example.model}: one stereotype text of the group {example.group!r}."
    )


def filtration(runs: Sequence[Run]) -> Figure:
    """The graph of the example's first tokens, edge by edge."""
    example = runs[0].load(ExamplePattern.load)
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
    figure = print_figure(PAGE, 2.8)
    plot_swap(axes=figure.subplots(1, 2, sharey=True))
    return captioned(
        figure,
        "Made-up sets. Dashed: the texts that change places. Bold: the centre of each cluster. The "
        "statistic is the difference of the two variances over that of the unrelated texts.",
    )


def heat_map(category: str) -> Callable[[Sequence[Run]], Figure]:
    """A function that draws the map of one category; with twins the published one beside it."""

    def draw(runs: Sequence[Run]) -> Figure:
        result = runs[0].load(HeadBias.load)
        by = result.rank_by
        layers, _ = result.category_map(category).shape
        beside = result.record.twins is not None and by not in PUBLISHED
        height = min(1.5 + 0.1 * layers, 4.6)
        figure = print_figure(PAGE if beside else COLUMN, height)
        axes = figure.subplots(1, 2 if beside else 1, squeeze=False)[0]
        for ax, name in zip(axes, ("relative", by) if beside else (by,), strict=True):
            plot_heatmap(result, ax=ax, category=category, by=name)
        return captioned(figure, caption(result, category, by))

    return draw


def means(runs: Sequence[Run]) -> Figure:
    """Means over groups by category."""
    figure = print_figure(COLUMN, 2.6)
    plot_category_means(runs[0].load(HeadBias.load), ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} Bars: mean; lines: its standard error over groups."
    )


def spreads(runs: Sequence[Run]) -> Figure:
    """Standard deviations over groups by category."""
    figure = print_figure(COLUMN, 2.6)
    plot_category_spreads(runs[0].load(HeadBias.load), ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} T divides by a variance that is near 0 in some heads."
    )


def length(runs: Sequence[Run]) -> Figure:
    """S against the length statistic, both dimensions."""
    figure = print_figure(PAGE, 3.0)
    for dim, ax in enumerate(figure.subplots(1, 2)):
        plot_length_control(runs[0].load(HeadBias.load), dim=dim, ax=ax)
    return captioned(figure, f"{_texts(runs[0])} One point per group; without unstable heads.")


def reliability(runs: Sequence[Run]) -> Figure:
    """Split-half reliability of groups and maps."""
    figure = print_figure(COLUMN, 2.8)
    plot_reliability(runs[0].load(HeadBias.load), ax=figure.subplots())
    return captioned(figure, f"{_texts(runs[0])} Random halves of the contexts, Spearman-Brown.")


def calibration(_: Sequence[Run]) -> Figure:
    """p-values of simulated groups without any effect."""
    simulation = simulated()
    figure = print_figure(COLUMN, 2.8)
    plot_calibration(simulation, ax=figure.subplots())
    return captioned(
        figure,
        f"{simulation.n_groups} simulated groups of {simulation.n_contexts} contexts and 20 heads "
        "whose two clusters do not differ: a p-value should lie on the diagonal. This is why the "
        "default is paired and not the published one.",
    )


def agreement(runs: Sequence[Run]) -> Figure:
    """Spearman between models over groups."""
    results = {name: run.load(HeadBias.load) for name, run in named_apart(runs).items()}
    figure = print_figure(COLUMN, 3.0)
    plot_agreement(results, ax=figure.subplots())
    n = min(len(result.groups) for result in results.values())
    return captioned(
        figure,
        f"Mean |relative| over heads of {n} or more groups; |Spearman| must reach "
        f"{power(n)['significant']:.2f} for p < .05. Models agree by the lengths they read "
        "already.",
    )


def _texts(run: Run) -> str:
    result = run.load(HeadBias.load)
    n = [result.controls(category) for category in result.categories]
    groups, triples = sum(c["groups"] for c in n), sum(c["triples"] for c in n)
    said = counted(groups, "group"), counted(triples, "triple"), counted(n[0]["heads"], "head")
    return f"{run.model}: {', '.join(said)}."


# -- twins -----------------------------------------------------------------------------------------


def items_against_twins(runs: Sequence[Run]) -> Figure:
    """Each item's preference against that of the same text about another target."""
    scores = runs[0].load(StereoSetScores.load)
    figure = print_figure(COLUMN, 4.3)
    plot_items_against_twins(scores.items, ax=figure.subplots())
    return captioned(
        figure,
        f"{runs[0].model}: one point per item, sums of log-probabilities. On the dashed line the "
        "preference is wording; the distance from it is about the target.",
    )


# -- ablation and cross-reference ------------------------------------------------------------------


def ablation(runs: Sequence[Run]) -> Figure:
    """Effect of removing heads against two rankings: on beta, where there were twins."""
    study = runs[0].load(AblationStudy.load)
    outcome: Literal["log_odds", "beta"] = "beta" if study.has_beta else "log_odds"
    figure = print_figure(PAGE, 3.0)
    left, right = figure.subplots(1, 2)
    plot_ablation(study, outcome=outcome, ax=left)
    plot_ablation(study, by="importance", outcome=outcome, ax=right)
    return captioned(
        figure,
        f"{study.record.category}: {counted(study.record.triples, 'triple')}, "
        f"{counted(len(study.heads), 'head')}; "
        "right, the control: gradient importance.",
    )


def targets(runs: Sequence[Run]) -> Figure:
    """Targets: heads against output probabilities."""
    table = runs[0].load(CrossReference.load).targets
    signed = signed_quantity(table.columns)
    figure = print_figure(PAGE, 3.2)
    for ax, quantity in zip(figure.subplots(1, 2), ("r", signed), strict=True):
        plot_targets(table, quantity, "mean_abs_T", ax=ax)
    needed = power(len(table))["significant"]
    return captioned(
        figure,
        f"{runs[0].model}: {counted(len(table), 'target')} ({match_counts(table)}). |Spearman| "
        "must reach "
        f"{needed:.2f} for p < .05, before any correction.",
    )


# -- before and after ------------------------------------------------------------------------------


def comparison(runs: Sequence[Run]) -> Figure:
    """Changes between two models, outcome by outcome."""
    return plot_comparison(runs[0].load(ModelComparison.load))


def head_comparison(runs: Sequence[Run]) -> Figure:
    """Two maps of heads against each other, and by depth."""
    return plot_head_comparison(runs[0].load(HeadsComparison.load))


def _compares(what: str) -> Callable[[Run], bool]:
    return lambda run: getattr(run.record, "compares", None) == what


# -- debiasing -------------------------------------------------------------------------------------


def frontier(runs: Sequence[Run]) -> Figure:
    """Remaining bias on unseen targets against the change of perplexity."""
    run = runs[0].load(DebiasRun.load)
    protocol, figure = run.record.protocol, plot_frontier(run.frontier)
    return captioned(
        figure,
        f"{run.record.model.name}, {run.record.category}, {protocol.how}: items of targets that no "
        f"training saw, {protocol.folds_run} of {protocol.n_folds} folds, {protocol.n_random} sets "
        f"of random heads {run.record.matching}. One point per check of the trainings.",
    )


# -- the catalogue ---------------------------------------------------------------------------------


def _has(category: str) -> Callable[[Run], bool]:
    return lambda run: category in run.load(HeadBias.load).categories


FIGURES: tuple[Entry, ...] = (
    Entry(
        "fig1_step_function",
        "Head paper, figure 1: a step function, N = 4",
        "heads",
        step_function,
    ),
    Entry("fig2_pattern", "Head paper, figure 2: one attention matrix", "heads", pattern),
    Entry("filtration", "The graph filtration of one text, step by step", "heads", filtration),
    Entry("fig3_swap", "Head paper, figure 3: a swap", "", swap),
    *(
        Entry(
            f"fig{number}_{category}",
            f"Head paper, figure {number}: hot spots, {category}",
            "heads",
            heat_map(category),
            holds=_has(category),
            option=f" --category {category}",
        )
        for number, category in enumerate(CATEGORIES, start=4)
    ),
    Entry(
        "twins_items",
        "Preference for the stereotype, against the same text about another target",
        "stereoset",
        items_against_twins,
        holds=lambda run: run.load(StereoSetScores.load).has_twins,
        option=" --twins auto",
    ),
    Entry("fig8_means", "Head paper, figure 8: means by category", "heads", means),
    Entry("fig9_spreads", "Head paper, figure 9: spreads by category", "heads", spreads),
    Entry("calibration", "p-values without any effect", "", calibration),
    Entry("length", "Length control", "heads", length),
    Entry("reliability", "Reliability of groups and maps", "heads", reliability),
    Entry(
        "agreement",
        "Agreement between models over groups",
        "heads",
        agreement,
        together="all",
        fewest=2,
    ),
    Entry(
        "ablation",
        "Topological rank against the effect of removing a head",
        "ablate",
        ablation,
    ),
    Entry(
        "debias_frontier",
        "Training chosen heads: bias left against perplexity",
        "debias",
        frontier,
    ),
    Entry("crossref", "Heads against output probabilities, by target", "crossref", targets),
    Entry(
        "compare",
        "Before and after: every outcome with its interval",
        "compare",
        comparison,
        holds=_compares("models"),
        option=" MODEL MODEL",
    ),
    Entry(
        "compare_heads",
        "Before and after: two maps of heads",
        "compare",
        head_comparison,
        holds=_compares("heads"),
        option=" RUN RUN",
    ),
)
