"""Words as a tokenizer writes them: which can be read, and their values from those of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from transformers import PreTrainedTokenizerBase

from pvf.config import Forms
from pvf.words import WordClasses
from tda_bias.types import InputError

# A text before the words of interest: their tokens are what it does not account for.
WORD_START = "that "


@dataclass(frozen=True)
class WordTokens:
    """The words that are read, class by class, with the token sequence of each.

    No two sequences are the same. ``skipped`` are words that are not read, with the reason.
    """

    classes: dict[str, tuple[str, ...]]
    tokens: tuple[tuple[int, ...], ...]
    skipped: dict[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are read, class by class."""
        return tuple(chain.from_iterable(self.classes.values()))

    @property
    def continued(self) -> tuple[tuple[str, str], ...]:
        """Pairs of words of which the first is, in tokens, the beginning of the second."""
        every = list(zip(self.words, self.tokens, strict=True))
        return tuple(
            sorted(
                (word, longer)
                for word, own in every
                for longer, others in every
                if len(own) < len(others) and others[: len(own)] == own
            )
        )

    def without(self, skipped: Mapping[str, str], classes: WordClasses) -> WordTokens:
        """The same without words that cannot be read in every template.

        Raises:
            InputError: if a class keeps no word.
        """
        if set(skipped) == set(self.skipped):
            return self
        own = dict(zip(self.words, self.tokens, strict=True))
        kept = {
            label: tuple(word for word in members if word not in skipped)
            for label, members in self.classes.items()
        }
        for label, members in kept.items():
            if not members:
                raise InputError(
                    f"`classes` {classes.name}: no word of {classes.said(label)} can be read in "
                    "every template; some have a space before [Y] and some none: read them in two "
                    "runs"
                )
        tokens = tuple(own[word] for members in kept.values() for word in members)
        return WordTokens(kept, tokens, dict(skipped))

    def log_probs(
        self, values: Float[np.ndarray, "... token"]
    ) -> tuple[Float[np.ndarray, "... word"], Float[np.ndarray, "... word"]]:
        """Words from the log-probabilities of their tokens, word after word.

        Returns:
            Log-probabilities of the words, and the probability, given a word, that what follows
            makes it a longer one.
        """
        log_prob = np.add.reduceat(values, self._starts, axis=-1)
        continued = np.zeros_like(log_prob)
        for word, place in self._following:
            continued[..., word] += np.exp(values[..., place])
        return log_prob, continued

    def token_slopes(
        self,
        values: Float[np.ndarray, "... token"],
        log_prob: Float[np.ndarray, "... word"],
        continued: Float[np.ndarray, "... word"],
    ) -> Float[np.ndarray, "... token"]:
        """Derivatives by the values of ``log_probs``, from those by what it returns."""
        slopes = np.repeat(log_prob, [len(own) for own in self.tokens], axis=-1)
        for word, place in self._following:
            slopes[..., place] += continued[..., word] * np.exp(values[..., place])
        return slopes

    @property
    def _starts(self) -> Int[np.ndarray, " word"]:
        """Index of the first token of each word."""
        return np.cumsum([0, *map(len, self.tokens)])[:-1]

    @property
    def _following(self) -> list[tuple[int, int]]:
        """Of every word that others begin with: the tokens that may come next, each once."""
        number = {own: word for word, own in enumerate(self.tokens)}
        following = {
            own[: n + 1]: (number[own[:n]], int(start) + n)
            for own, start in zip(self.tokens, self._starts, strict=True)
            for n in range(1, len(own))
            if own[:n] in number
        }
        return list(following.values())


def word_tokens(
    tokenizer: PreTrainedTokenizerBase,
    classes: WordClasses,
    *,
    forms: Forms = "word",
    one_token: bool = False,
    before: str = WORD_START,
) -> WordTokens:
    """Token sequences of all words, each counted once; with ``one_token`` those of one token.

    ``forms`` is ``word``: as after the text ``before``, by default at the start of a word; or
    ``bare``: the vocabulary's entry for the letters, which in most tokenizers continues a word.
    Words without one are left out.

    Raises:
        InputError: if a word becomes the unknown token, or a class keeps no word.
    """
    vocabulary = tokenizer.get_vocab() if forms == "bare" else {}
    written: dict[str, tuple[int, ...]] = {
        word: _added_tokens(tokenizer, before, word, classes.printed)
        if forms == "word"
        else ((vocabulary[word],) if word in vocabulary else ())
        for members in classes.classes.values()
        for word in members
    }
    of_classes = Counter(
        own for members in classes.classes.values() for own in {written[word] for word in members}
    )
    read: dict[tuple[int, ...], str] = {}
    kept: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, str] = {}
    for label, members in classes.classes.items():
        for word in members:
            own = written[word]
            if not own:
                skipped[word] = "not in the vocabulary"
            elif one_token and len(own) > 1:
                skipped[word] = "several tokens"
            elif of_classes[own] > 1:  # as after lower-casing: it belongs to neither
                skipped[word] = "same tokens as a word of another class"
            elif own in read:
                skipped[word] = "same tokens as another word of its class"
            else:
                read[own] = word
        kept[label] = tuple(word for word in members if word not in skipped)
        if not kept[label]:
            some = f"{', '.join(members[:3])}: " if classes.printed else ""
            raise InputError(
                f"`classes` {classes.name}: no word of {classes.said(label)} can be read with this "
                f"tokenizer and these settings ({some}{skipped[members[0]]})"
            )
    return WordTokens(kept, tuple(read), skipped)


def _added_tokens(tokenizer: Any, before: str, word: str, printed: bool) -> tuple[int, ...]:
    """The tokens that a word, which a message may name if ``printed``, adds to a text before it.

    Where a vocabulary has the end of that text and the word as one token, the word is written as
    after a line break: the text ends where the slot begins, whatever follows.
    """
    for text in (before, *(["\n"] if before != WORD_START else [])):
        start = tokenizer(text.rstrip(" "), add_special_tokens=False)["input_ids"]
        ids = tokenizer(f"{text}{word}", add_special_tokens=False)["input_ids"]
        own = ids[len(start) :]
        unknown = tokenizer.unk_token_id is not None and tokenizer.unk_token_id in own
        if ids[: len(start)] == start and own and not unknown:
            return tuple(own)
    said = repr(word) if printed else "a word"
    raise InputError(
        f"`classes`: the tokenizer cannot write {said}; leave the word out or use another model"
    )
