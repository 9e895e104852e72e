"""The figures of heads, ablations, cross-references and comparisons, at print size."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.head_crossref import HeadCrossReference
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.summary import quantity_of
from tda_bias.heads.items import ExamplePattern
from tda_bias.heads.result import HeadBias
from tda_bias.heads.tables import PUBLISHED
from tda_bias.plots.behaviour import (
    ablation_figure,
    draw_dot,
    plot_conditions,
    plot_items_against_twins,
    plot_prune_curve,
    plot_twin_differences,
    targets_figure,
)
from tda_bias.plots.head_effects import head_effects_figure
from tda_bias.plots.heads import (
    caption,
    plot_agreement,
    plot_calibration,
    plot_categories,
    plot_heatmap,
    plot_length_control,
    plot_reliability,
)
from tda_bias.plots.illustrations import calibration as simulated
from tda_bias.plots.illustrations import (
    plot_attention,
    plot_step_function,
    plot_swap,
)
from tda_bias.plots.maps import maps_figure, settled
from tda_bias.plots.responses import FIGURES as RESPONSES
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.show.figures import (
    BLUE,
    COLUMN,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PAGE,
    Entry,
    captioned,
    label_point,
    named_apart,
    of_paper,
    print_figure,
)
from tda_bias.show.names import named
from tda_bias.show.text import counted, short_name, short_names
from tda_bias.stats.correlation import power
from tda_bias.stats.resampling import LEVEL
from tda_bias.store.run import Run
from tda_bias.types import CATEGORIES, HeadId


def _column(height: float, plot: Callable[..., object], *arguments: object, text: str) -> Figure:
    """One plot at a column's width, with a line under it."""
    figure = print_figure(COLUMN, height)
    plot(*arguments, ax=figure.subplots())
    return captioned(figure, text)


# -- the statistic ---------------------------------------------------------------------------------


def step_function(runs: Sequence[Run]) -> Figure:
    """The births of the run's example text as a step function."""
    example = ExamplePattern.read(runs[0])
    text = (
        f"{short_name(example.model)}, {example.first}, one text of {len(example.tokens)} tokens."
    )
    return _column(2.6, plot_step_function, example, text=text)


def pattern(runs: Sequence[Run]) -> Figure:
    """The example text's first pattern."""
    example = ExamplePattern.read(runs[0])
    plot = partial(plot_attention, title=str(example.first))
    text = f"{short_name(example.model)}: the first starter triple, the same sentence in every run."
    return _column(3.4, plot, example.tokens, example.of(example.first), text=text)


def swap(_: Sequence[Run]) -> Figure:
    """Two made-up clusters before and after a swap."""
    figure = print_figure(PAGE, 2.8)
    plot_swap(axes=figure.subplots(1, 2, sharey=True))
    return captioned(
        figure,
        "Made-up sets. Dashed: the texts that change places. Bold: the centre of each cluster. The "
        "statistic is the difference of the two variances over that of the unrelated texts.",
    )


def calibration(_: Sequence[Run]) -> Figure:
    """p-values of simulated groups without any effect."""
    text = (
        "200 simulated groups of 25 contexts and 20 heads whose two clusters do not differ: a "
        "p-value should lie on the diagonal. This is why the default is paired and not the "
        "published one."
    )
    return _column(2.8, plot_calibration, simulated(n_groups=200), text=text)


# -- heads -----------------------------------------------------------------------------------------


def heat_map(runs: Sequence[Run], *, category: str) -> Figure:
    """The map of one category; with twins the published one beside it."""
    result = runs[0].load(HeadBias.load)
    by = result.rank_by
    beside = result.controls(category)["twins"] is not None and by not in PUBLISHED
    layers, heads = result.category_map(category).shape
    figure, axes = maps_figure(layers, heads, 2 if beside else 1)
    for ax, name in zip(axes, ("relative", by) if beside else (by,), strict=True):
        plot_heatmap(result, ax=ax, category=category, by=name)
    return settled(captioned(figure, caption(result, category, by)))


def length(runs: Sequence[Run]) -> Figure:
    """S against the length statistic, both dimensions."""
    result, figure = runs[0].load(HeadBias.load), print_figure(PAGE, 3.0)
    for dim, ax in enumerate(figure.subplots(1, 2)):
        plot_length_control(result, dim=dim, ax=ax)
    return captioned(figure, f"{_texts(result)} One point per group; without unstable heads.")


def agreement(runs: Sequence[Run]) -> Figure:
    """Spearman between models over groups."""
    results = {name: run.load(HeadBias.load) for name, run in named_apart(runs).items()}
    n = min(len(result.groups) for result in results.values())
    text = (
        f"Mean |relative| over heads of {n} or more groups; |Spearman| must reach "
        f"{power(n)['significant']:.2f} for p < .05. The lengths of the texts "
        "alone make models agree."
    )
    return _column(3.0, plot_agreement, results, text=text)


