"""Counterpart tokens, between which grammar chooses: she and he, the names themselves.

"She" after a woman's name repeats what the prompt says. Tokens of such words are merged into
classes; the divergence of next-token distributions is then that of the classes and, apart from it,
that within them, which is the echo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tda_bias.models.language_model import LanguageModel
from tda_bias.twins.words import gender_words

# Pronouns and titles; nouns are those that make gender twins.
_WORDS = (
    ("she", "he"),
    ("her", "hers", "his", "him"),
    ("herself", "himself"),
    ("ms", "mrs", "miss", "mr"),
    ("woman's", "man's"),
)


@dataclass(frozen=True)
class EchoClasses:
    """Tokens that are merged, each with the number of its class."""

    token: Int[np.ndarray, " token"]
    of: Int[np.ndarray, " token"]

    def __len__(self) -> int:
        """Number of classes."""
        return int(self.of.max(initial=-1)) + 1


def counterparts() -> list[tuple[str, ...]]:
    """Sets of words between which grammar chooses, in small letters.

    Examples:
        >>> found = counterparts()
        >>> ("she", "he") in found, any({"woman", "man"} <= set(words) for words in found)
        (True, True)
    """
    joined: dict[str, set[str]] = {}
    pairs = [(words[0], word) for words in _WORDS for word in words]
    for one, other in [*pairs, *gender_words().partner.items()]:
        merged = joined.get(one, {one}) | joined.get(other, {other})
        joined |= dict.fromkeys(merged, merged)
    sets = {id(words): words for words in joined.values()}.values()
    order = {word: number for number, word in enumerate(joined)}
    return [tuple(sorted(words, key=order.__getitem__)) for words in sets]


def echo_classes(model: LanguageModel, names: Sequence[str]) -> EchoClasses:
    """Classes of tokens: single tokens of counterpart words, and the first tokens of names.

    Of each spelling (with a space before it, with a capital) the words make a class of their own.
    A token is of one class only: of the names' first. The one for unknown words is of none.
    """
    taken = [i for i in [model.tokenizer.unk_token_id] if i is not None]
    token: list[int] = []
    of: list[int] = []
    for number, members in enumerate(_classes(model, names, taken)):
        taken += members
        token += members
        of += [number] * len(members)
    return EchoClasses(np.array(token, int), np.array(of, int))


def _classes(model: LanguageModel, names: Sequence[str], taken: list[int]) -> Iterator[list[int]]:
    """Tokens of each class, without those that are ``taken`` already."""
    # Of a description, what follows its article.
    called = [name.partition(" ")[2] if name[:1].islower() else name for name in names]
    for space in ("", " "):
        first = [ids[0] for ids in model.token_ids([f"{space}{name}" for name in called]) if ids]
        yield from _of_several(first, taken)
    spelled = [
        [f"{space}{spell(word)}" for word in words]
        for words in counterparts()
        for space in ("", " ")
        for spell in (str.lower, str.capitalize)
    ]
    ids = iter(model.token_ids([text for texts in spelled for text in texts]))
    for texts in spelled:
        own = [next(ids) for _ in texts]
        yield from _of_several([one[0] for one in own if len(one) == 1], taken)


def _of_several(tokens: Sequence[int], taken: list[int]) -> Iterator[list[int]]:
    """The tokens as a class, where there are several that are not taken."""
    own = [token for token in dict.fromkeys(tokens) if token not in taken]
    if len(own) > 1:
        yield own
