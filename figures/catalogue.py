"""Which figures there are, what each needs, and how it is drawn at print size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from figures.runs import Run
from figures.style import COLUMN, PAGE, captioned, print_style
from tda_bias.types import CATEGORIES, InputError


@dataclass(frozen=True)
class Drawn:
    """One figure.

    Attributes:
        name: File name without its ending.
        title: What it is, with the paper's number.
        figure: The figure.
        run_id: The run it is drawn from; several are joined.
    """

    name: str
    title: str
    figure: Figure
    run_id: str


@dataclass(frozen=True)
class Entry:
    """A figure of the catalogue.

    Attributes:
        name: As it is asked for.
        title: What it is, with the paper's number.
        command: Whose runs it needs; empty for none.
        draw: From runs of that command to the figure; runs are all of one command.
        together: Whether it is drawn once per run (``never``), or once from all comparable ones,
            of which there may be ``two`` only.
        fewest: Runs it needs.
        category: Which category of heads it shows; empty for all.
    """

    name: str
    title: str
    command: str
    draw: Callable[[Sequence[Run]], Figure]
    together: Literal["never", "all", "two"] = "never"
    fewest: int = 1
    category: str = ""


def _one(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


# -- heads -----------------------------------------------------------------------------------------


def _step_function(runs: Sequence[Run]) -> Figure:
    from tda_bias.illustrations import plot_step_function

    example = runs[0].example
    figure = _one(COLUMN, 2.6)
    plot_step_function(example, ax=figure.subplots())
    return captioned(figure, f"{example.model}, L0H0, one text of {len(example.tokens)} tokens.")


def _pattern(runs: Sequence[Run]) -> Figure:
    from tda_bias.illustrations import plot_pattern

    example = runs[0].example
    figure = _one(COLUMN, 3.4)
    plot_pattern(example, ax=figure.subplots())
    return captioned(
        figure, f"{example.model}: one stereotype text of the group {example.group!r}."
    )


def _filtration(runs: Sequence[Run]) -> Figure:
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


def _swap(_: Sequence[Run]) -> Figure:
    from tda_bias.illustrations import plot_swap

    figure = _one(PAGE, 2.8)
    plot_swap(axes=figure.subplots(1, 2, sharey=True))
    return captioned(
        figure,
        "Made-up sets. Dashed: the texts that change places. Bold: the centre of each cluster. The "
        "statistic is the difference of the two variances over that of the unrelated texts.",
    )


def _heat_map(category: str) -> Callable[[Sequence[Run]], Figure]:
    def draw(runs: Sequence[Run]) -> Figure:
        from tda_bias.plots import caption, plot_heatmap

        result = runs[0].heads
        by = result.rank_by
        layers, _ = result.category_map(category).shape
        figure = _one(COLUMN, min(1.5 + 0.1 * layers, 4.6))
        plot_heatmap(result, ax=figure.subplots(), category=category, by=by)
        return captioned(figure, caption(result, category, by))

    return draw


def _means(runs: Sequence[Run]) -> Figure:
    from tda_bias.overview_plots import plot_category_means

    figure = _one(COLUMN, 2.6)
    plot_category_means(runs[0].heads, ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} Bars: mean; lines: its standard error over groups."
    )


def _spreads(runs: Sequence[Run]) -> Figure:
    from tda_bias.overview_plots import plot_category_spreads

    figure = _one(COLUMN, 2.6)
    plot_category_spreads(runs[0].heads, ax=figure.subplots())
    return captioned(
        figure, f"{_texts(runs[0])} T divides by a variance that is near 0 in some heads."
    )


def _length(runs: Sequence[Run]) -> Figure:
    from tda_bias.overview_plots import plot_length_control

    figure = _one(PAGE, 3.0)
    for dim, ax in enumerate(figure.subplots(1, 2)):
        plot_length_control(runs[0].heads, dim=dim, ax=ax)
    return captioned(figure, f"{_texts(runs[0])} One point per group; without unstable heads.")


def _reliability(runs: Sequence[Run]) -> Figure:
    from tda_bias.overview_plots import plot_reliability

    figure = _one(COLUMN, 2.8)
    plot_reliability(runs[0].heads, ax=figure.subplots())
    return captioned(figure, f"{_texts(runs[0])} Random halves of the contexts, Spearman-Brown.")


def _calibration(_: Sequence[Run]) -> Figure:
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


def _agreement(runs: Sequence[Run]) -> Figure:
    from tda_bias.overview_plots import plot_agreement

    results = {_short(run, runs): run.heads for run in runs}
    figure = _one(COLUMN, 3.0)
    plot_agreement(results, ax=figure.subplots())
    n = min(len(result.groups) for result in results.values())
    return captioned(figure, f"Mean |relative| over heads of {n} or more groups.")


def _texts(run: Run) -> str:
    result = run.heads
    n = [result.controls(category) for category in result.categories]
    groups, triples = sum(c["groups"] for c in n), sum(c["triples"] for c in n)
    return f"{run.model}: {groups} groups, {triples} triples, {n[0]['heads']} heads."


def _short(run: Run, runs: Sequence[Run]) -> str:
    same = [other for other in runs if other.model == run.model]
    return run.model if len(same) == 1 else str(run.folder)


# -- ablation and cross-reference ------------------------------------------------------------------


def _ablation(runs: Sequence[Run]) -> Figure:
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


def _targets(runs: Sequence[Run]) -> Figure:
    from tda_bias.behaviour_plots import plot_targets
    from tda_bias.crossref import power

    table = runs[0].targets
    signed = next(name for name in table.columns if name.startswith("s_"))
    figure = _one(PAGE, 3.2)
    for ax, quantity in zip(figure.subplots(1, 2), ("r", signed), strict=True):
        plot_targets(table, quantity, "mean_abs_T", ax=ax)
    matched = ", ".join(f"{k} {v}" for k, v in table["match_type"].value_counts().items())
    needed = power(len(table))["significant"]
    return captioned(
        figure,
        f"{runs[0].model}: {len(table)} targets ({matched}). |Spearman| must reach {needed:.2f} "
        "for p < .05, before any correction.",
    )


# -- pvf -------------------------------------------------------------------------------------------


def _signed_means(runs: Sequence[Run]) -> Figure:
    from pvf.plots import plot_signed_means

    reports = {_short(run, runs): run.risk for run in runs}
    figure = _one(COLUMN if len(runs) == 1 else PAGE, 3.2)
    plot_signed_means(reports, ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def _distributions(runs: Sequence[Run]) -> Figure:
    from pvf.plots import plot_distribution

    figure = _one(PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    plot_distribution(runs[0].risk, quantity="r_p", ax=left)
    plot_distribution(runs[0].risk, quantity="r_v", ax=right)
    return captioned(figure, _words(runs[0]))


def _preferences(runs: Sequence[Run]) -> Figure:
    from pvf.plots import extreme_words, plot_preferences

    report = runs[0].risk
    published = ("nurse", "stylist", "receptionist", "doctor", "programmer", "captain")
    x = [word for word in published if word in report.preferences.x]
    rows = x if len(x) == len(published) else extreme_words(report)
    figure = _one(PAGE, 1.9 + 0.22 * len(rows))
    plot_preferences(report.preferences, rows, ax=figure.subplots())
    return captioned(figure, _words(runs[0]))


def _change(runs: Sequence[Run]) -> Figure:
    from pvf.plots import plot_change

    figure = _one(COLUMN, 2.8)
    plot_change(runs[0].risk, runs[1].risk, ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _size(runs: Sequence[Run]) -> Figure:
    from pvf.plots import plot_against_size

    figure = _one(COLUMN, 2.8)
    plot_against_size({_short(run, runs): run.risk for run in runs}, ax=figure.subplots())
    return captioned(figure, f"{_words(runs[0])} Intervals over words and templates.")


def _words(run: Run) -> str:
    n = run.risk.controls
    return (
        f"{run.model}: {n['x']} words, {n['templates']} templates (weights like "
        f"{n['n_effective_contexts']:.1f} of them); listed words hold {n['union_mass_mean']:.2g} "
        "of the probability."
    )


# -- questions -------------------------------------------------------------------------------------


def _questions(name: str) -> Callable[[Sequence[Run]], Figure]:
    def draw(runs: Sequence[Run]) -> Figure:
        from unqover.plots import report_figures

        found = report_figures(runs[0].questions)
        if name not in found:
            raise InputError(
                f"{runs[0].folder} has no {name} figure: its class has one factor; "
                "`tdabias unqover --class gender_race` makes one"
            )
        return found[name]

    return draw


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        "fig1_step_function",
        "Head paper, figure 1: a step function, N = 4",
        "heads",
        _step_function,
    ),
    Entry("fig2_pattern", "Head paper, figure 2: one attention matrix", "heads", _pattern),
    Entry("filtration", "The graph filtration of one text, step by step", "heads", _filtration),
    Entry("fig3_swap", "Head paper, figure 3: a swap", "", _swap),
    *(
        Entry(
            f"fig{number}_{category}",
            f"Head paper, figure {number}: hot spots, {category}",
            "heads",
            _heat_map(category),
            category=category,
        )
        for number, category in enumerate(CATEGORIES, start=4)
    ),
    Entry("fig8_means", "Head paper, figure 8: means by category", "heads", _means),
    Entry("fig9_spreads", "Head paper, figure 9: spreads by category", "heads", _spreads),
    Entry("calibration", "p-values without any effect", "", _calibration),
    Entry("length", "Length control", "heads", _length),
    Entry("reliability", "Reliability of groups and maps", "heads", _reliability),
    Entry(
        "agreement",
        "Agreement between models over groups",
        "heads",
        _agreement,
        together="all",
        fewest=2,
    ),
    Entry(
        "ablation", "Topological rank against the effect of removing a head", "ablate", _ablation
    ),
    Entry("crossref", "Heads against output probabilities, by target", "crossref", _targets),
    Entry(
        "pvf5_signed_means",
        "PVF papers, figure 5: signed means by model",
        "pvf",
        _signed_means,
        together="all",
    ),
    Entry(
        "pvf6_change",
        "PVF papers, figures 6 and 8: before and after",
        "pvf",
        _change,
        together="two",
        fewest=2,
    ),
    Entry(
        "pvf7_size",
        "PVF papers, figure 7: risk against size",
        "pvf",
        _size,
        together="all",
        fewest=2,
    ),
    Entry(
        "pvf10_distributions",
        "PVF papers, figures 10 and 16: distributions over words",
        "pvf",
        _distributions,
    ),
    Entry(
        "pvf11_preferences",
        "PVF papers, figure 11: preferences by word and template",
        "pvf",
        _preferences,
    ),
    Entry(
        "unqover_heat_map",
        "Comparative bias by subject and attribute",
        "unqover",
        _questions("heat_map"),
    ),
    Entry(
        "unqover_attributes",
        "Attributes ranked by comparative bias",
        "unqover",
        _questions("attributes"),
    ),
    Entry(
        "unqover_interaction", "Interaction of two factors", "unqover", _questions("interaction")
    ),
)
NAMES = tuple(entry.name for entry in CATALOGUE)


def drawings(
    runs: Sequence[Run], *, only: Sequence[str] = (), left_out: Callable[[str], None] | None = None
) -> Iterator[Drawn]:
    """The figures that runs allow, one after the other.

    Args:
        runs: Finished runs, of any commands.
        only: Names to draw; whatever one of them lacks is then an error.
        left_out: Called with a line about each figure that cannot be drawn, where ``only`` is not
            given.

    Raises:
        InputError: if a name is unknown, or a figure asked for needs another run or a part that
            its run lacks; the message says which command makes it.
    """
    unknown = [name for name in only if name not in NAMES]
    if unknown:
        raise InputError(f"`only` must be among {', '.join(NAMES)}; got {unknown[0]!r}")
    for entry in CATALOGUE:
        if only and entry.name not in only:
            continue
        try:
            with print_style():
                yield from _drawn(entry, runs, asked=bool(only))
        except InputError as error:
            if only:
                raise
            if left_out is not None:
                left_out(f"{entry.name}: {error}")


def _drawn(entry: Entry, runs: Sequence[Run], *, asked: bool) -> Iterator[Drawn]:
    if not entry.command:
        yield Drawn(entry.name, entry.title, entry.draw(()), "simulated")
        return
    own = _usable(entry, runs)
    if len(own) < entry.fewest:
        if asked:
            number = "a run" if entry.fewest == 1 else f"{entry.fewest} runs or more"
            category = f" --category {entry.category}" if entry.category else ""
            raise InputError(
                f"{entry.name} needs {number} of `tdabias {entry.command}{category}`; got "
                f"{len(own)}"
            )
        return
    sets = [[run] for run in own]
    if entry.together != "never":
        sets = _comparable(own) if entry.command == "pvf" else [own]
    for used in sets:
        if len(used) >= entry.fewest and (entry.together != "two" or len(used) == 2):
            ids = "+".join(run.id for run in used)
            yield Drawn(_name(entry, used, own), entry.title, entry.draw(used), ids)


def _usable(entry: Entry, runs: Sequence[Run]) -> list[Run]:
    """Runs of the entry's command that hold what it draws."""
    own = [run for run in runs if run.command == entry.command]
    if entry.category:
        return [run for run in own if entry.category in run.heads.categories]
    if entry.name == "unqover_interaction":
        return [run for run in own if not run.questions.joint.empty]
    return own


def _comparable(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of PVF with the same words, templates and classes together."""
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        p = run.risk.preferences
        found.setdefault((p.x, p.templates, p.classes), []).append(run)
    return list(found.values())


def _name(entry: Entry, used: Sequence[Run], all_runs: Sequence[Run]) -> str:
    """The entry's name, with the runs' where there are others of the kind."""
    if len(used) == len(all_runs):
        return entry.name
    parts = used[0].folder.parts[-2:]
    return f"{entry.name}-{'-'.join(parts)}" if len(parts) else entry.name
