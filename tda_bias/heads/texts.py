"""Triples and their twins to token ids, group by group; contexts to forward passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from tda_bias.heads.group_statistic import GroupLayout
from tda_bias.heads.token_places import PlacesAsked, TokenPlaces, token_places
from tda_bias.models.language_model import batches_of_similar_width, common_prefix, padded
from tda_bias.show.alike import ALIKE, are_alike
from tda_bias.store.cache import texts_hash
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import RecordPart
from tda_bias.triples import triple_ids
from tda_bias.twins.twins import compared_texts
from tda_bias.types import ROLES, InputError, Role, Triple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tda_bias.models.load import LoadedModel
    from tda_bias.twins.twins import Twins

# A text of fewer tokens has no deaths, hence no value in dimension 1.
MIN_TOKENS = 3
# Length of a text whose topology costs what its forward pass does (a model of 135 million
# parameters: 0.3 of it at 512 tokens).
_TOKENS_OF_EQUAL_COST = 1700


@dataclass(frozen=True)
class ContextTexts:
    """Token ids of the texts of one context: of a triple, or of those of its twin that are read.

    They include special tokens; a triple's are in the order of ``ROLES``. ``prefix`` is the number
    of leading tokens that all of them share, ``places`` where the words of each stand, if it is
    read.
    """

    ids: tuple[list[int], ...]
    prefix: int
    places: tuple[TokenPlaces, ...] = ()

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each text."""
        return tuple(len(ids) for ids in self.ids)

    @property
    def n_packed(self) -> int:
        """Tokens when the prefix is run once."""
        return sum(self.n_tokens) - (len(self.ids) - 1) * self.prefix


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    triples: Sequence[Triple],
    *,
    max_tokens: int | None,
    roles: Sequence[Role] = ROLES,
    places: bool = False,
) -> list[ContextTexts]:
    """Token ids of all texts in these roles, with the tokenizer's own special tokens.

    With ``places`` also where the words of each text stand.

    Raises:
        InputError: if a text has no token, or more than ``max_tokens``; nothing is truncated. With
            ``places`` if the tokenizer does not tell characters.
    """
    numbers = [ROLES.index(role) for role in roles]
    texts = [triple.texts()[number] for triple in triples for number in numbers]
    ids = tokenizer(texts, truncation=False, verbose=False)["input_ids"] if texts else []
    where = token_places(tokenizer, triples, roles=roles) if places else [()] * len(triples)
    result = []
    for index, triple in enumerate(triples):
        tokens = tuple(ids[len(numbers) * index : len(numbers) * (index + 1)])
        for text in tokens:
            if not text:
                raise InputError(f"{triple.source}: the tokenizer makes no token of a text")
            if max_tokens is not None and len(text) > max_tokens:
                raise InputError(
                    f"{triple.source} (group {triple.group}): a text has {len(text)} tokens, the "
                    f"model takes {max_tokens}; nothing is truncated, leave the item out"
                )
        result.append(ContextTexts(tokens, common_prefix(*tokens), where[index]))
    return result


