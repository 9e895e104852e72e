"""How figures look in print, and how they are written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tda_bias.storage import atomic

# Widths of a column and of a page of the usual two-column paper, in inches.
COLUMN, PAGE = 3.4, 6.9
FORMATS = ("svg", "pdf", "png")
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
    "svg.hashsalt": "tdabias",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@contextmanager
def print_style() -> Iterator[None]:
    """Sizes that can be read at a column's width."""
    with mpl.rc_context(_RC):
        yield


def captioned(figure: Figure, text: str) -> Figure:
    """The figure with a line under it: how much data, and what to hold it against."""
    width = int(figure.get_figwidth() * 22)
    figure.supxlabel(textwrap.fill(text, width), fontsize=6, x=0.01, ha="left", color="#333333")
    return figure


def write(
    folder: Path, name: str, figure: Figure, *, formats: Sequence[str], title: str, run_id: str
) -> list[Path]:
    """Write a figure in several formats, each whole or not at all, with its run in the metadata.

    Raises:
        InputError: if the folder cannot be written.
    """
    about = f"{title}; drawn by tdabias from run {run_id}"
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Title": title, "Description": about},
        "svg": {"Title": title, "Description": about, "Identifier": run_id, "Date": None},
        "pdf": {"Title": title, "Subject": about, "Keywords": run_id, "CreationDate": None},
    }
    written = []
    with print_style():
        for suffix in formats:
            path = folder / f"{name}.{suffix}"
            with atomic(path) as temporary:
                figure.savefig(temporary, dpi=300, metadata=metadata[suffix])
            written.append(path)
    return written
