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

from tda_bias.models.batching import batches_of_similar_width, common_prefix, special_tokens_around
from tda_bias.models.causal import reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.masked import masked_log_probs
from tda_bias.models.seq2seq import begun, decoded_log_probs, gap_token
from tda_bias.models.token_trees import TokenTree, merge, path_to
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
    model.require_language_head()
    tokens = tokenize(model, contrasts)
    match model.kind:
        case "causal":
            leading = _leading(model, start)
            return {"log_prob": _causal(model, tokens, leading, batch_size, share_prefix, progress)}
        case "masked":
            return _masked(model, tokens, batch_size, progress)
        case "seq2seq":
            return {"log_prob": _seq2seq(model, contrasts, tokens, batch_size, progress)}
        case kind:
            raise InputError(
                f"`model` {model.name} is a {kind} language model; texts are scored with causal, "
                "masked and sequence-to-sequence ones"
            )


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


# -- causal models ---------------------------------------------------------------------------------


def _causal(
    model: LanguageModel,
    tokens: Sequence[ContrastTokens],
    leading: Sequence[int],
    batch_size: int,
    share_prefix: str,
    progress: Progress | None,
) -> list[TokenScores]:
    pairs = [
        _tree([[*leading, *ids] for ids in contrast.ids], _behind(contrast, len(leading)))
        for contrast in tokens
    ]
    readable = [i for i, (tree, _) in enumerate(pairs) if len(tree.read_node)]
    values: list[np.ndarray] = [np.empty(0)] * len(pairs)
    if readable:
        trees = [pairs[i][0] for i in readable]
        most = max(len(contrast.ids) for contrast in tokens)
        reader = reader_of(
            model, trees, batch_size=batch_size, texts_per_tree=most, share_prefix=share_prefix
        )
        read = reader.read(trees, progress=progress)
        for i, log_probs in zip(readable, read, strict=True):
            values[i] = log_probs
    return [
        tuple(np.split(log_probs, np.cumsum(sizes)[:-1]))
        for log_probs, (_, sizes) in zip(values, pairs, strict=True)
    ]


def _behind(contrast: ContrastTokens, n_leading: int) -> list[Int[np.ndarray, " place"]]:
    """Scored places behind leading tokens; nothing predicts the first of all."""
    return [places[places + n_leading > 0] + n_leading for places in contrast.scored]


def _tree(
    texts: Sequence[Sequence[int]], places: Sequence[Int[np.ndarray, " place"]]
) -> tuple[TokenTree, list[int]]:
    """Texts as one tree that reads tokens at places, text by text; and how many of each."""
    # Nothing is read after a text's last token, so it is not run.
    tokens, parent, ends = merge([list(text)[:-1] for text in texts])
    nodes: list[int] = []
    read: list[int] = []
    for text, scored, end in zip(texts, places, ends, strict=True):
        path = path_to(int(end), parent) if end >= 0 else []
        nodes += [path[place - 1] for place in scored]
        read += [text[place] for place in scored]
    tree = TokenTree(
        tokens, parent, np.array(nodes, dtype=np.int64), np.array(read, dtype=np.int64)
    )
    return tree, [len(scored) for scored in places]


# -- masked models ---------------------------------------------------------------------------------


class _MaskedRows:
    """Rows with masks, each kept once, and the tokens that are read at one place of each."""

    def __init__(self, model: LanguageModel) -> None:
        self.leading, self.trailing = special_tokens_around(model.tokenizer)
        self.mask = model.tokenizer.mask_token_id
        self.slots: dict[tuple[tuple[int, ...], int], dict[int, int]] = {}
        self.number: dict[tuple[tuple[int, ...], int], int] = {}

    def add(self, ids: Sequence[int], place: int, masked: Sequence[int]) -> tuple[int, int]:
        """The row and the reading in it for one token; texts that differ only there share it."""
        row = [*self.leading, *ids, *self.trailing]
        for other in masked:
            row[other + len(self.leading)] = self.mask
        key = (tuple(row), place + len(self.leading))
        slots = self.slots.setdefault(key, {})
        number = self.number.setdefault(key, len(self.number))
        return number, slots.setdefault(ids[place], len(slots))


