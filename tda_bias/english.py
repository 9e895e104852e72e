"""Articles and plurals of English nouns, for texts that a model reads."""

from __future__ import annotations

import re
from functools import cache

# The article goes by the sound of what follows. The rules are those of Damian Conway's "An
# algorithmic approach to English pluralization" (1998).
_CONSONANT_THAT_SOUNDS_LIKE_A_VOWEL = re.compile(
    r"hour(?!i)|heir|honest|hono[ur]|mpeg"
    r"|[fhlmnrsx](?:$|[.-]|-?th)"  # the letter's name: an F, an x-ray, an nth
    r"|y(?:b[lor]|cl[ea]|fere|gg|p[ios]|rou|tt)",  # an ytterbium lamp
    re.IGNORECASE,
)
_VOWEL_THAT_SOUNDS_LIKE_A_CONSONANT = re.compile(
    r"e(?!uler)[uw]|onc?e\b|onetime\b"  # a European, a one-way street
    r"|us(?!her)|ukr|unabomber|unanimous|uni(?:[^nmd]|mo)|u[bcfghjkqrst][aeiou]"  # a user, a union
    r"|(?-i:U[NK])|u(?:$|[.-]|-?th)",  # a UN envoy, a U-turn
    re.IGNORECASE,
)
# Capitals that are read as letters, an MBA, and not as a word, a NASA engineer.
_LETTERS = re.compile(
    r"(?!FJO|[HLMNS]Y.|RY[EO]|SQU"
    r"|(?:F[LR]?|[HL]|MN?|N|RH?|S[CHKLMNPTVW]?|X(?:YL)?)[AEIOU])[FHLMNRSX][A-Z]"
)

# Endings of a noun and of its plural; the first that fits counts.
_PLURALS = tuple(
    (re.compile(f"(?:{ending})$", re.IGNORECASE), plural)
    for ending, plural in (
        (r"(?<=people)|(?<=police)|(?<=folk)|(?<=ese)|(?<=\bswiss)", ""),
        (r"(?<=\bhuman)|(?<=shaman)|(?<=german)|(?<=\broman)|(?<=norman)|(?<=ottoman)", "s"),
        (r"(?<=m)an", "en"),
        (r"(?<=p)erson", "eople"),
        (r"(?<=child)", "ren"),
        (r"(?<=thie)f|(?<=wi)fe", "ves"),
        (r"(?<=hero)|(?<=s|x|z)|(?<=[cs]h)", "es"),
        (r"(?<=[^aeiou])y|(?<=qu)y", "ies"),
        (r"", "s"),
    )
)
# What follows the noun that takes the plural: chief of staff, editor-in-chief, passer-by.
_AFTER_THE_NOUN = re.compile(r"(?<=\w)(?:[ -](?:of|in|at|to)[ -]|-by$| general$).*", re.IGNORECASE)


@cache
def article(words: str) -> str:
    """``a`` or ``an``, by the sound of what follows: an 80-year-old, a European, an hour."""
    first = words.split()[0]
    if number := re.match(r"[0-9]+", first):
        return "an" if _begins_with_eight_or_eleven(number.group()) else "a"
    if first[0].lower() in "aeiou":
        return "a" if _VOWEL_THAT_SOUNDS_LIKE_A_CONSONANT.match(first) else "an"
    by_sound = _CONSONANT_THAT_SOUNDS_LIKE_A_VOWEL.match(first) or _LETTERS.match(first)
    return "an" if by_sound else "a"


def _begins_with_eight_or_eleven(digits: str) -> bool:
    """Whether a number is said with a vowel first: 8, 11, 18, 80, 800, 11,000, 8 million."""
    digits = digits.lstrip("0") or "0"
    return digits[0] == "8" or (len(digits) % 3 == 2 and digits[:2] in ("11", "18"))


@cache
def plural(noun: str) -> str:
    """The plural of a noun for people, of one word or several.

    Examples:
        >>> plural("nurse"), plural("delivery man"), plural("secretary"), plural("salesperson")
        ('nurses', 'delivery men', 'secretaries', 'salespeople')
        >>> plural("chief of staff")
        'chiefs of staff'
    """
    if after := _AFTER_THE_NOUN.search(noun):
        return plural(noun[: after.start()]) + after.group()
    return next(
        ending.sub(changed, noun, count=1) for ending, changed in _PLURALS if ending.search(noun)
    )