def _texts(result: HeadBias) -> str:
    n = [result.controls(category) for category in result.categories]
    groups, triples = sum(c["groups"] for c in n), sum(c["triples"] for c in n)
    said = counted(groups, "group"), counted(triples, "triple"), counted(n[0]["heads"], "head")
    return f"{short_name(result.record.model.name)}: {', '.join(said)}."


# -- behaviour -------------------------------------------------------------------------------------


def items_against_twins(runs: Sequence[Run]) -> Figure:
    """Each item's preference against that of the same text about another target."""
    scores = runs[0].load(StereoSetScores.load)
    figure = print_figure(COLUMN, 6.1)
    above, below = figure.subplots(2, 1, height_ratios=[2.6, 1])
    plot_items_against_twins(scores.items, ax=above)
    plot_twin_differences(scores.items, ax=below)
    # Where the page has room for it whole.
    legend = above.get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper center", frameon=False)
    return captioned(
        figure,
        f"{short_name(runs[0].model)}: one point per item, sums of log-probabilities. On the "
        "dashed line the preference is wording; the distance from it is about the target.",
    )


def prune_curve(runs: Sequence[Run]) -> Figure:
    """Bias left while more and more heads are ablated, against what that costs."""
    curve = runs[0].load(PruneCurve.load).curve
    text = "A ranking helps if its line is closer to 0 than the band."
    return captioned(plot_prune_curve(curve), text)


def frontier(runs: Sequence[Run]) -> Figure:
    """Bias left on unseen targets by every condition, and the change of perplexity."""
    run = runs[0].load(DebiasRun.load)
    protocol, quantity = run.record.protocol, quantity_of(run.record.twins)
    figure = plot_conditions(run.conditions, run.frontier, quantity)
    return captioned(
        figure,
        f"{short_name(run.record.model.name)}, {run.record.category}, {protocol.how}: items of "
        f"targets that no training saw, {protocol.folds_run} of {protocol.n_folds} folds; in grey "
        f"{counted(protocol.n_random, 'set')} of random heads {run.record.matching}.",
    )


# -- comparisons -----------------------------------------------------------------------------------

_COLOURS = {"bias": BLUE, "quality": GREEN, "knowledge": ORANGE}
_ROW = 0.17  # inches
_LETTERS = 30  # of a line beside a scatter


def plot_comparison(comparison: ModelComparison) -> Figure:
    """The change of every outcome with its interval; dotted where a guard ends."""
    table = comparison.table.dropna(subset=["change"])
    units = list(dict.fromkeys(table["unit"]))
    rows = [int((table["unit"] == unit).sum()) for unit in units]
    figure = print_figure(PAGE, 0.9 + sum(_ROW * n + 0.55 for n in rows))
    grid = figure.subplots(len(units), 1, height_ratios=[n + 1 for n in rows], squeeze=False)
    for ax, unit in zip(grid[:, 0], units, strict=True):
        _panel(ax, table[table["unit"] == unit], unit)
    for kind in dict.fromkeys(table["kind"]):
        grid[0, 0].plot([], [], "o", ms=4, color=_COLOURS[kind], label=kind)
    grid[0, 0].legend(
        frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.1
    )
    record = comparison.record
    before, after = short_names(_models(comparison))
    return captioned(
        figure,
        f"{after} minus {before}: change, {record.confidence:.0%} "
        "interval over clusters. Right: before and after. Filled: primary outcomes. Dotted: how "
        "much worse an outcome may get.",
    )


def _models(comparison: ModelComparison | HeadsComparison) -> list[str]:
    return [comparison.record.model.name, comparison.record.after.name]


def _panel(ax: Axes, table: pd.DataFrame, unit: str) -> None:
    places = np.arange(len(table))[::-1]
    for place, row in zip(places, table.to_dict("records"), strict=True):
        colour = _COLOURS[row["kind"]]
        face = colour if row["primary"] else "white"
        draw_dot(ax, place, row["change"], (row["low"], row["high"]), colour=colour, face=face)
        if row["guard"]:
            ax.plot([row["margin"]] * 2, [place - 0.4, place + 0.4], ":", color="black", lw=1.2)
        ax.annotate(
            f"{row['before']:.3g} → {row['after']:.3g}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=6,
        )
    ax.axvline(0, color="black", lw=0.5)
    ax.set_yticks(places, [named(name) for name in table["outcome"]], fontsize=6)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(unit, labelpad=1)
    ax.margins(x=0.08)


def plot_head_comparison(comparison: HeadsComparison) -> Figure:
    """Maps of two runs against each other, where heads are matched, and their layer profiles."""
    matched = comparison.record.matched
    figure = print_figure(PAGE if matched else COLUMN, 3.1)
    axes = figure.subplots(1, 2 if matched else 1, squeeze=False)[0]
    if matched:
        _scatter(axes[0], comparison)
    _profiles(axes[-1], comparison)
    record = comparison.record
    said = ", ".join(
        f"{row['over']} {row['rho']:.2f} (chance {row['chance_low']:.2f} to "
        f"{row['chance_high']:.2f})"
        for row in comparison.agreement.to_dict("records")
    )
    return captioned(figure, f"{record.category}, maps by {record.by}. Spearman over {said}.")


