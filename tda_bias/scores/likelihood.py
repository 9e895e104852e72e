"""Log-probabilities of continuations given their context, for every kind of language model.

Causal models: the continuation's tokens, one after the other, the context run once for the three
texts of a triple. Masked models: the pseudo-log-likelihood, each token of the continuation masked
in turn (Salazar et al. 2020). Encoder-decoders: the decoder fills a gap behind the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.batching import common_prefix, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import Request, as_trees, require_kind
from tda_bias.models.scoring import Scorer, TreePass
from tda_bias.models.token_trees import TokenTree
from tda_bias.progress import Progress
from tda_bias.types import ROLES, InputError, Triple

# What a reading belongs to, behind the continuations 0, 1 and 2 in the order of ``ROLES``.
CONTEXT = 3
# Texts of a triple that a twin needs: the stereotype and the anti-stereotype.
_OF_A_TWIN = 2


@dataclass(frozen=True)
class TripleLikelihood:
    """Log-probabilities of the tokens of a triple's continuations, in the order of ``ROLES``.

    Attributes:
        tokens: One array per continuation.
    """

    tokens: tuple[Float[np.ndarray, " token"], ...]

    @property
    def total(self) -> Float[np.ndarray, " role"]:
        """Log-probability of each continuation."""
        return np.array([values.sum() for values in self.tokens])

    @property
    def mean(self) -> Float[np.ndarray, " role"]:
        """The same per token."""
        return np.array([values.mean() for values in self.tokens])

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens of each continuation."""
        return tuple(len(values) for values in self.tokens)


@dataclass(frozen=True)
class SplitTriple:
    """Token ids of a triple's texts without special tokens, and where continuations begin.

    Attributes:
        ids: In the order of ``ROLES``; fewer than three are the first of them.
        start: Index of each continuation's first token.
    """

    ids: tuple[list[int], ...]
    start: tuple[int, ...]

    def first(self, n: int) -> SplitTriple:
        """The first texts alone."""
        return SplitTriple(self.ids[:n], self.start[:n])

    def request(self, before: str = "", *, context_from: int | None = None) -> Request:
        """Every token of the continuations, text by text.

        Args:
            before: The context as a text.
            context_from: Read the context's tokens from this one on too, before the others. Where a
                token covers the end of the context and the beginning of a continuation, what all
                texts share is the context.
        """
        context = min(self.start)
        read = [
            (text, range(start, len(ids)))
            for text, (ids, start) in enumerate(zip(self.ids, self.start, strict=True))
        ]
        if context_from is not None:
            read.insert(0, (0, range(context_from, context)))
        return Request(self.ids, tuple(read), context, before)

    @property
    def n_read(self) -> list[int]:
        """Tokens of each continuation."""
        return [len(ids) - start for ids, start in zip(self.ids, self.start, strict=True)]

    def parts(self, tree: TokenTree) -> Int[np.ndarray, " reading"]:
        """Owner of each reading of the ``request``: a continuation's number, or ``CONTEXT``."""
        n_context = len(tree.read_node) - sum(self.n_read)
        return np.repeat([CONTEXT, *range(len(self.ids))], [n_context, *self.n_read])


def split_triples(model: LanguageModel, triples: Sequence[Triple]) -> list[SplitTriple]:
    """Tokenise contexts and whole texts; a token that covers both belongs to the continuation.

    Raises:
        InputError: if a context or a continuation has no token of its own.
    """
    tokenizer = model.tokenizer
    contexts = [triple.context.strip() for triple in triples]
    texts = [text for triple in triples for text in triple.texts()]
    context_ids = tokenizer(contexts, add_special_tokens=False)["input_ids"] if triples else []
    text_ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if triples else []
    split = []
    for number, (triple, context) in enumerate(zip(triples, context_ids, strict=True)):
        of_triple = tuple(text_ids[3 * number : 3 * number + 3])
        start = tuple(common_prefix(context, ids) for ids in of_triple)
        if min(start) == 0 or any(s == len(ids) for s, ids in zip(start, of_triple, strict=True)):
            raise InputError(
                f"{triple.source}: the tokenizer makes no token of the context or a continuation"
            )
        split.append(SplitTriple(of_triple, start))
    return split


