"""Texts of a page whose tokens are shaded by a number; each is seen when it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tda_bias.show.page import rendered

# Steps of shading beside none.
LEVELS = 5


@dataclass(frozen=True)
class Piece:
    """A piece of a text: how much it is shaded, from 0 to ``LEVELS``, and what is said of it."""

    text: str
    level: int = 0
    hint: str = ""


@dataclass(frozen=True)
class ShadedText:
    """A text in pieces, with its title, which is all that is seen before it is opened."""

    title: str
    pieces: Sequence[Piece]


def level(value: float, largest: float) -> int:
    """The shading of a value: 0 for what is not positive, ``LEVELS`` for the largest.

    Examples:
        >>> [level(value, 2.0) for value in (-1.0, 0.1, 1.0, 2.0, 3.0)]
        [0, 1, 3, 5, 5]
    """
    if not (value > 0 and largest > 0):
        return 0
    return min(LEVELS, 1 + int(LEVELS * value / largest))


def texts_html(title: str, lead: str, texts: Sequence[ShadedText]) -> str:
    """The texts as HTML that is closed at first; whatever comes from data is escaped."""
    from markupsafe import Markup

    return Markup(rendered("texts.html.j2", title=title, lead=lead, texts=texts))
