"""Log-probabilities of chosen tokens of texts that stand against each other.

Causal models read the texts from left to right, as one tree where they share a beginning. Masked
models get each token masked in turn (pseudo-log-likelihood, Salazar et al. 2020), and beside it the
variant that also masks the later pieces of the same word: otherwise a word of several pieces gives
itself away (Kauf & Ivanova 2023). Encoder-decoders fill a gap behind the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.batching import common_prefix, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import MaskedRows, Request, as_trees, mask_token, require_kind
from tda_bias.models.scoring import Scorer
from tda_bias.pairs.pair import Scored, Span, differing_spans, words
from tda_bias.progress import Progress
from tda_bias.types import InputError

Reading = Literal["log_prob", "pll", "pll_within_word"]
READINGS: tuple[Reading, ...] = ("log_prob", "pll", "pll_within_word")
Start = Literal["tokenizer", "bos"]


@dataclass(frozen=True)
class Contrast:
    """Texts that stand against each other.

    Attributes:
        texts: The full texts, two or more.
        context: What all of them begin with, if anything; it is not scored.
        scored: Which of their words are; see ``tda_bias.pairs.Pair``.
        source: Where they stand, for messages.
    """

    texts: tuple[str, ...]
    context: str | None = None
    scored: Scored = "whole"
    source: str = ""


@dataclass(frozen=True)
class ContrastTokens:
    """The token ids of a contrast's texts, without special tokens.

    Attributes:
        ids: Per text.
        context: How many tokens all texts share with the context.
        scored: Per text the places that are scored.
        word: Per text the word that each token belongs to; None where the tokenizer does not tell.
    """

    ids: tuple[list[int], ...]
    context: int
    scored: tuple[Int[np.ndarray, " place"], ...]
    word: tuple[list[int], ...] | None

    def texts(self) -> Iterator[tuple[list[int], Int[np.ndarray, " place"]]]:
        """Each text's token ids, and the places that are scored."""
        return zip(self.ids, self.scored, strict=True)


# Per text the log-probabilities of its scored tokens.
TokenScores = tuple[Float[np.ndarray, " token"], ...]


def tokenize(model: LanguageModel, contrasts: Sequence[Contrast]) -> list[ContrastTokens]:
    """Token ids of texts, and which of them are scored.

    Raises:
        InputError: if the tokenizer makes no token of a context or a continuation, or cannot tell
            where in the text its tokens stand although that is needed.
    """
    return [_tokenize_one(model, contrast) for contrast in contrasts]


def text_log_probs(
    model: LanguageModel,
    contrasts: Sequence[Contrast],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    progress: Progress | None = None,
) -> dict[Reading, list[TokenScores]]:
    """Log-probabilities of the scored tokens of every text.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        contrasts: The texts.
        batch_size: Texts per forward pass.
        start: Of causal models: ``tokenizer``: the first token of a text is scored only where the
            tokenizer puts a start token in front of it; ``bos``: the model's start token stands in
            front of every text, as in StereoSet's own script.
        share_prefix: ``auto`` or ``never``: run what the texts of a contrast share once.
        progress: Called with finished contrasts and all.

    Returns:
        By how they were read: ``log_prob``; or ``pll`` and, where the tokenizer tells words apart,
        ``pll_within_word``. A text none of whose words is scored gets an empty array.

    Raises:
        InputError: if the model has no language-model head or is of another kind, or a text is too
            long for it.
    """
    require_kind(model, ("causal", "masked", "seq2seq"), "texts are scored with")
    tokens = tokenize(model, contrasts)
    if model.kind == "masked":
        return _masked(model, tokens, batch_size, progress)
    leading = _leading(model, start) if model.kind == "causal" else None
    scored = [own.scored for own in tokens]
    if leading == []:  # nothing predicts a first token
        scored = [tuple(places[places > 0] for places in of_texts) for of_texts in scored]
    requests = [
        Request(own.ids, tuple(enumerate(places)), own.context, (contrast.context or "").strip())
        for contrast, own, places in zip(contrasts, tokens, scored, strict=True)
    ]
    most = max((len(own.ids) for own in tokens), default=1) if model.kind == "causal" else 2
    scorer = Scorer(model, batch_size=batch_size, texts_per_tree=most, share_prefix=share_prefix)
    values = scorer.log_probs(*as_trees(model, requests, leading=leading), progress=progress)
    return {
        "log_prob": [
            tuple(np.split(log_probs, np.cumsum([len(places) for places in of_texts])[:-1]))
            for log_probs, of_texts in zip(values, scored, strict=True)
        ]
    }


# -- tokens ----------------------------------------------------------------------------------------


