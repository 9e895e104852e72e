"""Triples to forward passes: token ids, and batches that waste little padding.

The three texts of a triple begin with the same tokens. Where a model allows it exactly, a triple is
run as one sequence: the common prefix once, then the three continuations, each with the positions
it would have had and blind to the other two. A text is then a list of places in that sequence, and
its pattern the matching rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from tda_bias.models.batching import batches_of_similar_width, common_prefix, padded
from tda_bias.records.parts import texts_hash
from tda_bias.types import InputError, Triple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenizedTriple:
    """Token ids of a triple's texts, in the order of ``ROLES``.

    Attributes:
        ids: The three lists of token ids, special tokens included.
        prefix: Number of leading tokens that all three share.
    """

    ids: tuple[list[int], list[int], list[int]]
    prefix: int

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each text."""
        return tuple(len(ids) for ids in self.ids)

    @property
    def n_packed(self) -> int:
        """Tokens when the prefix is run once."""
        return sum(self.n_tokens) - 2 * self.prefix


def tokenize(
    tokenizer: PreTrainedTokenizerBase, triples: Sequence[Triple], *, max_tokens: int | None
) -> list[TokenizedTriple]:
    """Token ids of all texts, with the tokenizer's own special tokens.

    Raises:
        InputError: if a text has no token, or more than ``max_tokens``; nothing is truncated.
    """
    texts = [text for triple in triples for text in triple.texts()]
    ids = tokenizer(texts, truncation=False, verbose=False)["input_ids"] if texts else []
    result = []
    for index, triple in enumerate(triples):
        first, second, third = ids[3 * index : 3 * index + 3]
        for one in (first, second, third):
            if not one:
                raise InputError(f"{triple.source}: the tokenizer makes no token of a text")
            if max_tokens is not None and len(one) > max_tokens:
                raise InputError(
                    f"{triple.source} (group {triple.group}): a text has {len(one)} tokens, the "
                    f"model takes {max_tokens}; nothing is truncated, leave the item out"
                )
        result.append(TokenizedTriple((first, second, third), common_prefix(first, second, third)))
    return result


# -- forward passes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForwardPass:
    """One batch: what goes into the model, and where its texts stand in it.

    Attributes:
        ids: Token ids, padded on the right.
        attention_mask: 1 for tokens and 0 for padding ``(row, token)``, or an additive mask
            ``(row, 1, query, key)``.
        position_ids: Positions, or None for the model's own.
        text: Index of each text among all texts of the run (3 * triple + role), row by row, the
            same number in every row.
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
    triples: Sequence[TokenizedTriple],
    *,
    batch_size: int,
    shared: bool,
    mask_dtype: torch.dtype = torch.float32,
) -> Iterator[ForwardPass]:
    """Batches of similar length that together hold every text once.

    Args:
        triples: The texts.
        batch_size: Texts per pass, at least 1.
        shared: Run each triple's common prefix once; a row then holds three texts.
        mask_dtype: Type of the additive mask, the model's.
    """
    if shared:
        for chosen in batches_of_similar_width(
            [t.n_packed for t in triples], max(1, batch_size // 3)
        ):
            yield _packed_pass(triples, chosen, mask_dtype)
        return
    ids = [one for triple in triples for one in triple.ids]
    for chosen in batches_of_similar_width([len(one) for one in ids], batch_size):
        yield _plain_pass(ids, chosen)


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
    triples: Sequence[TokenizedTriple], chosen: list[int], mask_dtype: torch.dtype
) -> ForwardPass:
    width = max(triples[i].n_packed for i in chosen)
    longest = max(max(triples[i].n_tokens) for i in chosen)
    ids = torch.zeros(len(chosen), width, dtype=torch.long)
    position = torch.zeros_like(ids)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(chosen), 1, 1)
    place = torch.zeros(3 * len(chosen), longest, dtype=torch.long)
    for row, index in enumerate(chosen):
        triple, end = triples[index], triples[index].prefix
        for role, one in enumerate(triple.ids):
            own = len(one) - triple.prefix
            where = torch.cat([torch.arange(triple.prefix), torch.arange(end, end + own)])
            ids[row, where] = torch.tensor(one)
            position[row, where] = torch.arange(len(one))
            causal = torch.ones(len(one), len(one), dtype=torch.bool).tril()
            visible[row, where[:, None], where] |= causal
            place[3 * row + role, : len(one)] = where
            end += own
    return ForwardPass(
        ids=ids,
        attention_mask=torch.zeros(visible.shape, dtype=mask_dtype)
        .masked_fill_(~visible, torch.finfo(mask_dtype).min)
        .unsqueeze(1),
        position_ids=position,
        text=torch.tensor([3 * index + role for index in chosen for role in range(3)]),
        length=torch.tensor([n for index in chosen for n in triples[index].n_tokens]),
        place=place,
    )


def texts_record(
    groups: Mapping[tuple[str, str], Sequence[TokenizedTriple]], left_out: list[dict[str, str]]
) -> dict[str, Any]:
    """What was compared, what was left out and why, and a hash of all token ids."""
    everything = [triple for triples in groups.values() for triple in triples]
    return {
        "groups": len(groups),
        "triples_used": len(everything),
        "triples_left_out": left_out,
        "tokens": sum(sum(triple.n_tokens) for triple in everything),
        "tokens_with_prefixes_once": sum(triple.n_packed for triple in everything),
        "hash": texts_hash([triple.ids for triple in everything]),
    }
