"""Words put in the place of words: their case, the article before them, the apostrophe behind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import inflect

CURLED = "\N{RIGHT SINGLE QUOTATION MARK}"
APOSTROPHE = f"['{CURLED}]"  # as a pattern
_ARTICLE_AT_END = re.compile(r"\b(an?)(\s+[\"'\u201c(]?)$", re.IGNORECASE)
_BARE_APOSTROPHE = re.compile(rf"{APOSTROPHE}(?![A-Za-z])")
_APOSTROPHE_S = re.compile(rf"{APOSTROPHE}s\b", re.IGNORECASE)
# Plurals that take "'s".
_PLURAL_WITHOUT_S = re.compile(r"(?:men|people|children|folk)$", re.IGNORECASE)


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def in_case_of(word: str, like: str) -> str:
    """A word with the capitals of another: all (``MOTHER``), the first (``Mother``), or none.

    A single capital letter (``I``) is a first one, not a word in capitals.
    """
    if like.isupper() and len(like) > 1:
        return word.upper()
    if like[:1].isupper():
        return word[:1].upper() + word[1:]
    return word


def replaced(text: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """The text with other words in some places, and what hangs on them put right.

    ``a`` and ``an`` before a replaced word follow the new word, and so does the apostrophe of a
    possessive: ``the ladies' hats``, ``the gentlemen's hats``.

    Args:
        text: Any text.
        replacements: Start, end (one past the last character) and the new words, in the order of
            the text; places do not overlap.
    """
    pieces: list[str] = []
    done = 0
    for start, end, new in replacements:
        before = text[done:start]
        pieces.append(_with_article(before, new) + new)
        apostrophe, done = _possessive(text, start, end, new)
        pieces.append(apostrophe)
    pieces.append(text[done:])
    return "".join(pieces)


def article(words: str) -> str:
    """``a`` or ``an``, by the sound of what follows."""
    engine = _inflect()
    first = words.split()[0]
    if number := re.match(r"\d+", first):
        first = str(engine.number_to_words(number.group()))
    return str(engine.a(first.lower() if first.isupper() else first)).split()[0]


@cache
def _inflect() -> inflect.engine:
    import inflect

    return inflect.engine()


def _with_article(before: str, new: str) -> str:
    match = _ARTICLE_AT_END.search(before)
    if match is None:
        return before
    right = in_case_of(article(new), match.group(1))
    return before[: match.start()] + right + match.group(2)


def _possessive(text: str, start: int, end: int, new: str) -> tuple[str, int]:
    """Text after the new word in place of an apostrophe, and the place where the text goes on."""
    old = text[start:end]
    ended, ends = (word.lower().endswith("s") for word in (old, new))
    if ended and not ends and _BARE_APOSTROPHE.match(text, end):
        return text[end] + ("S" if new.isupper() else "s"), end + 1
    if ends and _PLURAL_WITHOUT_S.search(old) and _APOSTROPHE_S.match(text, end):
        return text[end], end + 2
    return "", end
