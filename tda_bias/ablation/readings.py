"""What a model is asked with many sets of heads ablated: passes planned once, and outcomes of them.

An ``Outcome`` is a few numbers of a model that are read from texts. Triples and their twins give
log-odds and beta; words in templates give risks (``word_outcome``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.language_model import Kind, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import as_trees, require_kind
from tda_bias.models.scoring import Scorer, TreePass
from tda_bias.models.token_trees import TokenTree
from tda_bias.scores.likelihood import first_predicted
from tda_bias.scores.texts import CONTEXT, split_triples
from tda_bias.store.cache import Part, texts_hash
from tda_bias.types import ROLES, InputError, Triple

# Kinds of models whose heads can be ablated while they read.
KINDS: tuple[Kind, ...] = ("causal", "masked", "seq2seq")
# Log-probabilities of what is read of each tree, nats.
Values = list[Float[np.ndarray, " reading"]]


@dataclass(frozen=True)
class Readings:
    """Forward passes over trees of tokens.

    Attributes:
        sizes: How many readings each tree has.
        passes: Makes each of the passes, those of the longest texts first; ``TreePass.tree`` is
            the number of a tree.
        tokens: How many tokens each pass runs, padding left out.
        packed: Whether a tree is one row, not one for each of its paths.
    """

    sizes: list[int]
    passes: list[Callable[[], TreePass]]
    tokens: list[int]
    packed: bool

    def parts(
        self,
        name: str,
        about: Mapping[str, Any],
        read: Callable[[TreePass], np.ndarray],
        *,
        times: int,
    ) -> list[Part]:
        """One part per pass, which is made when it is needed and not kept.

        Its cost is the number of tokens, as many ``times`` as the model reads them.
        """

        def part(number: int, make: Callable[[], TreePass], tokens: int) -> Part:
            @cache
            def depends_on() -> dict[str, Any]:
                return {"texts": _texts_hash(make()), "packed": self.packed, **about}

            def values() -> dict[str, np.ndarray]:
                return {"values": read(make())}

            return Part(f"{name} {number}", float(tokens) * times, depends_on, values)

        passes = zip(self.passes, self.tokens, strict=True)
        return [part(number, make, tokens) for number, (make, tokens) in enumerate(passes)]

    def by_tree(self, arrays: Iterable[Mapping[str, np.ndarray]], n_sets: int) -> list[Values]:
        """The readings of each tree, set by set, from the arrays of every pass."""
        read = [[np.full(size, np.nan) for size in self.sizes] for _ in range(n_sets)]
        for make, of_part in zip(self.passes, arrays, strict=True):
            tree_pass = make()
            ends = np.cumsum([len(which) for which in tree_pass.readings])[:-1]
            texts = list(zip(tree_pass.tree, tree_pass.readings, strict=True))
            for values, of_set in zip(read, of_part["values"], strict=True):
                for (text, which), value in zip(texts, np.split(of_set, ends), strict=True):
                    values[text][which] = value
        return read


class Outcome(Protocol):
    """A few numbers of a model, with and without heads, and how they follow from what it reads."""

    @property
    def name(self) -> str:
        """Names its saved parts, and the option that asks for it."""

    @property
    def read(self) -> str:
        """What is read, as tables and findings say it: ``120 words in 10 templates``."""

    @property
    def readings(self) -> Readings:
        """The passes in which everything is read."""

    def summary(self, values: Values) -> dict[str, float]:
        """The numbers, by name."""

    def slopes(self, values: Values) -> dict[str, Values]:
        """By the name of a number, its derivatives by every reading.

        They are those of the linear function that its present signs and largest entries fix.
        """


def _texts_hash(tree_pass: TreePass) -> str:
    """Hash of everything a pass reads, in order."""
    parts = [value.tolist() for value in tree_pass.inputs.values() if hasattr(value, "tolist")]
    parts += [places.tolist() for places in (tree_pass.places, tree_pass.place, tree_pass.token)]
    return texts_hash([(*parts, tree_pass.tree)])


def planned(
    model: LanguageModel,
    trees: Sequence[TokenTree],
    sources: Sequence[Sequence[int]],
    *,
    batch_size: int,
    texts_per_tree: int,
) -> Readings:
    """The passes over trees, and over what the encoder of an encoder-decoder reads for each."""
    scorer = Scorer(model, batch_size=batch_size, texts_per_tree=texts_per_tree)
    rows_of = scorer.plan(trees, sources)[::-1]
    encoded = [[len(sources[tree]) for tree in rows.tree] if sources else [] for rows in rows_of]
    return Readings(
        sizes=[len(tree.read_node) for tree in trees],
        passes=[partial(scorer.pass_of, rows, sources=sources) for rows in rows_of],
        tokens=[
            sum(map(len, rows.rows)) + sum(lengths)
            for rows, lengths in zip(rows_of, encoded, strict=True)
        ],
        packed=scorer.packed,
    )


@dataclass(frozen=True)
class TripleReadings(Readings):
    """Forward passes over triples and their twins, and what each of their readings belongs to.

    Attributes:
        n_triples: Number of triples; twins come after them.
        part: Per triple and twin, what each of its readings belongs to: 0, 1 or 2 for a
            continuation in the order of ``ROLES``, 3 for the context.
        twin_of: The triple of each twin.
        unrelated: Token ids of the unrelated texts with all special tokens.
    """

    n_triples: int
    part: list[Int[np.ndarray, " reading"]]
    twin_of: Int[np.ndarray, " twin"]
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
    require_kind(model, KINDS, "heads are removed from")
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
    read = planned(model, trees, sources, batch_size=batch_size, texts_per_tree=3)
    return TripleReadings(
        **vars(read),
        n_triples=n,
        part=[own.parts(tree) for own, tree in zip(used, trees, strict=True)],
        twin_of=np.repeat(np.arange(len(twins)), [len(its_twins) for its_twins in twins]),
        unrelated=[[*leading, *ids, *trailing] for ids in unrelated],
    )
