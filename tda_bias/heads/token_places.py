"""Which tokens of a text are the target's, the context's and the continuation's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from tda_bias.twins.targets import shipped_kinds
from tda_bias.types import ROLES, InputError, Role, Triple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Whether places are read, and whether every text must have all of them.
PlacesAsked = Literal["none", "read", "needed"]


class TokenPlaces(NamedTuple):
    """Which tokens of a text are whose; those that the tokenizer adds are nobody's.

    Attributes:
        target: Of the words that name the target in the context.
        context: Of the context, the target's among them.
        continuation: Of what follows the context; all of a pair's, which has no context.
    """

    target: Bool[np.ndarray, " token"]
    context: Bool[np.ndarray, " token"]
    continuation: Bool[np.ndarray, " token"]

    @property
    def missing(self) -> str:
        """Why attention to the target or its context cannot be read; empty if it can."""
        if not self.target.any():
            return "the context does not name the target"
        if not (self.context & ~self.target).any():
            return "the context is nothing but the target"
        return "" if self.continuation.any() else "the continuation has no token of its own"


def token_places(
    tokenizer: PreTrainedTokenizerBase,
    triples: Sequence[Triple],
    *,
    roles: Sequence[Role] = ROLES,
) -> list[tuple[TokenPlaces, ...]]:
    """The places in each text of triples, in the order of ``roles``.

    Raises:
        InputError: if the tokenizer does not say which characters a token is of.
    """
    if not tokenizer.is_fast:
        raise InputError(
            "the model's tokenizer does not say which characters its tokens are of (it is no fast "
            "one); use --summary graph, graph-exact or flag, which need no places"
        )
    numbers = [ROLES.index(role) for role in roles]
    texts = [triple.texts()[number] for triple in triples for number in numbers]
    if not texts:
        return []
    encoded = tokenizer(texts, truncation=False, verbose=False, return_offsets_mapping=True)
    spans = [np.array(of_text, dtype=int).reshape(-1, 2) for of_text in encoded["offset_mapping"]]
    return [
        tuple(_places(triple, spans[len(numbers) * index + place]) for place in range(len(numbers)))
        for index, triple in enumerate(triples)
    ]


def _places(triple: Triple, spans: np.ndarray) -> TokenPlaces:
    start, end = spans.T
    real = end > start
    border = len(triple.context.strip())
    # A token may hold the space before its word: what counts is where it ends.
    context = real & (end <= border)
    continuation = real & ~context
    target = np.zeros(len(spans), dtype=bool)
    for first, last in target_spans(triple):
        target |= context & (start < last) & (end > first)
    return TokenPlaces(target, context, continuation)


def target_spans(triple: Triple) -> list[tuple[int, int]]:
    """Start and end of every place where the context names the target, in characters."""
    known = shipped_kinds().get(triple.group.casefold())
    words = r"\s+".join(map(re.escape, triple.group.split()))
    literal = re.compile(rf"(?<!\w){words}(?:s|es)?(?!\w)", re.IGNORECASE)
    pattern = literal if known is None else known.pattern
    context = triple.context.strip()
    return [match.span() for match in pattern.finditer(context)]
