"""Token sequences to batches: common beginnings, similar widths, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A forward pass costs about as much on top as running so many more tokens.
_PASS_COST = 40


def common_prefix(*sequences: Sequence[int]) -> int:
    """Number of leading tokens that sequences share."""
    length = 0
    for tokens in zip(*sequences, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return length


def batches_of_similar_width(widths: list[int], most: int) -> list[list[int]]:
    """Rows of similar width together: the cheapest cut of their sorted list, padding included."""
    order = sorted(range(len(widths)), key=widths.__getitem__)
    cost, start = [0.0], [0]
    for end in range(1, len(order) + 1):
        widest = widths[order[end - 1]]
        options = [
            (cost[first] + widest * (end - first) + _PASS_COST, first)
            for first in range(max(0, end - most), end)
        ]
        best, first = min(options)
        cost.append(best)
        start.append(first)
    batches, end = [], len(order)
    while end:
        batches.append(order[start[end] : end])
        end = start[end]
    return batches[::-1]


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "row token"], Tensor]:
    """Token ids padded on the right, and which places are real."""
    length = torch.tensor([len(row) for row in rows])
    ids = torch.zeros(len(rows), int(length.max()), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return ids, (torch.arange(ids.shape[1]) < length[:, None]).long()


def special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens that a tokenizer puts before and after a text; none for many."""
    bare = tokenizer("that", add_special_tokens=False)["input_ids"]
    full = tokenizer("that")["input_ids"]
    start = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return list(full[:start]), list(full[start + len(bare) :])
