"""WinoBias (Zhao et al. 2018): pronouns that agree with an occupation's stereotype, or do not.

``more`` is the sentence whose pronoun goes with the stereotype (pro), ``less`` the other one
(anti). In type 1 only knowledge of the world says whom the pronoun means; in type 2 syntax does.
The group is the occupation that the pronoun means.
"""

from __future__ import annotations

import re

from tda_bias.pairs.pair import Pair, checked, words
from tda_bias.types import InputError

LICENCE = "MIT, (c) 2020 Natural Language Processing @UCLA"
TYPES = ("type1", "type2")
PRONOUNS = {
    "he": "male", "him": "male", "his": "male", "himself": "male",
    "she": "female", "her": "female", "hers": "female", "herself": "female",
}  # fmt: skip
_BRACKETED = re.compile(r"\[([^\]]*)\]")
_LINE = re.compile(r"^\s*(\d+)\s+(.*\S)\s*$")


def from_lines(pro: str, anti: str, *, type: str, where: str) -> list[Pair]:
    """Pairs of two files of the official form, line by line.

    Raises:
        InputError: if the files have other numbers of lines, or a line is of another form.
    """
    first, second = ([line for line in text.splitlines() if line.strip()] for text in (pro, anti))
    if len(first) != len(second):
        raise InputError(
            f"{where}: {len(first)} pro-stereotypical lines and {len(second)} anti-stereotypical "
            f"ones of {type}; they must be the same sentences"
        )
    return [
        _pair(line, other, type, f"{where} {type} line {number}")
        for number, (line, other) in enumerate(zip(first, second, strict=True), start=1)
    ]


def is_uneven(pair: Pair) -> bool:
    """Tell whether the two sentences differ in more than pronouns: a slip of the source."""
    more, less = ([text[a:b].lower() for a, b in words(text)] for text in (pair.more, pair.less))
    if len(more) != len(less):
        return True
    return any(a != b and not {a, b} <= set(PRONOUNS) for a, b in zip(more, less, strict=True))


def gender_of_more(pair: Pair) -> str:
    """The gender of the pronoun that ``more`` has in place of the other: ``male`` or ``female``."""
    more, less = ([text[a:b].lower() for a, b in words(text)] for text in (pair.more, pair.less))
    swapped = [PRONOUNS[word] for word in more if word in PRONOUNS and word not in less]
    return swapped[0] if swapped else "unclear"


def _pair(pro: str, anti: str, type: str, where: str) -> Pair:
    number, more = _text(pro, where)
    _, less = _text(anti, where)
    mentions = [mention.strip() for mention in _BRACKETED.findall(pro)]
    named = [mention for mention in mentions if mention.lower() not in PRONOUNS]
    if not named:
        raise InputError(f"{where}: no occupation stands in brackets")
    occupation = re.sub(r"^(the|a|an)\s+", "", named[0].lower())
    return checked(
        Pair(
            id=f"{type}-{number}",
            set="winobias",
            group=occupation,
            more=more,
            less=less,
            type=type,
            source=where,
        )
    )


def _text(line: str, where: str) -> tuple[str, str]:
    """Number and sentence of a line, without the brackets."""
    match = _LINE.match(line)
    if match is None:
        raise InputError(f"{where}: expected a number and a sentence, got {line[:60]!r}")
    return match[1], re.sub(r"[\[\]]", "", match[2])
