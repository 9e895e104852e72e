"""Requests for log-probabilities, and the trees of tokens that a language model reads for them.

A ``Request`` is a few texts that are read together: token ids, and which places of them are read.

- Causal models read from left to right; what texts share is one path of the tree.
- Masked models get a row for each token that is read, with a mask in its place (the
  pseudo-log-likelihood, Salazar et al. 2020).
- Encoder-decoders fill a gap after the context: the encoder reads context and gap, and the tree is
  what the decoder writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from tda_bias.models.language_model import (
    Kind,
    LanguageModel,
    common_prefix,
    special_tokens_around,
)
from tda_bias.models.token_trees import TokenTree, merge, path_to
from tda_bias.show.text import listed
from tda_bias.types import InputError

_T5_GAP = "<extra_id_0>"
# As it stands in vocabularies: mT5's has the mark of a word's beginning before it.
_T5_TOKENS = (_T5_GAP, f"\N{LOWER ONE EIGHTH BLOCK}{_T5_GAP}")
Places = Sequence[int] | Int[np.ndarray, " place"]


@dataclass(frozen=True)
class Request:
    """Texts that are read together.

    Attributes:
        ids: Token ids of each text, without special tokens.
        read: Which places are read, text by text: the number of a text, and its places. A text may
            stand there several times. Nothing predicts a causal model's first token of all.
        context: How many tokens at the beginning all texts share with the context.
        before: The context as a text, which the encoder of an encoder-decoder reads.
    """

    ids: tuple[list[int], ...]
    read: tuple[tuple[int, Places], ...]
    context: int = 0
    before: str = ""


def continuations(
    model: LanguageModel,
    contexts: Sequence[str],
    answers: Sequence[Sequence[str]],
    *,
    between: str = " ",
) -> list[Request]:
    """For each context, a request that reads every token of each of its answers after it.

    ``between`` stands between the two. Where a token of any answer covers the end of the context
    too, all answers are read from before it: from the same character.

    Raises:
        InputError: if the tokenizer makes no token of a context or of an answer, a token holds the
            whole context and more with nothing before it, or a context has no answer.
    """
    requests = []
    for context, several in zip(contexts, answers, strict=True):
        if not several:
            raise InputError(f"{context!r} has no answer to be read after it")
        texts = [context, *(f"{context}{between}{answer}" for answer in several)]
        before, *ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
        start = shared_start(model, before, ids, where=repr(context))
        places = [range(start, len(own)) for own in ids]
        requests.append(Request(tuple(ids), tuple(enumerate(places)), start, context))
    return requests


def shared_start(
    model: LanguageModel, context: Sequence[int], texts: Sequence[Sequence[int]], *, where: str
) -> int:
    """The token from which texts that go on from a context are compared.

    Where a token of any of them covers the end of the context too, all are read from before it:
    from the same character.

    Args:
        model: The model that reads them.
        context: Token ids of the context alone.
        texts: Token ids of each text, context and continuation.
        where: Names the texts in messages.

    Raises:
        InputError: if a context or a continuation has no token, or one token holds the whole
            context and more, and no special token stands before it.
    """
    known = [common_prefix(context, own) for own in texts]
    if not context or any(n >= len(own) for n, own in zip(known, texts, strict=True)):
        raise InputError(
            f"{where}: the tokenizer makes no token of a text, its context or its continuation"
        )
    if 0 in known and not special_tokens_around(model.tokenizer)[0]:
        raise InputError(
            f"{where}: one token of `model` {model.name} holds the whole context and the beginning "
            "of what follows, and nothing stands before it; leave it out"
        )
    return min(known)


def as_trees(
    model: LanguageModel, requests: Sequence[Request], *, leading: Sequence[int] | None = None
) -> tuple[list[TokenTree], list[list[int]]]:
    """Requests as a causal, masked or sequence-to-sequence language model reads them.

    ``leading`` are the special tokens in front of a causal model's texts; the tokenizer's own if
    None.

    Returns:
        A tree for each, whose readings go through ``Request.read`` place by place; and what the
        encoder reads for each, nothing for models without one.

    Raises:
        InputError: if the tokenizer of a masked model has no mask, or an encoder-decoder no gap.
    """
    if model.kind == "seq2seq":
        sources = gap_sources(model, [request.before for request in requests])
        return [_in_a_gap(model, request) for request in requests], sources
    around = special_tokens_around(model.tokenizer)
    if model.kind == "masked":
        mask = mask_token(model)
        return [_masked_one_by_one(request, mask, *around) for request in requests], []
    leading = around[0] if leading is None else leading
    return [
        text_tree([[*leading, *ids] for ids in request.ids], _shifted(request.read, len(leading)))
        for request in requests
    ], []


def text_tree(texts: Sequence[Sequence[int]], read: Sequence[tuple[int, Places]]) -> TokenTree:
    """Texts as one tree that reads tokens at places from left to right; see ``Request.read``."""
    # Nothing is read after a text's last token, so it is not run.
    tokens, parent, ends = merge([list(text)[:-1] for text in texts])
    paths = [path_to(int(end), parent) if end >= 0 else [] for end in ends]
    nodes = [paths[text][place - 1] for text, places in read for place in places]
    read_tokens = [texts[text][place] for text, places in read for place in places]
    return TokenTree(
        tokens, parent, np.array(nodes, dtype=np.int64), np.array(read_tokens, dtype=np.int64)
    )


def masked_row(ids: Sequence[int], place: int, tokens: Sequence[int]) -> TokenTree:
    """A row of a masked model, special tokens and masks included, and what is read at one place."""
    return TokenTree(
        np.array(ids, dtype=np.int64),
        np.arange(len(ids)) - 1,
        np.full(len(tokens), place),
        np.array(tokens, dtype=np.int64),
    )


class MaskedRows:
    """Rows with masks, each run once, and the tokens that are read at one place of each.

    Texts that differ only where they are masked share a row.
    """

    def __init__(self) -> None:
        # By a row and its place its number, and the number of each token's reading.
        self._rows: dict[tuple[tuple[int, ...], int], tuple[int, dict[int, int]]] = {}

    def add(self, row: Sequence[int], place: int, token: int) -> tuple[int, int]:
        """The number of the row, and the number of the reading in it."""
        number, readings = self._rows.setdefault((tuple(row), place), (len(self._rows), {}))
        return number, readings.setdefault(token, len(readings))

    def add_span(
        self, ids: Sequence[int], first: int, last: int, mask: int
    ) -> list[tuple[int, int]]:
        """Read the tokens ``first`` to ``last`` from left to right, those not yet read masked."""
        return [
            self.add((*ids[:place], *[mask] * (last - place), *ids[last:]), place, ids[place])
            for place in range(first, last)
        ]

    def trees(self) -> list[TokenTree]:
        """The rows, for a ``Scorer``."""
        return [masked_row(*key, list(readings)) for key, (_, readings) in self._rows.items()]


def mask_token(model: LanguageModel) -> int:
    """The id of a masked model's mask."""
    mask: int | None = model.tokenizer.mask_token_id
    if mask is None:
        raise InputError(f"`model` {model.name}: its tokenizer has no mask token")
    return mask


