"""Counterpart tokens, between which grammar chooses: she and he, the names themselves.

"She" after a woman's name repeats what the prompt says. Tokens of such words are merged into
classes; the divergence of next-token distributions is then that of the classes and, apart from it,
that within them, which is the echo. After the beginning of a name, whether and how the name goes on
is echo too, for that is known about its person alone; what else may follow is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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

    ``begun`` has beginnings of the people's names, each with the tokens by which one goes on.
    """

    token: Int[np.ndarray, " token"]
    of: Int[np.ndarray, " token"]
    begun: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of classes."""
        return int(self.of.max(initial=-1)) + 1

    def without(self, tokens: Sequence[int]) -> EchoClasses:
        """The same classes without some of their tokens."""
        kept = ~np.isin(self.token, tokens)
        return replace(self, token=self.token[kept], of=self.of[kept])

    def names_go_on(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """At the place of each token, those by which a name that has begun before it goes on.

        Examples:
            >>> nothing = np.array([], int)
            >>> classes = EchoClasses(nothing, nothing, begun={(7,): (8,), (7, 8): (9,)})
            >>> classes.names_go_on([5, 7, 8, 4])
            [(), (), (8,), (9,)]
        """
        longest = max(map(len, self.begun), default=0)
        found = []
        for place in range(len(tokens)):
            ends = [tuple(tokens[first:place]) for first in range(max(0, place - longest), place)]
            next_ones = {token for end in ends for token in self.begun.get(end, ())}
            found.append(tuple(sorted(next_ones)))
        return found


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

    Of each spelling (with a space before it, with a capital) the words make a class of their own;
    so do the articles of descriptions that differ in them. A token is of one class only: of
    pronouns, of which "He" is one, before names that begin with it. The one for unknown words is of
    none.

    Of a description ("a 30-year-old man") the tokens are those with its article, and those from
    behind it. Digits alone are no beginning of one and in no class: "20 years" is no description.
    """
    taken = [i for i in [model.tokenizer.unk_token_id] if i is not None]
    token: list[int] = []
    of: list[int] = []
    for number, members in enumerate(_classes(model, names, taken)):
        taken += members
        token += members
        of += [number] * len(members)
    return EchoClasses(np.array(token, int), np.array(of, int), _begun(model, names))


def _begun(model: LanguageModel, names: Sequence[str]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Beginnings of names of several tokens, with the tokens that follow in any of the names."""
    called = dict.fromkeys([*_called(names), *names, *(n[:1].upper() + n[1:] for n in names)])
    found: dict[tuple[int, ...], set[int]] = {}
    for ids in model.token_ids([f"{space}{name}" for space in ("", " ") for name in called]):
        for length in range(1, len(ids)):
            if not (_is_number(model, ids[:length]) or _is_number(model, ids[: length + 1])):
                found.setdefault(tuple(ids[:length]), set()).add(ids[length])
    return {begun: tuple(sorted(found[begun])) for begun in sorted(found)}


def _is_number(model: LanguageModel, ids: Sequence[int]) -> bool:
    """Tell whether tokens are digits and nothing else, but for a space before them."""
    return str(model.tokenizer.decode(list(ids))).strip().isdigit()


def _called(names: Sequence[str]) -> list[str]:
    """Names as a response repeats them: of a description, what follows its article."""
    return [(name[:1].islower() and name.partition(" ")[2]) or name for name in names]


def _articles(names: Sequence[str]) -> tuple[str, ...]:
    """The first words of descriptions, each once."""
    described = [name for name in names if name[:1].islower() and " " in name]
    return tuple(sorted({name.partition(" ")[0] for name in described}))


def _classes(model: LanguageModel, names: Sequence[str], taken: list[int]) -> Iterator[list[int]]:
    """Tokens of each class, without those that are ``taken`` already."""
    spelled = [
        [f"{space}{spell(word)}" for word in words]
        for words in [*counterparts(), _articles(names)]
        for space in ("", " ")
        for spell in (str.lower, str.capitalize)
    ]
    ids = iter(model.token_ids([text for texts in spelled for text in texts]))
    for texts in spelled:
        own = [next(ids) for _ in texts]
        yield from _of_several([one[0] for one in own if len(one) == 1], taken)
    for space in ("", " "):
        every = model.token_ids([f"{space}{name}" for name in _called(names)])
        begin = [own for own in every if own and not _is_number(model, own[:1])]
        first = [own[0] for own in begin if not _is_number(model, own[:2])]
        yield from _of_several(first, taken)


def _of_several(tokens: Sequence[int], taken: list[int]) -> Iterator[list[int]]:
    """The tokens as a class, where there are several that are not taken."""
    own = [token for token in dict.fromkeys(tokens) if token not in taken]
    if len(own) > 1:
        yield own
