"""Triples and their twins to token ids, group by group, and which text of a group is which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.models.batching import common_prefix
from tda_bias.runs.cache import texts_hash
from tda_bias.triples import triple_ids
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
# Columns of the compared texts of an item, its own and those of its first twin.
TEXTS = ("stereotype", "anti_stereotype", "twin_stereotype", "twin_anti_stereotype")


@dataclass(frozen=True)
class ContextTexts:
    """Token ids of the texts of one context: of a triple, or of those of its twin that are read.

    Attributes:
        ids: One list of token ids per text, special tokens included; a triple's in the order of
            ``ROLES``.
        prefix: Number of leading tokens that all of them share.
    """

    ids: tuple[list[int], ...]
    prefix: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each text."""
        return tuple(len(ids) for ids in self.ids)

    @property
    def n_packed(self) -> int:
        """Tokens when the prefix is run once."""
        return sum(self.n_tokens) - (len(self) - 1) * self.prefix


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    triples: Sequence[Triple],
    *,
    max_tokens: int | None,
    roles: Sequence[Role] = ROLES,
) -> list[ContextTexts]:
    """Token ids of all texts, with the tokenizer's own special tokens.

    Args:
        tokenizer: The tokenizer.
        triples: The triples.
        max_tokens: The longest text the model takes; None for any.
        roles: Which of a triple's texts are read.

    Raises:
        InputError: if a text has no token, or more than ``max_tokens``; nothing is truncated.
    """
    places = [ROLES.index(role) for role in roles]
    texts = [triple.texts()[place] for triple in triples for place in places]
    ids = tokenizer(texts, truncation=False, verbose=False)["input_ids"] if texts else []
    result = []
    for index, triple in enumerate(triples):
        tokens = tuple(ids[len(places) * index : len(places) * (index + 1)])
        for text in tokens:
            if not text:
                raise InputError(f"{triple.source}: the tokenizer makes no token of a text")
            if max_tokens is not None and len(text) > max_tokens:
                raise InputError(
                    f"{triple.source} (group {triple.group}): a text has {len(text)} tokens, the "
                    f"model takes {max_tokens}; nothing is truncated, leave the item out"
                )
        result.append(ContextTexts(tokens, common_prefix(*tokens)))
    return result


# -- which text of a group is which ----------------------------------------------------------------


