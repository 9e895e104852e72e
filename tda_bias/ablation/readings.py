"""Passes over triples and their twins, planned once and run with many sets of heads ablated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import as_trees, require_kind
from tda_bias.models.scoring import Scorer, TreePass
from tda_bias.scores.likelihood import first_predicted
from tda_bias.scores.texts import CONTEXT, split_triples
from tda_bias.types import ROLES, InputError, Triple


@dataclass(frozen=True)
class TripleReadings:
    """Forward passes over triples, and what each of their readings belongs to.

    Attributes:
        n_triples: Number of triples; twins come after them.
        part: Per triple and twin, what each of its readings belongs to: 0, 1 or 2 for a
            continuation in the order of ``ROLES``, 3 for the context.
        twin_of: The triple of each twin.
        passes: Makes each of the passes, those of the longest texts first; ``TreePass.tree``
            counts triples, then twins.
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
        """Log-probability and number of tokens of each part, from readings per triple and twin."""
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
    """Forward passes over triples and the twins of each (empty for none at all), to be run.

    Causal models also read the contexts of the triples.
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
    # A twin's stereotype and anti-stereotype are all that is needed.
    used = split[:n] + [twin.first(2) for twin in split[n:]]
    first = first_predicted(model)
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
