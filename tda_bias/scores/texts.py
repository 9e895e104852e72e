"""Texts that stand against each other, their tokens, and which of them are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from jaxtyping import Int

from tda_bias.models.language_model import common_prefix
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import Request, shared_start
from tda_bias.models.token_trees import TokenTree
from tda_bias.pairs.pair import Scored, differing_spans
from tda_bias.script import Span, words
from tda_bias.show.alike import are_alike
from tda_bias.types import InputError, Triple

# Number of a triple's context among its parts, after the continuations in the order of ``ROLES``.
CONTEXT = 3


@dataclass(frozen=True)
class Contrast:
    """Two or more full texts that stand against each other.

    What they begin with, the context, is not scored; which words are, see ``tda_bias.pairs.Pair``.
    """

    texts: tuple[str, ...]
    context: str | None = None
    scored: Scored = "whole"
    source: str = ""

    @classmethod
    def of(cls, triple: Triple) -> Contrast:
        """The continuations of a triple, two where it has no unrelated text."""
        texts = tuple(triple.texts()[: 2 if triple.is_pair else 3])
        return cls(texts, triple.context, "whole", triple.source)


@dataclass(frozen=True)
class SplitTexts:
    """The token ids of a contrast's texts, without special tokens.

    Attributes:
        ids: Per text.
        start: How many tokens of each are the context's.
        scored: Per text the places that are scored.
        word: Per text the word that each token belongs to, for masked models; None where the
            tokenizer does not tell.
    """

    ids: tuple[list[int], ...]
    start: int
    scored: tuple[Int[np.ndarray, " place"], ...]
    word: tuple[list[int], ...] | None = None

    def first(self, n: int) -> SplitTexts:
        """The first texts alone."""
        return SplitTexts(self.ids[:n], self.start, self.scored[:n])

    def told_apart(self) -> SplitTexts:
        """The same, of which nothing is scored where two texts are the same tokens."""
        if not are_alike(self.ids):
            return self
        return replace(self, scored=tuple(np.empty(0, dtype=np.int64) for _ in self.ids))

    def request(self, before: str = "", *, context_from: int | None = None) -> Request:
        """Every scored token, text by text.

        ``before`` is the context as a text. ``context_from`` reads the context's tokens from this
        one on too, before the others.
        """
        read: list[tuple[int, Any]] = list(enumerate(self.scored))
        if context_from is not None:
            read.insert(0, (0, range(context_from, self.start)))
        return Request(self.ids, tuple(read), self.start, before)

    def parts(self, tree: TokenTree) -> Int[np.ndarray, " reading"]:
        """Owner of each reading of the ``request``: a text's number, or ``CONTEXT``."""
        n_read = list(map(len, self.scored))
        return np.repeat(
            [CONTEXT, *range(len(self.ids))], [len(tree.read_node) - sum(n_read), *n_read]
        )


def alike(model: LanguageModel, contrasts: Sequence[Contrast]) -> int:
    """How many contrasts have two texts that the tokenizer writes alike; such are not scored."""
    ids = iter(model.token_ids([text for contrast in contrasts for text in contrast.texts]))
    return sum(are_alike([next(ids) for _ in contrast.texts]) for contrast in contrasts)


def split_triples(model: LanguageModel, triples: Sequence[Triple]) -> list[SplitTexts]:
    """Token ids of triples.

    Where a token of any text covers context and continuation, the context of all ends before it.
    """
    return tokenize(model, [Contrast.of(triple) for triple in triples])