def _masked(
    model: LanguageModel,
    tokens: Sequence[ContrastTokens],
    batch_size: int,
    progress: Progress | None,
) -> dict[Reading, list[TokenScores]]:
    if model.tokenizer.mask_token_id is None:
        raise InputError(f"`model` {model.name}: its tokenizer has no mask token")
    rows = _MaskedRows(model)
    which: dict[Reading, list[list[list[tuple[int, int]]]]] = {"pll": []}
    if all(contrast.word is not None for contrast in tokens):
        which["pll_within_word"] = []
    for reading, places in which.items():
        for contrast in tokens:
            places.append(
                [list(_rows_of(rows, contrast, i, reading)) for i in range(len(contrast.ids))]
            )
    values = _read_rows(model, rows, batch_size, len(tokens), progress)
    return {
        reading: [
            tuple(np.array([values[row][slot] for row, slot in slots]) for slots in texts)
            for texts in contrasts
        ]
        for reading, contrasts in which.items()
    }


def _rows_of(
    rows: _MaskedRows, contrast: ContrastTokens, text: int, reading: Reading
) -> Iterator[tuple[int, int]]:
    """Where each scored token of a text is read."""
    ids = contrast.ids[text]
    for place in contrast.scored[text]:
        masked = [int(place)]
        if reading == "pll_within_word" and contrast.word is not None:
            word = contrast.word[text]
            masked += [j for j in range(place + 1, len(ids)) if word[j] == word[place]]
        yield rows.add(ids, int(place), masked)


def _read_rows(
    model: LanguageModel,
    rows: _MaskedRows,
    batch_size: int,
    n_contrasts: int,
    progress: Progress | None,
) -> list[Float[np.ndarray, " slot"]]:
    keys = list(rows.slots)
    tokens = [np.array(list(slots)) for slots in rows.slots.values()]
    values: list[Float[np.ndarray, " slot"]] = [np.empty(0)] * len(keys)
    done = 0
    for batch in batches_of_similar_width([len(row) for row, _ in keys], batch_size):
        read = masked_log_probs(
            model,
            [keys[i][0] for i in batch],
            [keys[i][1] for i in batch],
            [tokens[i] for i in batch],
        )
        for i, row in zip(batch, read, strict=True):
            values[i] = row
        done += len(batch)
        if progress is not None:
            progress(done * n_contrasts // len(keys), n_contrasts)
    return values


# -- encoder-decoders ------------------------------------------------------------------------------


def _seq2seq(
    model: LanguageModel,
    contrasts: Sequence[Contrast],
    tokens: Sequence[ContrastTokens],
    batch_size: int,
    progress: Progress | None,
) -> list[TokenScores]:
    gap = gap_token(model)
    texts = [f"{(contrast.context or '').strip()} {gap}".strip() for contrast in contrasts]
    sources = model.tokenizer(texts)["input_ids"]
    scores: list[TokenScores] = [()] * len(tokens)
    done = 0
    per_pass = max(1, batch_size // 2)
    for batch in batches_of_similar_width([len(source) for source in sources], per_pass):
        trees, sizes = [], []
        for i in batch:
            # The decoder's tokens before the gap take the place of the context.
            contrast = tokens[i]
            before = begun(model, contrast.ids[0][: contrast.context])
            written = [[*before, *ids[contrast.context :]] for ids in contrast.ids]
            places = [scored - contrast.context + len(before) for scored in contrast.scored]
            tree, counts = _tree(written, [scored[scored > 0] for scored in places])
            trees.append(tree)
            sizes.append(counts)
        values = decoded_log_probs(model, [sources[i] for i in batch], trees, batch_size=batch_size)
        for i, log_probs, counts in zip(batch, values, sizes, strict=True):
            scores[i] = tuple(np.split(log_probs, np.cumsum(counts)[:-1]))
        done += len(batch)
        if progress is not None:
            progress(done, len(tokens))
    return scores
