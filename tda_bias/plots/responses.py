"""What a group brings to responses, in one picture: how much by kind of prompt, and which words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tda_bias.plots.behaviour import draw_dot
from tda_bias.responses.result import HEADLINE, Responses
from tda_bias.show.figures import BLUE, GREY, ORANGE, PAGE, Entry, captioned, print_figure
from tda_bias.show.text import counted, short_name
from tda_bias.stats.resampling import LEVEL
from tda_bias.store.run import Run

# Measures in a row, with colour, marker, and how far from its middle.
_PARTS = ((HEADLINE, BLUE, "o", -0.14), ("echo", GREY, "s", 0.14))
_MOST_WORDS = 7  # of each group


def plot_response_effects(result: Responses, *, ax: Axes) -> Axes:
    """Response effects with intervals: of all prompts, then kind by kind; echo beside them."""
    main = result.effects[result.effects["measure"] == HEADLINE]
    kinds = list(main["kind"])
    for measure, colour, marker, shift in _PARTS:
        for place, kind in enumerate(kinds):
            row = result.effect(measure, kind)
            if row is not None:
                limits = (row["low"], row["high"])
                draw_dot(
                    ax, place + shift, row["value"], limits, colour=colour, marker=marker,
                    face=colour if np.isfinite(row["low"]) else "white",
                )  # fmt: skip
        label = measure if measure == HEADLINE else "echo: pronouns, names"
        ax.plot([], [], marker, color=colour, ms=4, label=label)
    ax.axvline(0, color="black", linewidth=0.8, linestyle="--")
    names = [f"{kind} ({n})" for kind, n in zip(kinds, main["prompts"], strict=True)]
    ax.set_yticks(range(len(kinds)), names)
    ax.set_ylim(len(kinds) - 0.4, -0.6)
    ax.set_xlabel("what the group brings, nats per response")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return ax


def plot_words(result: Responses, *, ax: Axes) -> Axes:
    """The words, echo apart, with q < .05 that each group makes likelier by most."""
    words = found_words(result).sort_values("log_ratio", ascending=False)
    first, second = result.record.groups
    shown = pd.concat(
        [
            words[words["log_ratio"] > 0].head(_MOST_WORDS),
            words[words["log_ratio"] < 0].tail(_MOST_WORDS),
        ]
    )
    for place, (ratio, word) in enumerate(zip(shown["log_ratio"], shown["word"], strict=True)):
        ax.barh(place, ratio, height=0.7, color=ORANGE if ratio > 0 else BLUE)
        ax.annotate(
            word, (0, place), xytext=(-3 if ratio > 0 else 3, 0), textcoords="offset points",
            ha="right" if ratio > 0 else "left", va="center", fontsize=6,
        )  # fmt: skip
    ax.axvline(0, color="black", linewidth=0.8)
    limit = 1.1 * float(shown["log_ratio"].abs().max()) if len(shown) else 1.0
    ax.set_xlim(-limit, limit)
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    ax.set_yticks([])
    ax.set_xlabel(f"log-ratio: likelier about\n{second} (left), {first} (right)")
    if shown.empty:
        paper = {"facecolor": ax.get_facecolor(), "edgecolor": "none"}
        said = "no word has q < .05"
        ax.text(0.5, 0.5, said, transform=ax.transAxes, ha="center", bbox=paper)
    return ax


def found_words(result: Responses) -> pd.DataFrame:
    """Words, no echo, that one group makes likelier after correction over words."""
    words = result.other_words
    return words[words["q"] < LEVEL]


def responses_figure(result: Responses) -> Figure:
    """Both panels, with the sample under them."""
    record = result.record
    figure = print_figure(PAGE, 3.2)
    left, right = figure.subplots(1, 2)
    plot_response_effects(result, ax=left)
    plot_words(result, ax=right)
    text = (
        f"{short_name(record.model.name)}, {' and '.join(record.groups)}: "
        f"{counted(record.prompts, 'prompt')}, {counted(len(result.responses), 'response')} of up "
        f"to {record.tokens} tokens; {record.confidence:.0%} intervals over prompts. Words: "
        f"{len(found_words(result))} of {len(result.other_words)} have q < .05."
    )
    return captioned(figure, text)


# -- the catalogue ---------------------------------------------------------------------------------


def _figure(runs: Sequence[Run]) -> Figure:
    return responses_figure(runs[0].load(Responses.load))


FIGURES: tuple[Entry, ...] = (
    Entry("responses", "What the group brings to responses, and its words", "respond", _figure),
)
