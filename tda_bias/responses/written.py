"""Tokens of responses as text: the pieces of a response, and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.language_model import LanguageModel
from tda_bias.responses.echo import EchoClasses

# What a part of a character is decoded as.
_UNFINISHED = "\ufffd"
# What stands for the space before a word in vocabularies.
_SPACES = ("Ġ", "▁")


@dataclass(frozen=True)
class Words:
    """How often words are expected in a response.

    Attributes:
        words: In small letters; tokens that begin a word, so a long word may be cut.
        echo: Whether a prompt counts one of a word's tokens among counterparts.
        expected: About each person of each prompt.
    """

    words: list[str]
    echo: list[bool]
    expected: Float[np.ndarray, "prompt person word"]


def pieces_of(model: LanguageModel, tokens: Sequence[int]) -> list[str]:
    """The text of every token, which together are the response; special ones as spelled.

    A character of several tokens, as an emoji, is the text of the last of them.
    """
    special, pieces = set(model.tokenizer.all_special_ids), list[str]()
    first = told = 0  # The tokens whose text came last, and the first one without a text.

    def text_of(end: int) -> str:
        return str(model.tokenizer.decode(list(tokens[first:end]), skip_special_tokens=False))

    for end in range(1, len(tokens) + 1):
        text = text_of(end)
        goes_on = end < len(tokens) and tokens[end] not in special
        if goes_on and text.endswith(_UNFINISHED):
            pieces.append("")
            continue
        pieces.append(text[len(text_of(told)) if told > first else 0 :])
        first, told = told, end
    return pieces


def words_of(
    model: LanguageModel,
    kept: Sequence[tuple[Int[np.ndarray, " token"], Float[np.ndarray, "person token"]]],
    classes: Sequence[EchoClasses],
) -> Words:
    """Words from tokens that begin one, with small and capital letters taken together.

    Args:
        model: Whose tokens they are.
        kept: Of each prompt, tokens and how often each is expected about each person.
        classes: Of each prompt, the counterpart tokens.
    """
    used = np.unique(np.concatenate([token for token, _ in kept]))
    text = _words_by_token(model, used.tolist())
    words = sorted(set(text.values()))
    column = {word: number for number, word in enumerate(words)}
    expected = np.zeros((len(kept), kept[0][1].shape[0], len(words)))
    for number, (tokens, values) in enumerate(kept):
        for place, token in enumerate(tokens.tolist()):
            if token in text:
                expected[number, :, column[text[token]]] += values[:, place]
    counterpart = {int(token) for of_prompt in classes for token in of_prompt.token}
    echo = {text[token] for token in counterpart if token in text}
    return Words(words, [word in echo for word in words], expected)


def _words_by_token(model: LanguageModel, tokens: Sequence[int]) -> dict[int, str]:
    """The word that each token begins; tokens that begin none are not there.

    In a vocabulary that marks no spaces every token is a word.
    """
    tokenizer = model.tokenizer
    special = set(tokenizer.all_special_ids)
    marked = any(str(token).startswith(_SPACES) for token in tokenizer.get_vocab())
    found = {}
    for token in tokens:
        spelled = str(tokenizer.convert_ids_to_tokens(token))
        word = str(tokenizer.decode([token])).strip().casefold()
        if token in special or not word.isalpha() or (marked and not spelled.startswith(_SPACES)):
            continue
        found[token] = word
    return found
