"""Letters of a figure that its font lacks: taken from another installed font, or said in a line."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry

logger = logging.getLogger(__name__)

# A font that comes with matplotlib: a box for every letter there is.
_BOXES = "Last Resort"
# What matplotlib warns, once for every letter.
_MISSING = re.compile(r"Glyph (\d+) .*missing from font")


def drawn_with_all_letters(figure: Figure, draw: Callable[[], None]) -> None:
    """Draw a figure; where its font lacks letters, once more with fonts that have them.

    Letters that no installed font has are boxes, and a line says so.
    """
    boxes = _drawn(draw)
    if boxes and (fonts := _fonts_with(boxes | _lacking(figure))):
        from matplotlib.text import Text

        for text in figure.findobj(Text):
            text.set_fontfamily([*text.get_fontfamily(), *fonts])
        boxes = _drawn(draw)
    if boxes:
        _tell(boxes)


def _lacking(figure: Figure) -> frozenset[str]:
    """Letters that the fonts of a figure's texts lack.

    What matplotlib warns of is the first of those that are shaped together: of a letter with an
    accent over it the letter, which may be there.
    """
    from matplotlib import font_manager
    from matplotlib.text import Text

    return frozenset(
        letter
        for text in figure.findobj(Text)
        for letter in set(text.get_text())
        - _letters_of(font_manager.findfont(text.get_fontproperties()))
        if not letter.isspace()
    )


def _drawn(draw: Callable[[], None]) -> frozenset[str]:
    """Draw; the letters that were missing. Other warnings are passed on."""
    lacking = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw()
    for warning in caught:
        if match := _MISSING.match(str(warning.message)):
            lacking.add(chr(int(match[1])))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return frozenset(lacking)


@lru_cache
def _tell(lacking: frozenset[str]) -> None:
    """Say it once, though a figure is written in several formats."""
    logger.warning(
        "no installed font has the letters %s of a figure, which are drawn as boxes; install one "
        "of their script, for example Noto Sans CJK",
        ", ".join(sorted(lacking)[:5]),
    )


@lru_cache
def _fonts_with(letters: frozenset[str]) -> tuple[str, ...]:
    """Families of installed fonts that have the letters, those with most of them first."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):  # since its list was made
        with suppress(RuntimeError):  # of a kind that it does not read
            font_manager.fontManager.addfont(path)
    left, families = set(letters), []
    # Of a family the face that is drawn with: its bold one may have other letters.
    faces: dict[str, FontEntry] = {}
    for entry in font_manager.fontManager.ttflist:
        if not entry.name.startswith(_BOXES):
            faces[entry.name] = min(faces.get(entry.name, entry), entry, key=_from_regular)
    has = {name: letters & _letters_of(entry.fname) for name, entry in faces.items()}
    while left:
        family = max(sorted(has), key=lambda name: len(has[name] & left))
        if not has[family] & left:
            break
        families.append(family)
        left -= has[family]
    return tuple(families)


def _from_regular(entry: FontEntry) -> tuple[bool, float]:
    """How far a face is from the one that is drawn with unless another is asked for."""
    from matplotlib.font_manager import weight_dict

    weight = float(weight_dict.get(str(entry.weight), entry.weight))
    return entry.style != "normal", abs(weight - weight_dict["normal"])


def _letters_of(path: str) -> set[str]:
    from matplotlib import font_manager

    return set(map(chr, font_manager.get_font(path).get_charmap()))