def gap_token(model: LanguageModel) -> str:
    """The gap in an encoder's text: T5's first sentinel, or the mask of BART."""
    if _sentinel(model) is not None:
        return _T5_GAP
    mask = model.tokenizer.mask_token
    if mask is None:
        raise InputError(f"`model` {model.name}: its tokenizer has neither {_T5_GAP} nor a mask")
    return str(mask)


def _sentinel(model: LanguageModel) -> int | None:
    """The id of T5's first sentinel; None for models without."""
    vocabulary = model.tokenizer.get_vocab()
    return next((vocabulary[token] for token in _T5_TOKENS if token in vocabulary), None)


def gap_sources(model: LanguageModel, contexts: Sequence[str]) -> list[list[int]]:
    """Token ids that the encoder reads: contexts with a gap after each."""
    gap = gap_token(model)
    return with_gaps(model, [f"{context} {gap}" if context else gap for context in contexts])


def with_gaps(model: LanguageModel, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts with a gap in each, special tokens included.

    Raises:
        InputError: if the tokenizer does not write the gap as one token.
    """
    sentinel = _sentinel(model)
    gap = mask_token(model) if sentinel is None else sentinel
    ids: list[list[int]] = model.tokenizer(list(texts))["input_ids"] if texts else []
    for text, own in zip(texts, ids, strict=True):
        if own.count(gap) != 1:
            raise InputError(
                f"`model` {model.name}: its tokenizer does not find the one gap in {text!r}; put a "
                "space before it"
            )
    return ids


def decoder_start(model: LanguageModel, context: Sequence[int]) -> list[int]:
    """Token ids that the decoder has written before the gap after a context.

    T5 names the gap; models that restore the whole text (BART) repeat it.
    """
    generation: Any = model.hf_model.generation_config
    start: int | None = getattr(model.hf_model.config, "decoder_start_token_id", None)
    if start is None:
        start = getattr(generation, "decoder_start_token_id", None)
    if start is None:
        raise InputError(f"`model` {model.name}: its configuration has no decoder start")
    sentinel = _sentinel(model)
    if sentinel is not None:
        return [start, sentinel]
    leading = [t for t in special_tokens_around(model.tokenizer)[0] if t != start]
    return [start, *leading, *context]


def require_kind(model: LanguageModel, kinds: Sequence[Kind], done: str) -> None:
    """Refuse models that are read in another way, or whose output probabilities are random."""
    model.require_language_head()
    if model.kind not in kinds:
        names = [kind.replace("seq2seq", "sequence-to-sequence") for kind in kinds]
        raise InputError(
            f"`model` {model.name} is a {model.kind} language model; {done} {listed(names)} ones"
        )


def _shifted(read: Sequence[tuple[int, Places]], by: int) -> list[tuple[int, list[int]]]:
    """Places in texts that begin further to the right."""
    return [(text, [int(place) + by for place in places]) for text, places in read]


def _in_a_gap(model: LanguageModel, request: Request) -> TokenTree:
    # The decoder's tokens before the gap take the place of the context.
    start = decoder_start(model, request.ids[0][: request.context])
    texts = [[*start, *ids[request.context :]] for ids in request.ids]
    return text_tree(texts, _shifted(request.read, len(start) - request.context))


def _masked_one_by_one(
    request: Request, mask: int, leading: Sequence[int], trailing: Sequence[int]
) -> TokenTree:
    """A row for each token that is read, as paths of one tree that share nothing."""
    tokens: list[int] = []
    parent: list[int] = []
    nodes: list[int] = []
    read_tokens: list[int] = []
    for text, places in _shifted(request.read, len(leading)):
        whole = [*leading, *request.ids[text], *trailing]
        for place in places:
            start = len(tokens)
            tokens += [*whole[:place], mask, *whole[place + 1 :]]
            parent += [-1, *range(start, start + len(whole) - 1)]
            nodes.append(start + place)
            read_tokens.append(whole[place])
    return TokenTree(
        *(np.array(own, dtype=np.int64) for own in (tokens, parent, nodes, read_tokens))
    )
