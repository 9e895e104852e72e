"""Look of figures in print, their list, and how they are written.

Each package lists its figures as entries; what stands here draws any list of them from saved runs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tda_bias.store.files import atomic
from tda_bias.store.result import save_figure
from tda_bias.store.run import Run
from tda_bias.types import CATEGORIES, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct to colour-blind readers and in grey.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY, LIGHT_GREY = "#666666", "#999999"
SKY, AMBER = "#56B4E9", "#E69F00"
# On white and on black.
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, AMBER)
RANDOM = "random"
# What chooses heads has one look in all pictures.
_LOOKS = {
    "evidence": (BLUE, "o"), "published": (SKY, "P"), "importance": (ORANGE, "s"),
    "effect": (GREEN, "D"), "mediation": (PINK, "^"), "gates": (AMBER, "v"),
    "bottom": ("black", "X"), "all": (GREY, "*"),
    "placebo": (LIGHT_GREY, "<"), "retention": (LIGHT_GREY, ">"),
}  # fmt: skip
# Widths of a column and of a page of the usual two-column paper, in inches.
COLUMN, PAGE = 3.4, 6.9
# Fixed, so that the same run gives the same SVG.
_RC: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Names are data: one with dollar signs is no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


# -- the look --------------------------------------------------------------------------------------


@contextmanager
def print_style() -> Iterator[None]:
    """Sizes that can be read at a column's width."""
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        yield


def print_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def captioned(figure: Figure, text: str) -> Figure:
    """The figure with a line under it: how much data, and what to compare it with.

    The label of the figure is the same in one line.
    """
    figure.set_label(text.replace("\n", " "))
    width = int(figure.get_figwidth() * 22)
    lines = [row for line in text.split("\n") for row in textwrap.wrap(line, width)]
    figure.supxlabel("\n".join(lines), fontsize=6, x=0.01, ha="left", color="#333333")
    return figure


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 0.01, not ten to a power, which would be a formula.

    The shorter it is, the more numbers get a label.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def label_point(
    ax: Axes, text: str, at: tuple[float, float], *, shift: tuple[float, float] = (3, 3), **how: Any
) -> None:
    """Write a text beside a point, ``shift`` in points."""
    ax.annotate(text, at, xytext=shift, textcoords="offset points", **how)


def look(name: str, number: int = 0) -> tuple[str, str]:
    """Colour and marker of a ranking or condition; ``number`` tells apart those of a user's own."""
    if name in _LOOKS:
        return _LOOKS[name]
    return COLOURS[number % len(COLOURS)], "odsD^vP*"[number % 8]


# -- writing ---------------------------------------------------------------------------------------


def write_figure(folder: Path, name: str, figure: Figure) -> list[Path]:
    """Write a figure as ``name.png`` and ``name.svg``, each whole or not at all."""
    written = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in written:
        with atomic(path) as temporary:
            save_figure(temporary, figure)
    return written


@dataclass(frozen=True)
class Drawn:
    """One figure."""

    name: str  # of its file, without the ending
    title: str  # what it is, with the paper's number
    figure: Figure
    run_id: str  # of the run it is drawn from; several are joined


def write_print(folder: Path, drawn: Drawn, formats: Sequence[str]) -> list[Path]:
    """Write a figure in several formats, each whole or not at all, with its run in the metadata.

    Raises:
        InputError: if the folder cannot be written.
    """
    title, run_id = drawn.title, drawn.run_id
    about = f"{title}; drawn by tdabias from run {run_id}"
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Title": title, "Description": about},
        "svg": {"Title": title, "Description": about, "Identifier": run_id, "Date": None},
        "pdf": {"Title": title, "Subject": about, "Keywords": run_id, "CreationDate": None},
    }
    written = [folder / f"{drawn.name}.{suffix}" for suffix in formats]
    for path, suffix in zip(written, formats, strict=True):
        with atomic(path) as temporary:
            save_figure(temporary, drawn.figure, dpi=300, metadata=metadata[suffix])
    return written


# -- catalogues ------------------------------------------------------------------------------------

