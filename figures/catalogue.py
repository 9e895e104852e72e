"""Which figures there are, what each needs, and how it is drawn at print size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

from figures import draw
from figures.runs import Run
from figures.style import print_style
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
        holds: Whether a run has what it draws.
        option: What the command needs for that, for messages.
    """

    name: str
    title: str
    command: str
    draw: Callable[[Sequence[Run]], Figure]
    together: Literal["never", "all", "two"] = "never"
    fewest: int = 1
    holds: Callable[[Run], bool] = lambda run: True
    option: str = ""


def _has(category: str) -> Callable[[Run], bool]:
    return lambda run: category in run.heads.categories


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        "fig1_step_function",
        "Head paper, figure 1: a step function, N = 4",
        "heads",
        draw.step_function,
    ),
    Entry("fig2_pattern", "Head paper, figure 2: one attention matrix", "heads", draw.pattern),
    Entry("filtration", "The graph filtration of one text, step by step", "heads", draw.filtration),
    Entry("fig3_swap", "Head paper, figure 3: a swap", "", draw.swap),
    *(
        Entry(
            f"fig{number}_{category}",
            f"Head paper, figure {number}: hot spots, {category}",
            "heads",
            draw.heat_map(category),
            holds=_has(category),
            option=f" --category {category}",
        )
        for number, category in enumerate(CATEGORIES, start=4)
    ),
    Entry("fig8_means", "Head paper, figure 8: means by category", "heads", draw.means),
    Entry("fig9_spreads", "Head paper, figure 9: spreads by category", "heads", draw.spreads),
    Entry("calibration", "p-values without any effect", "", draw.calibration),
    Entry("length", "Length control", "heads", draw.length),
    Entry("reliability", "Reliability of groups and maps", "heads", draw.reliability),
    Entry(
        "agreement",
        "Agreement between models over groups",
        "heads",
        draw.agreement,
        together="all",
        fewest=2,
    ),
    Entry(
        "ablation",
        "Topological rank against the effect of removing a head",
        "ablate",
        draw.ablation,
    ),
    Entry("crossref", "Heads against output probabilities, by target", "crossref", draw.targets),
    Entry(
        "pvf5_signed_means",
        "PVF papers, figure 5: signed means by model",
        "pvf",
        draw.signed_means,
        together="all",
    ),
    Entry(
        "pvf6_change",
        "PVF papers, figures 6 and 8: before and after",
        "pvf",
        draw.change,
        together="two",
        fewest=2,
    ),
    Entry(
        "pvf7_size",
        "PVF papers, figure 7: risk against size",
        "pvf",
        draw.size,
        together="all",
        fewest=2,
    ),
    Entry(
        "pvf10_distributions",
        "PVF papers, figures 10 and 16: distributions over words",
        "pvf",
        draw.distributions,
    ),
    Entry(
        "pvf11_preferences",
        "PVF papers, figure 11: preferences by word and template",
        "pvf",
        draw.preferences,
    ),
    Entry(
        "unqover_heat_map",
        "Comparative bias by subject and attribute",
        "unqover",
        draw.questions("heat_map"),
    ),
    Entry(
        "unqover_attributes",
        "Attributes ranked by comparative bias",
        "unqover",
        draw.questions("attributes"),
    ),
    Entry(
        "unqover_interaction",
        "Interaction of two factors",
        "unqover",
        draw.questions("interaction"),
        holds=lambda run: not run.questions.joint.empty,
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
    own = [run for run in runs if run.command == entry.command and entry.holds(run)]
    if len(own) < entry.fewest:
        if asked:
            number = "a run" if entry.fewest == 1 else f"{entry.fewest} runs or more"
            raise InputError(
                f"{entry.name} needs {number} of `tdabias {entry.command}{entry.option}`; got "
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
