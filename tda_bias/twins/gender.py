"""The other gender: every gendered word of a triple by its partner."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from tda_bias.twins.pronouns import PronounReader
from tda_bias.twins.twins import text_fields, with_texts
from tda_bias.twins.words import APOSTROPHE, CURLED, in_case_of, replaced
from tda_bias.types import Triple

_PRONOUNS = ("her", "hers", "him", "his")


@dataclass(frozen=True)
class GenderWords:
    """Replacement of each gendered word.

    Attributes:
        feminine: The words for women, first names included.
        partner: From a word in lower case to the word of the other gender.
        names: The same for first names; they count with a capital letter only.
        keep: Names of things and of known people, which stay as they are.
    """

    feminine: frozenset[str]
    partner: Mapping[str, str]
    names: Mapping[str, str]
    keep: tuple[str, ...]


@cache
def gender_words() -> GenderWords:
    """The word pairs that ship with the package."""
    text = files("tda_bias.data").joinpath("twins_gender.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    couples: list[tuple[str, str]] = []
    for pair in data["pairs"]:
        half = len(pair) // 2
        couples += zip(pair[:half], pair[half:], strict=True)
    names = [(masculine, feminine) for masculine, feminine in data["names"]]
    return GenderWords(
        feminine=frozenset(feminine for _, feminine in [*couples, *names]),
        partner={**_both_ways(couples), **data["one_way"]},
        names=_both_ways(names),
        keep=tuple(data["keep"]),
    )


def _both_ways(couples: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {a: b for pair in couples for a, b in (pair, pair[::-1])}


def gender_twins(triples: Sequence[Triple], reader: PronounReader) -> list[Triple]:
    """Each triple about the other gender; what has no gendered word comes back as it was.

    Args:
        triples: Of any category.
        reader: What tells "her kitchen" from "called her".
    """
    texts = swapped([text for triple in triples for text in text_fields(triple)], reader)
    groups = swapped([triple.group for triple in triples], reader)
    return [
        with_texts(triple, group, texts[4 * number : 4 * number + 4])
        for number, (triple, group) in enumerate(zip(triples, groups, strict=True))
    ]


def swapped(texts: Sequence[str], reader: PronounReader) -> list[str]:
    """Texts with each gendered word replaced by its partner; case and punctuation are kept."""
    return [
        replaced(text, _replacements(text, possessives))
        for text, possessives in zip(texts, reader.read(texts), strict=True)
    ]


def _replacements(text: str, possessives: frozenset[int]) -> Iterator[tuple[int, int, str]]:
    words = gender_words()
    kept = [m.span() for name in words.keep for m in re.finditer(rf"\b{re.escape(name)}\b", text)]
    for match in _pattern().finditer(text):
        start, end = match.span()
        if any(first <= start < last for first, last in kept):
            continue
        old = match.group()
        if old[0].isupper() and old.capitalize() in words.names:
            yield start, end, in_case_of(words.names[old.capitalize()], old)
        elif (new := _partner(old.lower(), start in possessives)) is not None:
            yield start, end, in_case_of(new, old)


def _partner(word: str, possessive: bool) -> str | None:
    match word:
        case "him":
            return "her"
        case "hers":
            return "his"
        case "her":
            return "his" if possessive else "him"
        case "his":
            return "her" if possessive else "hers"
        case _:
            return gender_words().partner.get(word.replace(CURLED, "'"))


@cache
def _pattern() -> re.Pattern[str]:
    """Any of the words, whole; the parts of a hyphenated word are words."""
    words = gender_words()
    known = sorted({*words.partner, *words.names, *_PRONOUNS}, key=len, reverse=True)
    alternatives = "|".join(re.escape(word).replace("'", APOSTROPHE) for word in known)
    return re.compile(rf"(?<![\w])(?:{alternatives})(?![\w])", re.IGNORECASE)
