"""Counterpart tokens, between which grammar chooses: she and he, the names themselves.

"She" after a woman's name repeats what the prompt says. Tokens of such words are merged into
classes; the divergence of next-token distributions is then that of the classes and, apart from it,
that within them, which is the echo. Inside a name that has begun, all tokens are one class: how it
goes on is known about its person alone.
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
    """Tokens that are merged, each with the number of its class.

    ``begun`` are beginnings of names of several tokens.
    """

    token: Int[np.ndarray, " token"]
    of: Int[np.ndarray, " token"]
    begun: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        """Number of classes."""
        return int(self.of.max(initial=-1)) + 1

    def inside_name(self, tokens: Sequence[int]) -> list[bool]:
        """Whether each token comes after the beginning of a name.

        Examples:
            >>> nothing = np.array([], int)
            >>> EchoClasses(nothing, nothing, begun=((7,), (7, 8))).inside_name([5, 7, 8, 9])
            [False, False, True, True]
        """
        return [
            any(tuple(tokens[max(0, place - len(own)) : place]) == own for own in self.begun)
            for place in range(len(tokens))
        ]


def counterparts() -> list[tuple[str, ...]]:
    """Sets of words between which grammar chooses, in small letters, in the order of letters.

    Examples:
        >>> found = counterparts()
        >>> ("he", "she") in found, any({"woman", "man"} <= set(words) for words in found)
        (True, True)
    """
    joined: dict[str, set[str]] = {}
    pairs = [(words[0], word) for words in _WORDS for word in words]
    for one, other in [*pairs, *gender_words().partner.items()]:
        merged = joined.get(one, {one}) | joined.get(other, {other})
        joined |= dict.fromkeys(merged, merged)
    # A set has another order in every process, and parts are saved by what they depend on.
    return sorted({tuple(sorted(words)) for words in joined.values()})


def echo_classes(model: LanguageModel, names: Sequence[str]) -> EchoClasses:
    """Classes of tokens: single tokens of counterpart words, and the first tokens of names.

    Of each spelling (with a space before it, with a capital) the words make a class of their own.
    Beginnings of names are those of names that are several tokens, with a space before or without.
    A token is of one class only: of the names' first. The one for unknown words is of none.
    """
    taken = [i for i in [model.tokenizer.unk_token_id] if i is not None]
    token: list[int] = []
    of: list[int] = []
    for number, members in enumerate(_classes(model, names, taken)):
        taken += members
        token += members
        of += [number] * len(members)
    spelled = model.token_ids([f"{space}{name}" for space in ("", " ") for name in _called(names)])
    begun = {tuple(ids[:length]) for ids in spelled for length in range(1, len(ids))}
    return EchoClasses(np.array(token, int), np.array(of, int), tuple(sorted(begun)))


def _called(names: Sequence[str]) -> list[str]:
    """Names as a response repeats them: of a description, what follows its article."""
    return [name.partition(" ")[2] if name[:1].islower() else name for name in names]


def _classes(model: LanguageModel, names: Sequence[str], taken: list[int]) -> Iterator[list[int]]:
    """Tokens of each class, without those that are ``taken`` already."""
    for space in ("", " "):
        first = [
            ids[0] for ids in model.token_ids([f"{space}{name}" for name in _called(names)]) if ids
        ]
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
