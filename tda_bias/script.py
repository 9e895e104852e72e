"""Words and names in any script: what is a letter, where a word ends, what is one line."""

from __future__ import annotations

import regex

Span = tuple[int, int]

# Scripts whose words stand without spaces: every character with its marks counts as a word.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# What words are made of, inside a set of characters: letters, digits, vowel signs and other marks,
# and the joiners of Persian, Hindi and others.
WORD_CHARACTERS = r"\w\p{M}\u200c\u200d"
# A character of a word in a script that has spaces between words.
_SPACED = rf"(?![{_UNSPACED}])[{WORD_CHARACTERS}]"
_WORD = regex.compile(rf"(?:{_SPACED})+(?:['\u2019](?:{_SPACED})+)*|(?!\s)\X")

_PIECE = regex.compile(rf"(?:{_SPACED})+|\X")


def words(text: str) -> list[Span]:
    """Places of the words and the punctuation marks of a text, in characters.

    A joined emoji is one, and so is each character of a script without spaces between words.

    Examples:
        >>> [text[a:b] for text in ("It's late.", "她吃饭") for a, b in words(text)]
        ["It's", 'late', '.', '她', '吃', '饭']
    """
    return [match.span() for match in _WORD.finditer(text)]


def pieces(text: str) -> list[str]:
    """A text in runs of letters, and single marks and spaces, which together are the text.

    Examples:
        >>> pieces("It's late.")
        ['It', "'", 's', ' ', 'late', '.']
    """
    return list(_PIECE.findall(text))


def whole_word(pattern: str) -> str:
    """A pattern of ``regex`` that matches whole words, never a part of one.

    In a script without spaces a word may begin and end anywhere.
    """
    begins = rf"(?:(?<!{_SPACED})|(?=[{_UNSPACED}]))"
    ends = rf"(?:(?!{_SPACED})|(?<=[{_UNSPACED}]))"
    return rf"{begins}(?:{pattern}){ends}"


def is_one_line(text: str) -> bool:
    """Tell whether a text can stand in one line: no line breaks, control or undefined characters.

    Joiners of no width are part of words and of emoji.
    """
    return all(character in "\u200c\u200d" or character.isprintable() for character in text)
