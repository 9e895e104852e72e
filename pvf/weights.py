"""Weights of the words x, as a user gives them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tda_bias.runs.files import read_text
from tda_bias.types import InputError


def load_x_weights(path: str | Path, x: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
    """Weights of x from a CSV with the columns ``x,weight``.

    Returns:
        A weight for each x, 0 where the file has none, and the x without one.

    Raises:
        InputError: naming the line, if a weight is not a number from 0 on or a word stands twice.
    """
    reader = csv.DictReader(read_text(path, setting="x_weights", named=()).splitlines())
    if not {"x", "weight"} <= set(reader.fieldnames or ()):
        raise InputError(f"`x_weights` {path} must have the columns x,weight")
    weights: dict[str, float] = {}
    for row in reader:
        where = f"`x_weights` {path} line {reader.line_num}"
        word = (row["x"] or "").strip()
        if word in weights:
            raise InputError(f"{where}: {word!r} stands twice")
        try:
            weights[word] = float(row["weight"] or "")
        except ValueError:
            weights[word] = np.nan
        if not (np.isfinite(weights[word]) and weights[word] >= 0):
            raise InputError(f"{where}: the weight must be 0 or more; got {row['weight']!r}")
    missing = [word for word in x if word not in weights]
    if len(missing) == len(x):
        raise InputError(f"`x_weights` {path} has none of the words; the first is {x[0]!r}")
    return np.array([weights.get(word, 0.0) for word in x]), missing