def tokenize(model: LanguageModel, contrasts: Sequence[Contrast]) -> list[SplitTexts]:
    """Token ids of texts, and which of them are scored.

    Raises:
        InputError: if the tokenizer makes no token of a context or a continuation, or cannot tell
            where in the text its tokens stand although that is needed.
    """
    if not contrasts:
        return []
    tokenizer = model.tokenizer
    texts = [text for contrast in contrasts for text in contrast.texts]
    aligned = bool(tokenizer.is_fast)
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=aligned)
    contexts = [(contrast.context or "").strip() for contrast in contrasts]
    context_ids = tokenizer(contexts, add_special_tokens=False)["input_ids"]
    split, end = [], 0
    for contrast, before in zip(contrasts, context_ids, strict=True):
        own = range(end, end + len(contrast.texts))
        end = own.stop
        ids = tuple(list(encoded["input_ids"][i]) for i in own)
        if contrast.context is not None:
            start = shared_start(model, before, ids, where=contrast.source)
        elif all(ids):
            start = 0
        else:
            raise InputError(f"{contrast.source}: the tokenizer makes no token of a text")
        offsets = [encoded["offset_mapping"][i] for i in own] if aligned else None
        word = None
        if offsets is not None and model.kind == "masked":
            word = tuple(
                _words(encoded.word_ids(i), places, text)
                for i, places, text in zip(own, offsets, contrast.texts, strict=True)
            )
        scored = _scored(model, contrast, ids, start, offsets)
        split.append(SplitTexts(ids, start, scored, word))
    return split


def _scored(
    model: LanguageModel,
    contrast: Contrast,
    ids: tuple[list[int], ...],
    start: int,
    offsets: Sequence[Sequence[Span]] | None,
) -> tuple[Int[np.ndarray, " place"], ...]:
    """The places of each text that are scored."""
    if contrast.scored == "whole":
        return tuple(np.arange(start, len(text)) for text in ids)
    if contrast.scored == "shared":
        # Tokens that two texts have in common, in order: CrowS-Pairs' unmodified tokens.
        more, less = ids
        blocks = SequenceMatcher(None, more, less).get_matching_blocks()
        return tuple(
            np.concatenate([np.arange(block[side], block[side] + block.size) for block in blocks])
            for side in (0, 1)
        )
    if offsets is None:
        raise InputError(
            f"`model` {model.name}: its tokenizer does not tell where in a text its tokens stand, "
            "so differing words cannot be scored alone; score whole texts"
        )
    return _differing_places(ids, offsets, differing_spans(contrast.texts))


def _differing_places(
    ids: tuple[list[int], ...], offsets: Sequence[Sequence[Span]], spans: Sequence[Span]
) -> tuple[Int[np.ndarray, " place"], ...]:
    """The tokens that hold characters of each text's range, none where it is empty.

    Where a token of one text holds characters around its range too, the others' tokens there are
    taken as well: all texts are scored from the same character, and to the same.
    """
    # A token begins at the space before its word: an empty range must not select the next one.
    inside = [
        [i for i, (a, b) in enumerate(places) if first < stop and a < stop and b > first]
        for places, (first, stop) in zip(offsets, spans, strict=True)
    ]
    compared = [(text, own) for text, own in zip(ids, inside, strict=True) if own]
    if not compared:
        return tuple(np.empty(0, dtype=np.int64) for _ in ids)
    first = min(own[0] for _, own in compared)
    left = min(len(text) - 1 - own[-1] for text, own in compared)
    before = min(first, common_prefix(*(text for text, _ in compared)))
    after = min(left, common_prefix(*(text[::-1] for text, _ in compared)))
    return tuple(
        np.arange(before, len(text) - after) if own else np.empty(0, dtype=np.int64)
        for text, own in zip(ids, inside, strict=True)
    )


def _words(numbers: Sequence[int | None], offsets: Sequence[Span], text: str) -> list[int]:
    """The word of each token; a tokenizer that knows one word only gets them from white space."""
    known = {number for number in numbers if number is not None}
    if len(known) > 1 or len(text.split()) < 2:
        return [-1 - i if number is None else number for i, number in enumerate(numbers)]
    ends = np.array([stop for _, stop in words(text)])
    return [int(np.searchsorted(ends, max(stop, 1))) for _, stop in offsets]
