"""Words put in the place of words, and the other gender: every gendered word by its partner.

"her" before what she has becomes "his" ("her kitchen"), else "him" ("called her"); "his" before
what he has becomes "her" ("his hat"), else "hers" ("the hat is his"). The words around tell which;
on StereoSet's gender triples they tell the same as spaCy's tagger. Forms of both genders in one
word ("s/he") and fixed phrases ("bachelor's degree") stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from tda_bias.english import article
from tda_bias.twins.twins import text_fields, with_texts
from tda_bias.types import Triple

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
        before, old, behind = text[done:start], text[start:end], end
        if before_it := _ARTICLE_AT_END.search(before):
            # In a text in capitals a word would be taken for letters: "an" MBA.
            heard = article(new.lower() if text.isupper() else new)
            right = in_case_of(heard, before_it.group(1))
            before = before[: before_it.start()] + right + before_it.group(2)
        apostrophe = ""
        ended, ends = (word.lower().endswith("s") for word in (old, new))
        if ended and not ends and _BARE_APOSTROPHE.match(text, end):
            apostrophe, behind = text[end] + ("S" if new.isupper() else "s"), end + 1
        elif ends and _PLURAL_WITHOUT_S.search(old) and _APOSTROPHE_S.match(text, end):
            apostrophe, behind = text[end], end + 2
        pieces += [before, new, apostrophe]
        done = behind
    return "".join([*pieces, text[done:]])


# -- the other gender ------------------------------------------------------------------------------

# Both genders in one word: "s/he", "(s)he", "(wo)man", "wo/men", "fe/male".
_OF_BOTH = r"\b(?:s|wo|fe)/(?:he|m[ae]n|males?)\b|\((?:s|wo|fe)\)(?:he|m[ae]n|males?)\b"
_TITLES_AS_LETTERS = ("MR", "MRS", "MS")
# What becomes of a pronoun, and of one that stands before what somebody has.
_PRONOUNS = {
    "her": ("him", "his"),
    "his": ("hers", "her"),
    "him": ("her", "her"),
    "hers": ("his", "his"),
}


@dataclass(frozen=True)
class GenderWords:
    """Replacement of each gendered word.

    Attributes:
        feminine: The words for women, first names included.
        partner: From a word in lower case to the word of the other gender.
        names: The same for first names; they count with a capital letter only.
        keep: Names of things and of known people, and fixed phrases, which stay as they are.
        pattern: Any of the words and pronouns, whole; parts of a hyphenated word are words.
    """

    feminine: frozenset[str]
    partner: Mapping[str, str]
    names: Mapping[str, str]
    keep: re.Pattern[str]
    pattern: re.Pattern[str]


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
    partner, named = (
        {a: b for pair in of for a, b in (pair, pair[::-1])} for of in (couples, names)
    )
    partner |= data["one_way"]
    known = sorted({*partner, *named, *_PRONOUNS}, key=len, reverse=True)
    alternatives = "|".join(re.escape(word).replace("'", APOSTROPHE) for word in known)
    return GenderWords(
        feminine=frozenset(feminine for _, feminine in [*couples, *names]),
        partner=partner,
        names=named,
        keep=re.compile(f"{_any_of(data['keep'])}|(?i:{_any_of(data['phrases'])}|{_OF_BOTH})"),
        pattern=re.compile(rf"(?<![\w])(?:{alternatives})(?![\w])", re.IGNORECASE),
    )


def _any_of(phrases: Iterable[str]) -> str:
    """A pattern of any of some phrases, the longest first."""
    escaped = [re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)]
    return "|".join(rf"\b{phrase}\b" for phrase in escaped).replace("'", APOSTROPHE)


def gender_twin(triple: Triple) -> Triple:
    """The triple about the other gender; without a gendered word it comes back as it was."""
    return with_texts(triple, swapped(triple.group), map(swapped, text_fields(triple)))


def swapped(text: str) -> str:
    """The text with each gendered word replaced by its partner; case and punctuation are kept."""
    words, possessives = gender_words(), possessive_places(text)
    kept = [match.span() for match in words.keep.finditer(text)]
    changes = []
    for match in words.pattern.finditer(text):
        start, end = match.span()
        old = match.group()
        if any(first <= start < last for first, last in kept) or _are_letters(text, start, old):
            continue
        if old[0].isupper() and old.capitalize() in words.names:
            new = words.names[old.capitalize()]
        elif old.lower() in _PRONOUNS:
            new = _PRONOUNS[old.lower()][start in possessives]
        else:
            new = words.partner.get(old.lower().replace(CURLED, "'"), "")
        if new:
            changes.append((start, end, in_case_of(new, old)))
    return replaced(text, changes)


def _are_letters(text: str, start: int, word: str) -> bool:
    """Tell whether a title in capitals is an acronym: "MS is a disease", but "MS SMITH IS HERE"."""
    if word not in _TITLES_AS_LETTERS or text.isupper():
        return False
    return re.match(r"\.?\s+[A-Z]", text[start + len(word) :]) is None


# -- "her" and "his" -------------------------------------------------------------------------------

_PRONOUN = re.compile(r"\b(?:her|his)\b", re.IGNORECASE)
# The same of the other gender, joined to a pronoun: "his/her dog", "his and her friends".
_JOINED = re.compile(r"(\s*/\s*|\s+(?:and|or|&)\s+)(?:her|his)\b", re.IGNORECASE)
# Behind it "her and his friends" begins; else "her" may stand alone: "we met her and his friends".
_CLAUSE_BEGINS = re.compile(r"(?:^|[.!?;:,]|\b(?:that|if|when|because|and|but))[\s\"\u201c]*$")
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
    places: list[int] = []
    for pronoun in reversed(list(_PRONOUN.finditer(text))):
        if joined := _JOINED.match(text, pronoun.end()):
            both = "/" in joined.group(1) or pronoun.group().lower() == "his"
            begins = both or _CLAUSE_BEGINS.search(text[: pronoun.start()].lower())
            if begins and places and places[-1] < joined.end():
                places.append(pronoun.start())
            continue
        following = re.match(r"\s+[\"\u201c'\u2018(]?(\w+)(?:\s+(\w+))?", text[pronoun.end() :])
        if following is None:  # the end, a comma, a stop
            continue
        word, second = following.group(1).lower(), (following.group(2) or "and").lower()
        adverb = word.endswith("ly") and word not in _NO_ADVERBS and second in _NOT_NOMINAL
        # What she does or is: "watched her cook".
        caused = _CAUSATIVE.search(text[: pronoun.start()].rstrip()) is not None
        does_or_is = caused and word in _DONE_OR_BEEN and pronoun.group().lower() == "her"
        if not (adverb or word in _NOT_NOMINAL or does_or_is):
            places.append(pronoun.start())
    return frozenset(places)
