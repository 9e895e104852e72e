"""Texts of categories that nothing is trained on: they hold the model and show other biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tda_bias.debias.protocol import spread
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.scores.texts import split_triples
from tda_bias.stats.seeds import generator
from tda_bias.triples import Source
from tda_bias.twins import make_twins
from tda_bias.types import Triple

# Triples of other categories that hold the model, and of each category that test whether its own
# bias changed.
_LEARN, _REPORT = 96, 24


@dataclass(frozen=True)
class Domain:
    """Triples of other categories, in three parts that share no target.

    Attributes:
        learn: Token ids of whole texts, on which the divergence from the original is held down.
        watch: Items that count in the language-model score while training.
        report: Items with a twin by category, to see whether other biases changed.
    """

    learn: list[list[int]]
    watch: TwinTexts
    report: Mapping[str, TwinTexts]


def other_categories(
    source: Source[Triple], category: str, *, limit: int | None
) -> list[tuple[Triple, Sequence[Triple]]]:
    """Triples of the categories that nothing is trained on, with their twins, where there are."""
    others = [triple for triple in source.chosen(limit=limit) if triple.category != category]
    made = make_twins(others)
    return [(triple, made.of(triple)) for triple in others]


def domain_texts(
    model: LanguageModel,
    others: Sequence[tuple[Triple, Sequence[Triple]]],
    *,
    n_watch: int = 48,
    batch_size: int = 32,
    seed: int = 0,
) -> Domain | None:
    """Texts of other categories, given with their twins: each category's targets in three parts.

    Of the second part at most ``n_watch`` triples count in the language-model score.
    """
    parts: list[list[tuple[Triple, Sequence[Triple]]]] = [[], []]
    report: dict[str, TwinTexts] = {}
    for category in sorted({triple.category for triple, _ in others}):
        triples = [own for own in others if own[0].category == category]
        targets = sorted({triple.group for triple, _ in triples})
        order = generator(seed, "other categories", category).permutation(len(targets))
        thirds = [{targets[i] for i in part} for part in np.array_split(order, 3)]
        for part, third in zip(parts, thirds[:2], strict=True):
            part += [own for own in triples if own[0].group in third]
        tested = spread([own for own in triples if own[0].group in thirds[2] and own[1]], _REPORT)
        if tested:
            items, twins = [t for t, _ in tested], [its_twins[:1] for _, its_twins in tested]
            report[category] = TwinTexts(model, items, twins, batch_size=batch_size)
    learn, watch = spread(parts[0], _LEARN), spread(parts[1], n_watch)
    if not learn or not watch:
        return None
    leading = special_tokens_around(model.tokenizer)[0]
    texts = split_triples(model, [triple for triple, _ in learn])
    watched = TwinTexts(model, [t for t, _ in watch], [()] * len(watch), batch_size=batch_size)
    return Domain([[*leading, *ids] for text in texts for ids in text.ids], watched, report)
