"""Token ids to forward passes: batches that waste little padding.

The texts of a context begin with the same tokens. Where a model allows it exactly, they are run as
one sequence: the common prefix once, then the continuations, each with the positions it would have
had and blind to the others. A text is then a list of places in that sequence, and its pattern the
matching rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from tda_bias.heads.texts import ContextTexts
from tda_bias.models.batching import batches_of_similar_width, padded


@dataclass(frozen=True)
class ForwardPass:
    """One batch: what goes into the model, and where its texts stand in it.

    Attributes:
        ids: Token ids, padded on the right.
        attention_mask: 1 for tokens and 0 for padding ``(row, token)``, or an additive mask
            ``(row, 1, query, key)``.
        position_ids: Positions, or None for the model's own.
        text: Index of each text among all texts given (texts of a context * context + place), row
            by row, the same number in every row.
        length: ``(text,)`` numbers of tokens.
        place: ``(text, token)`` places of a text's tokens in its row; beyond its length, anything.
            None where each row is one text.
    """

    ids: Int[Tensor, "row token"]
    attention_mask: Tensor
    position_ids: Int[Tensor, "row token"] | None
    text: Int[Tensor, " text"]
    length: Int[Tensor, " text"]
    place: Int[Tensor, "text token"] | None


def forward_passes(
    contexts: Sequence[ContextTexts],
    *,
    batch_size: int,
    shared: bool,
    mask_dtype: torch.dtype = torch.float32,
    most_patterns: float = math.inf,
) -> Iterator[ForwardPass]:
    """Batches of similar length that together hold every text once.

    Args:
        contexts: The texts, as many of each.
        batch_size: Texts per pass, at least 1.
        shared: Run each context's common prefix once; a row then holds all its texts.
        mask_dtype: Type of the additive mask, the model's.
        most_patterns: Entries (text, query, key) of one head's patterns per pass; a single row may
            have more.
    """
    if not contexts:
        return
    if shared:
        texts = len(contexts[0])
        widths = [context.n_packed for context in contexts]
        for chosen in batches_of_similar_width(widths, max(1, batch_size // texts)):
            for part in _bounded(chosen, [texts * width**2 for width in widths], most_patterns):
                yield _packed_pass(contexts, part, mask_dtype)
        return
    ids = [text for context in contexts for text in context.ids]
    widths = [len(text) for text in ids]
    for chosen in batches_of_similar_width(widths, batch_size):
        for part in _bounded(chosen, [width**2 for width in widths], most_patterns):
            yield _plain_pass(ids, part)


def _bounded(chosen: list[int], size: list[int], most: float) -> Iterator[list[int]]:
    """A batch in parts: members times the largest of their sizes stays within a bound."""
    start = 0
    for end in range(1, len(chosen) + 1):
        largest = max(size[index] for index in chosen[start:end])
        if end - start > 1 and (end - start) * largest > most:
            yield chosen[start : end - 1]
            start = end - 1
    yield chosen[start:]


def _plain_pass(ids: list[list[int]], chosen: list[int]) -> ForwardPass:
    rows, mask = padded([ids[i] for i in chosen])
    return ForwardPass(
        ids=rows,
        attention_mask=mask,
        position_ids=None,
        text=torch.tensor(chosen),
        length=mask.sum(1),
        place=None,
    )


def _packed_pass(
    contexts: Sequence[ContextTexts], chosen: list[int], mask_dtype: torch.dtype
) -> ForwardPass:
    width = max(contexts[i].n_packed for i in chosen)
    longest = max(max(contexts[i].n_tokens) for i in chosen)
    texts = len(contexts[0])
    ids = torch.zeros(len(chosen), width, dtype=torch.long)
    position = torch.zeros_like(ids)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(chosen), 1, 1)
    place = torch.zeros(texts * len(chosen), longest, dtype=torch.long)
    line = 0
    for row, index in enumerate(chosen):
        context, end = contexts[index], contexts[index].prefix
        for text in context.ids:
            rest = len(text) - context.prefix
            where = torch.cat([torch.arange(context.prefix), torch.arange(end, end + rest)])
            ids[row, where] = torch.tensor(text)
            position[row, where] = torch.arange(len(text))
            causal = torch.ones(len(text), len(text), dtype=torch.bool).tril()
            visible[row, where[:, None], where] |= causal
            place[line, : len(text)] = where
            end, line = end + rest, line + 1
    return ForwardPass(
        ids=ids,
        attention_mask=torch.zeros(visible.shape, dtype=mask_dtype)
        .masked_fill_(~visible, torch.finfo(mask_dtype).min)
        .unsqueeze(1),
        position_ids=position,
        text=torch.tensor([texts * index + t for index in chosen for t in range(texts)]),
        length=torch.tensor([n for i in chosen for n in contexts[i].n_tokens]),
        place=place,
    )