@dataclass(frozen=True)
class GroupLayout:
    """Places of a group's texts among all of them, whatever they are rows of.

    In this order: the stereotype texts, the anti-stereotype texts, the unrelated texts (where there
    are any), the stereotype texts of the twins, the anti-stereotype texts of the twins; each in the
    order of contexts, or of twins.

    Attributes:
        n: Number of contexts.
        n_unrelated: Number of unrelated texts: ``n``, or 0 for pairs.
        twin_of: ``(twin,)`` the context of each twin; a context may have several, or none.
    """

    n: int
    n_unrelated: int
    twin_of: Int[np.ndarray, " twin"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def n_twins(self) -> int:
        """Number of twins of all contexts together."""
        return len(self.twin_of)

    @property
    def n_texts(self) -> int:
        """Number of texts."""
        return 2 * self.n + self.n_unrelated + 2 * self.n_twins

    @property
    def stereotype(self) -> slice:
        """Places of the stereotype texts."""
        return slice(0, self.n)

    @property
    def anti(self) -> slice:
        """Places of the anti-stereotype texts."""
        return slice(self.n, 2 * self.n)

    @property
    def unrelated(self) -> slice:
        """Places of the unrelated texts."""
        return slice(2 * self.n, 2 * self.n + self.n_unrelated)

    @property
    def twin_stereotype(self) -> slice:
        """Places of the twins' stereotype texts."""
        start = 2 * self.n + self.n_unrelated
        return slice(start, start + self.n_twins)

    @property
    def twin_anti(self) -> slice:
        """Places of the twins' anti-stereotype texts."""
        start = self.twin_stereotype.stop
        return slice(start, start + self.n_twins)

    @cached_property
    def versions(self) -> Versions:
        """The triples and their twins, as what a test exchanges."""
        return Versions(np.concatenate([np.arange(self.n), self.twin_of]), self.n)


@dataclass(frozen=True)
class Versions:
    """Every context's triple and its twins: under the null hypothesis any could be the triple.

    Attributes:
        context: ``(version,)`` the context of each version: first all triples, then all twins.
        n: Number of contexts.
    """

    context: Int[np.ndarray, " version"]
    n: int

    def __len__(self) -> int:
        return len(self.context)

    @cached_property
    def n_twins(self) -> Int[np.ndarray, " context"]:
        """Twins of each context."""
        return np.bincount(self.context[self.n :], minlength=self.n)

    @cached_property
    def twinned(self) -> Int[np.ndarray, " twinned"]:
        """The contexts that have a twin; the others take no part."""
        return np.flatnonzero(self.n_twins)

    @cached_property
    def members(self) -> Sequence[Int[np.ndarray, " version"]]:
        """For every twinned context the places of its versions, the triple first."""
        return [np.flatnonzero(self.context == context) for context in self.twinned]

    def contrasts(
        self, values: Float[np.ndarray, "version ..."]
    ) -> Float[np.ndarray, "version ..."]:
        """Every version minus the mean of the others of its context; 0 without a twin."""
        contrasts = np.zeros(values.shape)
        for members in self.members:
            others = len(members) - 1
            sums = values[members].sum(0)
            contrasts[members] = ((others + 1) * values[members] - sums) / others
        return contrasts

    def weights(self, chosen: Int[np.ndarray, "... twinned"]) -> Float[np.ndarray, "... version"]:
        """Weights of all versions in a contrast of chosen ones with the means of the others.

        Args:
            chosen: For every twinned context which of its versions stands for the triple; 0 is the
                triple itself.

        Returns:
            1 for the chosen version, -1 / (number of the others) for these, 0 without a twin: the
            sum over contexts of (chosen minus mean of the others) is a product with it.
        """
        weights = np.zeros((len(self), *chosen.shape[:-1]))  # written version by version
        for place, members in enumerate(self.members):
            for number, version in enumerate(members):
                weights[version] = np.where(
                    chosen[..., place] == number, 1.0, -1.0 / (len(members) - 1)
                )
        return np.moveaxis(weights, 0, -1)

    @cached_property
    def given(self) -> Float[np.ndarray, " version"]:
        """The weights of the arrangement the data came in."""
        return self.weights(np.zeros(len(self.twinned), dtype=np.int64))


# -- groups ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizedGroup:
    """The texts of one group.

    Attributes:
        category: Its category.
        group: The group.
        contexts: The triples' texts.
        twins: The twins' stereotype and anti-stereotype texts.
        twin_of: ``(twin,)`` the context of each twin.
        items: What names the triples, and their texts.
    """

    category: str
    group: str
    contexts: list[ContextTexts]
    twins: list[ContextTexts]
    twin_of: list[int]
    items: list[dict[str, str]]

    @property
    def name(self) -> str:
        """The group's name among the saved parts."""
        return f"{self.category}/{self.group}"

    @property
    def depends_on(self) -> dict[str, str]:
        """Hash of the texts, and the twins: the group's numbers depend on them and on settings."""
        texts = [context.ids for context in (*self.contexts, *self.twins)]
        return {"texts": texts_hash(texts), "twin_of": ",".join(map(str, self.twin_of))}

    @property
    def cost(self) -> float:
        """Work beside other groups': passes grow with tokens, topology with their square."""
        tokens = self.lengths.astype(float)
        return float((tokens * (1 + tokens / _TOKENS_OF_EQUAL_COST)).sum())

    @property
    def layout(self) -> GroupLayout:
        """The places of its texts."""
        roles = len(self.contexts[0])
        unrelated = len(self.contexts) * (roles - 2)
        return GroupLayout(len(self.contexts), unrelated, np.array(self.twin_of, dtype=np.int64))

    @property
    def n_tokens(self) -> np.ndarray:
        """``(context, role)`` tokens of the triples' texts."""
        return np.array([context.n_tokens for context in self.contexts])

    @property
    def lengths(self) -> np.ndarray:
        """``(text,)`` tokens of every text, in the order of ``layout``."""
        twins = np.array([twin.n_tokens for twin in self.twins], dtype=int).reshape(-1, 2)
        return np.concatenate([self.n_tokens.T.reshape(-1), twins.T.reshape(-1)])

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the texts as they are read (context by context) among all, for triples and twins."""
        n, roles = self.n_tokens.shape
        context = torch.arange(n * roles)
        twin = torch.arange(2 * len(self.twins))
        of_twins = n * roles + (twin % 2) * len(self.twins) + twin // 2
        return (context % roles) * n + context // roles, of_twins


def tokenized_groups(
    model: LoadedModel, triples: Sequence[Triple], twins: Twins | None
) -> tuple[list[TokenizedGroup], list[dict[str, str]]]:
    """Usable triples by group with their twins, and those left out with the reason."""
    pairs = {triple.is_pair for triple in triples}
    if len(pairs) > 1:
        raise InputError("`triples` mixes triples with pairs, which have no unrelated text")
    roles = ROLES[:2] if True in pairs else ROLES
    tokens = tokenize(model.tokenizer, triples, max_tokens=model.max_tokens, roles=roles)
    twins_of = [twins.of(triple) if twins else () for triple in triples]
    flat = [twin for several in twins_of for twin in several]
    twin_tokens = iter(
        tokenize(model.tokenizer, flat, max_tokens=model.max_tokens, roles=ROLES[:2])
    )
    groups: dict[tuple[str, str], TokenizedGroup] = {}
    left_out = []
    names = triple_ids(triples)
    for triple, texts, several, name in zip(triples, tokens, twins_of, names, strict=True):
        key = (triple.category, triple.group)
        group = groups.setdefault(key, TokenizedGroup(*key, [], [], [], []))
        texts_of_twins = [next(twin_tokens) for _ in several]
        if min(texts.n_tokens) < MIN_TOKENS:
            reason = f"a text has fewer than {MIN_TOKENS} tokens and no value in dimension 1"
            left_out.append({"source": triple.source, "group": triple.group, "reason": reason})
            continue
        for twin in texts_of_twins:
            if min(twin.n_tokens) >= MIN_TOKENS:
                group.twins.append(twin)
                group.twin_of.append(len(group.contexts))
        group.contexts.append(texts)
        group.items.append({"id": name, **_texts_by_name(triple, several)})
    if not groups:
        raise InputError("`triples` is empty: there is nothing to compare")
    kind = "pair" if True in pairs else "triple"
    for group in groups.values():
        if len(group.contexts) < 2:
            raise InputError(
                f"the group {group.group!r} ({group.category}) has {len(group.contexts)} usable "
                f"{kind}, a variance needs 2; raise --limit, or name the groups to use with --group"
            )
    return [groups[key] for key in sorted(groups)], left_out


def _texts_by_name(triple: Triple, twins: Sequence[Triple]) -> dict[str, str]:
    """The texts that are compared, of a triple and of its first twin."""
    of_twin = twins[0].texts()[:2] if twins else ("", "")
    return dict(zip(TEXTS, (*triple.texts()[:2], *of_twin), strict=True))


def texts_record(
    groups: Sequence[TokenizedGroup], left_out: list[dict[str, str]]
) -> dict[str, Any]:
    """Counts of what was compared, what was left out and why, and a hash of all token ids."""
    contexts = [context for group in groups for context in group.contexts]
    return {
        "groups": len(groups),
        "triples_used": len(contexts),
        "triples_left_out": left_out,
        "tokens": sum(sum(context.n_tokens) for context in contexts),
        "tokens_with_prefixes_once": sum(context.n_packed for context in contexts),
        "hash": texts_hash([context.ids for context in contexts]),
    }
