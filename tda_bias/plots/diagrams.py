"""Persistence diagrams as pictures: a barcode, and birth against death."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from tda_bias.show.figures import BLUE, GREY, ORANGE
from tda_bias.topology.diagrams import Diagram
from tda_bias.types import InputError

_NAMES = {"components": BLUE, "cycles": ORANGE}
_AXIS = {"graph": "attention weight", "flag": "distance, 1 - weight"}


def plot_barcode(diagram: Diagram, *, ax: Axes) -> Axes:
    """Draw a bar from birth to death for each pair, components below cycles.

    A bar without an end, or without a beginning, runs to the border: of the graph filtration those
    of components to the right, those of cycles from the left.
    """
    low, high = _range(diagram)
    place = 0
    for name, colour in _NAMES.items():
        pairs = np.clip(getattr(diagram, name), low, high)
        rows = np.arange(place, place + len(pairs))
        ax.hlines(rows, pairs[:, 0], pairs[:, 1], colors=colour, lw=1.4, label=name)
        place += len(pairs)
    ax.set_xlim(low, high)
    ax.set_ylim(-1, place)
    ax.set_yticks([])
    ax.set_xlabel(_AXIS[diagram.complex])
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False)
    return ax


def plot_diagram(diagram: Diagram, *, ax: Axes) -> Axes:
    """Draw birth against death of a flag complex, above the diagonal; what never ends, on top.

    Raises:
        InputError: if it is of a graph filtration, whose components never end and whose cycles have
            no beginning: draw its barcode.
    """
    if diagram.complex == "graph":
        raise InputError(
            "a diagram of the graph filtration has no pairs of a birth and a death; use "
            "plot_barcode"
        )
    low, high = _range(diagram)
    ax.plot([low, high], [low, high], color=GREY, lw=0.8)
    for (name, colour), mark in zip(_NAMES.items(), "o^", strict=True):
        pairs = np.minimum(getattr(diagram, name), high)
        ax.scatter(pairs[:, 0], pairs[:, 1], s=18, color=colour, marker=mark, label=name)
    ax.set_xlabel(f"birth ({_AXIS['flag']})")
    ax.set_ylabel("death")
    ax.set_aspect("equal")
    ax.legend(loc="lower right", frameon=False)
    return ax


def _range(diagram: Diagram) -> tuple[float, float]:
    """Limits with room for what never ends."""
    values = np.concatenate([diagram.components.ravel(), diagram.cycles.ravel()])
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.05
    return low - room, high + room