# -- groups ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizedGroup:
    """The texts of one group.

    Attributes:
        contexts: The triples' texts.
        twins: The twins' stereotype and anti-stereotype texts.
        twin_of: The context of each twin.
        items: What names the triples, and their texts.
    """

    category: str
    group: str
    contexts: list[ContextTexts]
    twins: list[ContextTexts]
    twin_of: list[int]
    items: list[dict[str, str]]

    def depends_on(self) -> dict[str, str]:
        """Hash of the texts, and the twins: the group's numbers depend on them and on settings."""
        texts = [context.ids for context in (*self.contexts, *self.twins)]
        known = {"texts": texts_hash(texts), "twin_of": ",".join(map(str, self.twin_of))}
        marks = [mark.tobytes() for of_text in self.token_places for mark in of_text]
        return known | ({"places": text_hash(*marks)} if marks else {})

    def cost(self) -> float:
        """Work beside other groups': passes grow with tokens, topology with their square."""
        tokens = self.lengths.astype(float)
        return float((tokens * (1 + tokens / _TOKENS_OF_EQUAL_COST)).sum())

    @property
    def layout(self) -> GroupLayout:
        """The places of its texts."""
        n, roles = self.n_tokens.shape
        return GroupLayout(n, n * (roles - 2), self.twin_of)

    @property
    def n_tokens(self) -> np.ndarray:
        """``(context, role)`` tokens of the triples' texts."""
        return np.array([context.n_tokens for context in self.contexts])

    @property
    def lengths(self) -> np.ndarray:
        """``(text,)`` tokens of every text, in the order of ``layout``."""
        twins = np.array([twin.n_tokens for twin in self.twins], dtype=int).reshape(-1, 2)
        return np.concatenate([self.n_tokens.T.reshape(-1), twins.T.reshape(-1)])

    @property
    def token_places(self) -> list[TokenPlaces]:
        """Where the words of every text stand, in the order of ``layout``; empty if not read."""
        triples = zip(*(context.places for context in self.contexts), strict=True)
        twins = zip(*(twin.places for twin in self.twins), strict=True)
        return [of_text for of_role in (*triples, *twins) for of_text in of_role]

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Index of the texts in the order read (context by context), for triples and twins."""
        n, roles = self.n_tokens.shape
        context = torch.arange(n * roles)
        twin = torch.arange(2 * len(self.twins))
        of_twins = n * roles + (twin % 2) * len(self.twins) + twin // 2
        return (context % roles) * n + context // roles, of_twins


def tokenized_groups(
    model: LoadedModel,
    triples: Sequence[Triple],
    twins: Twins | None,
    *,
    places: PlacesAsked = "none",
) -> tuple[list[TokenizedGroup], list[dict[str, str]]]:
    """Usable triples by group with their twins, and those left out with the reason.

    Where ``places`` are needed, triples that do not name their target are left out.

    Raises:
        InputError: if there is no triple, triples are mixed with pairs, a group has fewer than two
            usable ones, ``places`` of pairs are needed, which have no context, or as ``tokenize``.
    """
    pairs = {triple.is_pair for triple in triples}
    if len(pairs) > 1:
        raise InputError("`triples` mixes triples with pairs, which have no unrelated text")
    if True in pairs and places == "needed":
        raise InputError(
            "`summary` attention reads what a continuation pays to its context, and pairs have "
            "none; use another summary, or triples"
        )
    roles = ROLES[:2] if True in pairs else ROLES
    read = partial(tokenize, model.tokenizer, max_tokens=model.max_tokens, places=places != "none")
    tokens = read(triples, roles=roles)
    twins_of = [twins.of(triple) if twins else () for triple in triples]
    flat = [twin for several in twins_of for twin in several]
    twin_tokens = iter(read(flat, roles=ROLES[:2]))
    groups: dict[tuple[str, str], TokenizedGroup] = {}
    left_out = []
    names = triple_ids(triples)
    for triple, texts, several, name in zip(triples, tokens, twins_of, names, strict=True):
        key = (triple.category, triple.group)
        group = groups.setdefault(key, TokenizedGroup(*key, [], [], [], []))
        texts_of_twins = [next(twin_tokens) for _ in several]
        reason = _unusable(texts, places)
        if reason:
            left_out.append({"source": triple.source, "group": triple.group, "reason": reason})
            continue
        for twin in texts_of_twins:
            if not _unusable(twin, places):
                group.twins.append(twin)
                group.twin_of.append(len(group.contexts))
        group.contexts.append(texts)
        group.items.append({"id": name, **compared_texts(triple, several)})
    if not groups:
        raise InputError("`triples` is empty: there is nothing to compare")
    kind = "pair" if True in pairs else "triple"
    for group in groups.values():
        if len(group.contexts) < 2:
            raise InputError(
                f"the group {group.group!r} ({group.category}) has {len(group.contexts)} usable "
                f"{kind}, a variance needs 2{_why(group.group, left_out)}; raise --limit, or name "
                "the groups to use with --group"
            )
    return [groups[key] for key in sorted(groups)], left_out


def _why(group: str, left_out: Sequence[Mapping[str, str]]) -> str:
    """The reasons why triples of a group were left out, with their numbers, in brackets."""
    reasons = Counter(own["reason"] for own in left_out if own["group"] == group)
    said = ", ".join(f"{n} left out: {reason}" for reason, n in reasons.items())
    return f" ({said})" if said else ""


def _unusable(texts: ContextTexts, places: PlacesAsked) -> str:
    """Why the texts of a context cannot be compared; empty if they can."""
    if min(texts.n_tokens) < MIN_TOKENS:
        return f"a text has fewer than {MIN_TOKENS} tokens and no value in dimension 1"
    if are_alike(texts.ids[:2]):
        return ALIKE
    missing = [of_text.missing for of_text in texts.places] if places == "needed" else []
    return next(filter(None, missing), "")


class TextsRecord(RecordPart):
    """The texts of a run: how many were compared, which were left out and why, a hash of all."""

    groups: int
    triples_used: int
    triples_left_out: tuple[dict[str, str], ...] = ()
    tokens: int
    hash: str


def texts_record(groups: Sequence[TokenizedGroup], left_out: list[dict[str, str]]) -> TextsRecord:
    """The record of tokenised groups; its counts and its hash are of the triples, not the twins."""
    contexts = [context for group in groups for context in group.contexts]
    return TextsRecord(
        groups=len(groups),
        triples_used=len(contexts),
        triples_left_out=tuple(left_out),
        tokens=sum(sum(context.n_tokens) for context in contexts),
        hash=texts_hash([context.ids for context in contexts]),
    )


def text_counts(groups: Sequence[TokenizedGroup]) -> pd.DataFrame:
    """One row per group: ``category group triples twins texts tokens longest``."""
    return pd.DataFrame(
        {
            "category": group.category,
            "group": group.group,
            "triples": len(group.contexts),
            "twins": len(group.twins),
            "texts": len(group.lengths),
            "tokens": int(group.lengths.sum()),
            "longest": int(group.lengths.max()),
        }
        for group in groups
    )


# -- forward passes --------------------------------------------------------------------------------

# The texts of a context begin with the same tokens. Where a model allows it exactly, they are run
# as one sequence: the common prefix once, then the continuations, each with the positions it would
# have had and blind to the others. A text is then a list of places in that sequence, and its
# pattern the matching rows and columns.


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
        length: Its number of tokens.
        place: Places of its tokens in its row; beyond its length, anything. None where each row is
            one text.
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
        mask_dtype: Type of the additive mask.
        most_patterns: Entries (text, query, key) of one head's patterns per pass; a single row may
            have more.
    """
    if not contexts:
        return
    ids = [text for context in contexts for text in context.ids]
    texts = len(contexts[0].ids) if shared else 1
    widths = [context.n_packed for context in contexts] if shared else [len(text) for text in ids]
    for chosen in batches_of_similar_width(widths, max(1, batch_size // texts)):
        for part in _bounded(chosen, [texts * width**2 for width in widths], most_patterns):
            if shared:
                yield _packed_pass(contexts, part, mask_dtype)
            else:
                rows, mask = padded([ids[index] for index in part])
                yield ForwardPass(rows, mask, None, torch.tensor(part), mask.sum(1), None)


def _bounded(chosen: list[int], size: list[int], most: float) -> Iterator[list[int]]:
    """A batch in parts: members times the largest of their sizes stays within a bound."""
    start = 0
    for end in range(1, len(chosen) + 1):
        largest = max(size[index] for index in chosen[start:end])
        if end - start > 1 and (end - start) * largest > most:
            yield chosen[start : end - 1]
            start = end - 1
    yield chosen[start:]


def _packed_pass(
    contexts: Sequence[ContextTexts], chosen: list[int], mask_dtype: torch.dtype
) -> ForwardPass:
    width = max(contexts[i].n_packed for i in chosen)
    longest = max(max(contexts[i].n_tokens) for i in chosen)
    texts = len(contexts[0].ids)
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