def _scatter(ax: Axes, comparison: HeadsComparison) -> None:
    heads = comparison.heads
    certain = heads["p_holm"] < LEVEL
    for heads_of, colour, label in (
        (heads[~certain], LIGHT_GREY, "within the noise"),
        (heads[certain], ORANGE, "moved, Holm p < .05"),
    ):
        ax.scatter(heads_of["before"], heads_of["after"], s=6, color=colour, label=label)
    for row in heads[certain].nlargest(8, "z").to_dict("records"):
        at = row["before"], row["after"]
        label_point(ax, str(HeadId(row["layer"], row["head"])), at, shift=(3, 2), fontsize=5)
    values = heads[["before", "after"]].to_numpy()
    ends = [np.nanmin(values), np.nanmax(values)]
    ax.plot(ends, ends, color="black", lw=0.5)
    before, after = (
        textwrap.fill(f"map of {name}", _LETTERS) for name in short_names(_models(comparison))
    )
    ax.set_xlabel(before)
    ax.set_ylabel(after)
    ax.legend(frameon=False)


def _profiles(ax: Axes, comparison: HeadsComparison) -> None:
    names = dict(zip(("before", "after"), short_names(_models(comparison)), strict=True))
    for (side, layers), colour, marker in zip(
        comparison.layers.groupby("model", sort=False), (BLUE, ORANGE), "os", strict=True
    ):
        ax.plot(layers["depth"], layers["value"], marker=marker, ms=3, lw=1, color=colour,
                label=names[str(side)])  # fmt: skip
    ax.set_xlabel("relative depth")
    ax.set_ylabel("map, mean over heads")
    ax.legend(frameon=False)


# -- the catalogue ---------------------------------------------------------------------------------


def _has(run: Run, *, category: str) -> bool:
    return category in run.load(HeadBias.load).categories


def _of_groups(
    name: str, title: str, plot: Callable[..., object], height: float, text: str
) -> Entry:
    """A figure of all groups of a run of heads."""

    def draw(runs: Sequence[Run]) -> Figure:
        result = runs[0].load(HeadBias.load)
        return _column(height, plot, result, text=f"{_texts(result)} {text}")

    return Entry(name, title, "heads", draw)


FIGURES: tuple[Entry, ...] = (
    Entry(*of_paper("fig1_step_function"), "heads", step_function),
    Entry(*of_paper("fig2_pattern"), "heads", pattern),
    Entry(*of_paper("fig3_swap"), "", swap),
    *(
        Entry(
            *of_paper(f"fig{number}_{category}"),
            "heads",
            partial(heat_map, category=category),
            holds=partial(_has, category=category),
            option=f"--category {category}",
        )
        for number, category in enumerate(CATEGORIES, start=4)
    ),
    Entry(
        "twins_items",
        "Preference for the stereotype, against the same text about another target",
        "stereoset",
        items_against_twins,
        holds=lambda run: run.load(StereoSetScores.load).has_twins,
        option="--twins auto",
    ),
    _of_groups(
        *of_paper("fig8_means"), plot_categories, 2.6,
        "Bars: mean; lines: its standard error over groups.",
    ),
    _of_groups(
        *of_paper("fig9_spreads"),
        partial(plot_categories, quantity="sd"), 2.6,
        "T divides by a variance that is near 0 in some heads.",
    ),
    Entry("calibration", "p-values without any effect", "", calibration),
    Entry("length", "Length control", "heads", length),
    _of_groups(
        "reliability", "Reliability of groups and maps", plot_reliability, 2.8,
        "Random halves of the contexts, Spearman-Brown.",
    ),
    Entry(
        "agreement", "Agreement between models over groups", "heads", agreement,
        together="all", fewest=2,
    ),
    Entry(
        "ablation",
        "Topological rank against the effect of ablating a head",
        "ablate",
        lambda runs: ablation_figure(runs[0].load(AblationStudy.load)),
    ),
    Entry(
        "prune_curve", "Bias left, and its cost, while heads are ablated", "ablate curve",
        prune_curve,
    ),
    Entry(
        "debias_frontier", "Training chosen heads: bias left against perplexity", "debias",
        frontier,
    ),
    Entry(
        "crossref",
        "Heads against output probabilities, by target",
        "crossref",
        lambda runs: targets_figure(runs[0].load(CrossReference.load)),
    ),
    Entry(
        "crossref_heads",
        "Heads' effects on R, R_p and R_v against their attention",
        "crossref heads",
        lambda runs: head_effects_figure(runs[0].load(HeadCrossReference.load)),
        typed="crossref --by heads",
    ),
    Entry(
        "compare",
        "Before and after: every outcome with its interval",
        "compare",
        lambda runs: plot_comparison(runs[0].load(ModelComparison.load)),
        option="MODEL MODEL",
    ),
    Entry(
        "compare_heads",
        "Before and after: two maps of heads",
        "compare heads",
        lambda runs: plot_head_comparison(runs[0].load(HeadsComparison.load)),
        typed="compare",
        option="RUN RUN",
    ),
    *RESPONSES,
)  # fmt: skip