def _tokenize_one(model: LanguageModel, contrast: Contrast) -> ContrastTokens:
    tokenizer = model.tokenizer
    encoded = tokenizer(
        list(contrast.texts),
        add_special_tokens=False,
        return_offsets_mapping=bool(tokenizer.is_fast),
    )
    ids = tuple(list(text) for text in encoded["input_ids"])
    first = _context_lengths(model, contrast, ids)
    offsets = encoded["offset_mapping"] if tokenizer.is_fast else None
    match contrast.scored:
        case "whole":
            scored = tuple(np.arange(a, len(text)) for a, text in zip(first, ids, strict=True))
        case "shared":
            scored = _shared(ids)
        case "difference":
            if offsets is None:
                raise InputError(
                    f"`model` {model.name}: its tokenizer does not tell where in a text its tokens "
                    "stand, so differing words cannot be scored alone; score whole texts"
                )
            spans = differing_spans(contrast.texts)
            scored = tuple(_overlapping(o, span) for o, span in zip(offsets, spans, strict=True))
    word = None
    if offsets is not None:
        word = tuple(
            _words(encoded.word_ids(i), offsets[i], text) for i, text in enumerate(contrast.texts)
        )
    return ContrastTokens(ids, min(first), scored, word)


def _context_lengths(
    model: LanguageModel, contrast: Contrast, ids: Sequence[Sequence[int]]
) -> list[int]:
    """How many tokens each text shares with the context; a token that covers both is not one."""
    first = [0] * len(ids)
    if contrast.context is not None:
        before = model.tokenizer(contrast.context.strip(), add_special_tokens=False)["input_ids"]
        first = [common_prefix(before, text) for text in ids]
    lacks_context = contrast.context is not None and 0 in first
    if lacks_context or any(start >= len(text) for start, text in zip(first, ids, strict=True)):
        raise InputError(
            f"{contrast.source}: the tokenizer makes no token of a text, its context or its "
            "continuation"
        )
    return first


def _overlapping(offsets: Sequence[Span], span: Span) -> Int[np.ndarray, " place"]:
    """Tokens that hold a character of a range."""
    inside = [i for i, (a, b) in enumerate(offsets) if a < span[1] and b > span[0]]
    return np.array(inside, dtype=np.int64)


def _shared(ids: tuple[list[int], ...]) -> tuple[Int[np.ndarray, " place"], ...]:
    """Tokens that two texts have in common, in order: CrowS-Pairs' unmodified tokens."""
    first, second = ids
    matcher = SequenceMatcher(None, first, second)
    blocks = [(a, b, n) for a, b, n in matcher.get_matching_blocks() if n]
    places = ([], []) if not blocks else zip(*blocks, strict=True)
    starts = list(places)[:2]
    sizes = [n for *_, n in blocks]
    return tuple(
        np.concatenate([np.arange(s, s + n) for s, n in zip(firsts, sizes, strict=True)])
        if sizes
        else np.arange(0)
        for firsts in starts
    )


def _words(numbers: Sequence[int | None], offsets: Sequence[Span], text: str) -> list[int]:
    """The word of each token; a tokenizer that knows one word only is told them by white space."""
    known = {number for number in numbers if number is not None}
    if len(known) > 1 or len(text.split()) < 2:
        return [-1 - i if number is None else number for i, number in enumerate(numbers)]
    ends = np.array([stop for _, stop in words(text)])
    return [int(np.searchsorted(ends, max(stop, 1))) for _, stop in offsets]


def _leading(model: LanguageModel, start: Start) -> list[int]:
    leading = special_tokens_around(model.tokenizer)[0]
    if leading or start == "tokenizer":
        return leading
    token = model.tokenizer.bos_token_id
    if token is None:
        raise InputError(f"`model` {model.name} has no start token; leave out --start bos")
    return [token]


# -- masked models ---------------------------------------------------------------------------------


def _masked(
    model: LanguageModel,
    tokens: Sequence[ContrastTokens],
    batch_size: int,
    progress: Progress | None,
) -> dict[Reading, list[TokenScores]]:
    mask, (leading, trailing) = mask_token(model), special_tokens_around(model.tokenizer)
    rows = MaskedRows()

    def read(ids: Sequence[int], place: int, masked: Sequence[int]) -> tuple[int, int]:
        row = [*leading, *ids, *trailing]
        for other in masked:
            row[other + len(leading)] = mask
        return rows.add(row, place + len(leading), ids[place])

    readings: dict[Reading, list[list[list[tuple[int, int]]]]] = {
        "pll": [
            [[read(ids, int(p), [p]) for p in places] for ids, places in own.texts()]
            for own in tokens
        ]
    }
    if all(own.word is not None for own in tokens):
        readings["pll_within_word"] = [
            [
                [read(ids, int(p), _rest_of_word(word, int(p))) for p in places]
                for (ids, places), word in zip(own.texts(), own.word or (), strict=True)
            ]
            for own in tokens
        ]
    n = len(tokens)
    tell = None if progress is None else lambda done, of: progress(done * n // of, n)
    values = Scorer(model, batch_size=batch_size).log_probs(rows.trees(), progress=tell)
    return {
        reading: [
            tuple(np.array([values[row][slot] for row, slot in text]) for text in texts)
            for texts in contrasts
        ]
        for reading, contrasts in readings.items()
    }


def _rest_of_word(word: Sequence[int], place: int) -> list[int]:
    """A place and the later ones of the same word."""
    return [i for i in range(place, len(word)) if word[i] == word[place]]
