"""Small drawings of a page as inline SVG: intervals, bars, maps of heads.

They are drawn once, for screen and paper alike. Colours are classes, so that the dark has its own;
positions are attributes, which the page's policy allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from tda_bias.show.verdict import HeadGrid, Outcome

# Sizes in units of the drawing: an interval's, a cell of a map with its gap, room for its labels.
_WIDTH, _HEIGHT, _END = 240, 18, 6
_CELL, _GAP, _SIDE, _TOP = 10, 1.5, 24, 12
# A standardised effect beyond it is drawn at the edge.
_FAR = 2.0
# Sizes of an effect that the forest plot marks.
_MARKS = (-0.8, -0.5, 0.5, 0.8)


def _svg(width: float, height: float, label: str, parts: Sequence[Markup], kind: str) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {:g} {:g}" width="{:g}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, width, label, Markup("").join(parts))


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _text(x: float, y: float, said: str, anchor: str = "middle") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        x, y, anchor, said
    )


def interval_svg(outcome: Outcome, *, coloured: bool) -> Markup:
    """The value with its interval, and where it would be without bias; empty without a value."""
    numbers = [outcome.value, outcome.low, outcome.high]
    known = [one for one in numbers if math.isfinite(one)]
    if not known:
        return Markup("")
    low, high = min([*known, outcome.neutral]), max([*known, outcome.neutral])
    return _interval(numbers, outcome.neutral, (low, high), outcome, (), coloured=coloured)


def effect_svg(outcome: Outcome, limits: tuple[float, float], *, coloured: bool) -> Markup:
    """The standardised effect on the scale that a forest plot shares."""
    numbers = [outcome.effect, outcome.effect_low, outcome.effect_high]
    marks = [mark for mark in _MARKS if limits[0] < mark < limits[1]]
    return _interval(numbers, 0.0, limits, outcome, marks, coloured=coloured)


def forest_limits(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """The scale of a forest plot: all effects and intervals, and 0, none further than 2."""
    ends = [end for one in outcomes for end in (one.effect, one.effect_low, one.effect_high)]
    known = [0.0, *(end for end in ends if math.isfinite(end))]
    return max(min(known) - 0.05, -_FAR), min(max(*known, 0.55) + 0.05, _FAR)


def _interval(
    numbers: Sequence[float],
    neutral: float,
    limits: tuple[float, float],
    outcome: Outcome,
    marks: Sequence[float],
    *,
    coloured: bool,
) -> Markup:
    low, high = limits
    if low == high:
        low, high = low - 1, high + 1
    middle = _HEIGHT / 2

    def at(value: float) -> float:
        inside = min(max(value, low), high)
        return _END + (_WIDTH - 2 * _END) * (inside - low) / (high - low)

    parts = [_line("mark", at(one), 1, at(one), _HEIGHT - 1) for one in marks]
    parts += [_line("axis", _END, middle, _WIDTH - _END, middle)]
    parts += [_line("neutral", at(neutral), 0, at(neutral), _HEIGHT)]
    value, below, above = numbers
    if math.isfinite(below) and math.isfinite(above):
        parts.append(_line("interval", at(below), middle, at(above), middle))
        parts += [
            _line("interval end", at(x), middle - 4, at(x), middle + 4) for x in (below, above)
        ]
    if math.isfinite(value):
        parts.append(
            Markup('<circle class="value" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(
                at(value), middle
            )
        )
    kind = "drawn clear" if coloured else "drawn"
    return _svg(_WIDTH, _HEIGHT, f"{outcome.name}: {outcome.value_said}", parts, kind)


def bar_svg(label: str, share: float) -> Markup:
    """A bar of a share from 0 to 1."""
    inside = 100 * min(max(share, 0.0), 1.0)
    whole = Markup('<rect class="whole" width="100" height="8"/>')
    part = Markup('<rect class="part" width="{:.1f}" height="8"/>').format(inside)
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        'aria-label="{}: {:.0f} %">{}{}</svg>'
    ).format(label, inside, whole, part)


def map_svg(grid: HeadGrid, label: str) -> Markup:
    """A cell for each head, layers in columns: grey by its value, in colour where it survives."""
    layers, heads = grid.values.shape
    size = np.abs(np.nan_to_num(grid.values))
    shade = np.where(grid.survives, 1.0, 0.08 + 0.62 * size / (size.max() or 1.0))
    parts = [
        _text(_SIDE + _CELL * (place + 0.5), _TOP - 3, f"L{grid.layers[place]}")
        for place in _numbered(layers)
    ]
    parts += [
        _text(_SIDE - 4, _TOP + _CELL * (head + 0.8), f"H{head}", "end")
        for head in _numbered(heads)
    ]
    cell = Markup(
        '<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}" fill-opacity="{:.2f}">'
        "<title>L{}H{}: {:.2f}</title></rect>"
    )
    for place, head in np.ndindex(layers, heads):
        kind = "survives" if grid.survives[place, head] else "head"
        x, y, wide = _SIDE + _CELL * place, _TOP + _CELL * head, _CELL - _GAP
        value = grid.values[place, head]
        about = (grid.layers[place], head, value)
        parts.append(cell.format(kind, x, y, wide, wide, shade[place, head], *about))
    width, height = _SIDE + _CELL * layers, _TOP + _CELL * heads
    return _svg(width, height, label, parts, "heads")


def _numbered(n: int) -> range:
    """The places that have a number: all of a few, and else some."""
    return range(0, n, max(1, -(-n // 12)))