# What the papers' figures are, by the names that they are asked for, paper by paper.
OF_PAPERS: Mapping[str, Mapping[str, str]] = {
    "Head paper": {
        "fig1_step_function": "figure 1: a step function, N = 4",
        "fig2_pattern": "figure 2: one attention matrix",
        "fig3_swap": "figure 3: a swap",
        **{
            f"fig{number}_{category}": f"figure {number}: hot spots, {category}"
            for number, category in enumerate(CATEGORIES, start=4)
        },
        "fig8_means": "figure 8: means by category",
        "fig9_spreads": "figure 9: spreads by category",
    },
    "PVF papers": {
        "pvf5_signed_means": "figure 5: signed means by model",
        "pvf6_change": "figures 6 and 8: before and after",
        "pvf7_size": "figure 7: risk against size",
        "pvf10_distributions": "figures 10 and 16: distributions over words",
        "pvf11_preferences": "figure 11: preferences by word and template",
    },
}


def of_paper(name: str) -> tuple[str, str]:
    """The name and the title of a paper's figure."""
    [title] = [f"{paper}, {own[name]}" for paper, own in OF_PAPERS.items() if name in own]
    return name, title


@dataclass(frozen=True)
class Entry:
    """A figure of a catalogue."""

    name: str  # as it is asked for
    title: str  # what it is, with the paper's number
    command: str  # whose runs it needs; empty for none
    draw: Callable[[Sequence[Run]], Figure]  # from runs of that command
    # Once per run, or once from all comparable ones, of which there may be two only.
    together: Literal["never", "all", "two"] = "never"
    comparable: Callable[[Run], object] = lambda run: None  # runs with the same key are
    fewest: int = 1  # runs it needs
    holds: Callable[[Run], bool] = lambda run: True  # whether a run has what it draws
    option: str = ""  # what the command needs for that, for messages
    typed: str = ""  # the command as it is typed, where that is not the usual: ablate --curve

    def __post_init__(self) -> None:
        if not self.typed:
            object.__setattr__(self, "typed", self.command.replace(" ", " --"))


def drawings(
    runs: Sequence[Run],
    catalogue: Sequence[Entry],
    *,
    only: Sequence[str] = (),
    left_out: Callable[[str], None] | None = None,
) -> Iterator[Drawn]:
    """The figures of a catalogue that runs of any commands allow, one after the other.

    If ``only`` names some, whatever one of them lacks is an error; else ``left_out`` is called with
    a line about each figure that cannot be drawn.

    Raises:
        InputError: if a name is unknown, or a figure asked for needs another run or a part that
            its run lacks; the message says which command makes it.
    """
    names = [entry.name for entry in catalogue]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise InputError(f"`only` must be among {', '.join(names)}; got {unknown[0]!r}")
    for entry in catalogue:
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
    usable = [run for run in runs if run.command == entry.command and entry.holds(run)]
    if len(usable) < entry.fewest:
        if asked:
            number = "a run" if entry.fewest == 1 else f"{entry.fewest} runs or more"
            typed = " ".join(filter(None, ("tdabias", entry.typed, entry.option)))
            raise InputError(f"{entry.name} needs {number} of `{typed}`; got {len(usable)}")
        return
    together: dict[object, list[Run]] = {}
    for run in usable:
        key = run.folder if entry.together == "never" else entry.comparable(run)
        together.setdefault(key, []).append(run)
    for used in together.values():
        if len(used) >= entry.fewest and (entry.together != "two" or len(used) == 2):
            # Named with the run where there are others of the kind.
            also = "" if len(used) == len(usable) else names_in_files(usable)[used[0].folder]
            ids = "+".join(run.id for run in used)
            yield Drawn(entry.name + also, entry.title, entry.draw(used), ids)


def names_in_files(runs: Sequence[Run]) -> dict[Path, str]:
    """What each run's files are named after it: its last two folders, and its id if others' are so.

    Each begins with a hyphen.
    """
    names = [
        "".join(f"-{part}" for part in run.folder.parts[-2:] if part != run.folder.anchor)
        for run in runs
    ]
    return {
        run.folder: name if names.count(name) == 1 else f"{name}-{run.id}"
        for run, name in zip(runs, names, strict=True)
    }


def named_apart(runs: Sequence[Run]) -> Mapping[str, Run]:
    """Runs by their model's name; by their folder where several are of one model."""
    names = [run.model for run in runs]
    return {run.model if names.count(run.model) == 1 else str(run.folder): run for run in runs}