def triple_likelihoods(
    model: LanguageModel,
    triples: Sequence[Triple],
    *,
    batch_size: int = 32,
    share_prefix: str = "auto",
    progress: Progress | None = None,
) -> list[TripleLikelihood]:
    """Log-probabilities of every continuation of every triple.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: The texts.
        batch_size: Texts per forward pass.
        share_prefix: ``auto`` or ``never``: run a causal model's context once per triple.
        progress: Called with finished triples and all.

    Raises:
        InputError: if the model has no language-model head or is of another kind, or a text is too
            long for it, or a log-probability is NaN.
    """
    require_kind(model, ("causal", "masked", "seq2seq"), "continuations are scored with")
    split = split_triples(model, triples)
    requests = [
        own.request(triple.context.strip()) for own, triple in zip(split, triples, strict=True)
    ]
    scorer = Scorer(model, batch_size=batch_size, texts_per_tree=3, share_prefix=share_prefix)
    values = scorer.log_probs(*as_trees(model, requests), progress=progress)
    return [
        TripleLikelihood(tuple(np.split(of_triple, np.cumsum(own.n_read)[:-1])))
        for own, of_triple in zip(split, values, strict=True)
    ]


# -- passes over triples and their twins -----------------------------------------------------------


@dataclass(frozen=True)
class TripleReadings:
    """Forward passes over triples, and what each of their readings belongs to.

    Attributes:
        n_triples: Number of triples; twins come behind them.
        part: Per triple and twin, what each of its readings belongs to: 0, 1 or 2 for a
            continuation in the order of ``ROLES``, 3 for the context.
        twin_of: The triple of each twin.
        passes: Makes each of the passes, those of the longest texts first: side by side, no thread
            then waits long for another at the end. ``TreePass.tree`` counts triples, then twins.
        tokens: How many tokens each pass runs, padding left out.
        packed: Whether a triple's texts are one row.
        unrelated: Token ids of the unrelated texts with all special tokens.
    """

    n_triples: int
    part: list[Int[np.ndarray, " reading"]]
    twin_of: Int[np.ndarray, " twin"]
    passes: list[Callable[[], TreePass]]
    tokens: list[int]
    packed: bool
    unrelated: list[list[int]]

    def sums(
        self, values: Sequence[Float[np.ndarray, " reading"]]
    ) -> tuple[Float[np.ndarray, "text part"], Int[np.ndarray, "text part"]]:
        """Log-probability and number of tokens of each part of each triple and twin.

        Args:
            values: Readings per triple and twin.
        """
        size = CONTEXT + 1
        pairs = list(zip(values, self.part, strict=True))
        total = np.array([np.bincount(part, own, size) for own, part in pairs])
        count = np.array([np.bincount(part, minlength=size) for part in self.part])
        return total, count


def triple_readings(
    model: LanguageModel,
    triples: Sequence[Triple],
    twins: Sequence[Sequence[Triple]],
    *,
    batch_size: int,
) -> TripleReadings:
    """Forward passes over triples and their twins, which somebody else runs.

    Causal models also read the contexts of the triples.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: The texts.
        twins: Per triple its twins, none or more; empty for no twins at all.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if the model is of another kind or has no language-model head, or a text does
            not fit.
    """
    require_kind(model, ("causal", "masked", "seq2seq"), "heads are removed from")
    if not triples:
        raise InputError("there is no triple to read")
    every = [*triples, *(twin for its_twins in twins for twin in its_twins)]
    split = split_triples(model, every)
    n = len(triples)
    leading, trailing = special_tokens_around(model.tokenizer)
    trailing = [] if model.kind == "causal" else trailing
    unrelated = [triple.ids[ROLES.index("unrelated")] for triple in split[:n]]
    used = split[:n] + [twin.first(_OF_A_TWIN) for twin in split[n:]]
    # Nothing predicts a first token.
    first = (0 if leading else 1) if model.kind == "causal" else None
    requests = [
        own.request(text.context.strip(), context_from=first if number < n else None)
        for number, (own, text) in enumerate(zip(used, every, strict=True))
    ]
    trees, sources = as_trees(model, requests)
    scorer = Scorer(model, batch_size=batch_size, texts_per_tree=3)
    planned = scorer.plan(trees, sources)[::-1]
    encoded = [[len(sources[tree]) for tree in rows.tree] if sources else [] for rows in planned]
    return TripleReadings(
        n_triples=n,
        part=[own.parts(tree) for own, tree in zip(used, trees, strict=True)],
        twin_of=np.repeat(np.arange(len(twins)), [len(its_twins) for its_twins in twins]),
        passes=[partial(scorer.pass_of, rows, sources=sources) for rows in planned],
        tokens=[
            sum(map(len, rows.rows)) + sum(lengths)
            for rows, lengths in zip(planned, encoded, strict=True)
        ],
        packed=scorer.packed,
        unrelated=[[*leading, *ids, *trailing] for ids in unrelated],
    )
