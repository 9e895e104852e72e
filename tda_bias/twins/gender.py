"""The other gender: every gendered word of a triple by its partner.

"her" before what she has becomes "his" ("her kitchen"), else "him" ("called her"); "his" before
what he has becomes "her" ("his hat"), else "hers" ("the hat is his"). The words around tell which;
on StereoSet's gender triples they tell the same as spaCy's tagger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from tda_bias.twins.twins import text_fields, with_texts
from tda_bias.twins.words import APOSTROPHE, CURLED, in_case_of, replaced, word_set
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


def gender_twin(triple: Triple) -> Triple:
    """The triple about the other gender; without a gendered word it comes back as it was."""
    return with_texts(triple, swapped(triple.group), map(swapped, text_fields(triple)))


def swapped(text: str) -> str:
    """The text with each gendered word replaced by its partner; case and punctuation are kept."""
    return replaced(text, _replacements(text))


def _replacements(text: str) -> Iterator[tuple[int, int, str]]:
    words, possessives = gender_words(), possessive_places(text)
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


# -- "her" and "his" -------------------------------------------------------------------------------

_PRONOUN = re.compile(r"\b(?:her|his)\b", re.IGNORECASE)
# Words that cannot stand first in the name of what somebody has.
_NOT_NOMINAL = word_set(
    "a an the this that these those some any no every each all both another "
    "i you he she it we they me him her us them my your his its our their mine yours hers "
    "and or but nor so if because although though while when whenever where until unless since "
    "than then as like about above across after against along among around at before behind below "
    "beneath beside besides between beyond by despite down during except for from in inside into "
    "near of off on onto out outside over past through throughout to toward towards under up upon "
    "with within without via who whom whose which what why how whether "
    "is was are were be been being am isn wasn has had have hasn hadn do does did doesn didn "
    "can could will would won shall should may might must not never always often sometimes again "
    "too also either anymore anyway away back here there now today tomorrow yesterday tonight "
    "later soon once twice yet instead together alone well badly less very really just even almost "
    "quite rather much anything everything nothing something anywhere everywhere nowhere"
)
_NO_ADVERBS = word_set(
    "ally assembly belly bully butterfly costly curly daily deadly early elderly family fly "
    "friendly holy jelly likely lively lonely lovely monthly oily only reply silly supply ugly "
    "weekly"
)
# After these a word that follows "her" may be what she does or is: "help her load the truck".
_CAUSATIVE = re.compile(
    r"\b(?:help|let|mak|made|saw|see|watch|hear|heard|ha[sd]|have)(?:s|e|es|ed|ing|ping|ped|ting)?$",
    re.IGNORECASE,
)
_DONE_OR_BEEN = word_set(
    "act appear ask be become believe carry choose clean climb come cook cry dance decide do drive "
    "eat feel fight find finish get give go grow keep know laugh learn leave lift live load look "
    "lose make move open pay play read relax relocate rest run say seem sell shine sing sit sleep "
    "smile speak stand stay study take talk tell think travel try understand wait walk want wear "
    "weep win work write "
    "afraid angry bored famous happy mad nervous proud sad sick smart special strong tired upset "
    "unhappy weak welcome"
)


def possessive_places(text: str) -> frozenset[int]:
    """Places of "her" and "his" as possessives, by the words around them."""
    return frozenset(m.start() for m in _PRONOUN.finditer(text) if _before_what_is_had(text, m))


def _before_what_is_had(text: str, pronoun: re.Match[str]) -> bool:
    following = re.match(r"\s+[\"\u201c'\u2018(]?(\w+)(?:\s+(\w+))?", text[pronoun.end() :])
    if following is None:  # the end, a comma, a stop
        return False
    word, second = following.group(1).lower(), (following.group(2) or "and").lower()
    adverb = word.endswith("ly") and word not in _NO_ADVERBS and second in _NOT_NOMINAL
    return not (adverb or word in _NOT_NOMINAL or _does_or_is(text, pronoun.start(), word))


def _does_or_is(text: str, start: int, following: str) -> bool:
    """Tell whether the word after "her" is what she does or is: "watched her cook"."""
    caused = _CAUSATIVE.search(text[:start].rstrip()) is not None
    return caused and following in _DONE_OR_BEEN and text[start : start + 3].lower() == "her"
