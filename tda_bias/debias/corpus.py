"""All texts of an experiment, and those of every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tda_bias.debias.domain import Domain
from tda_bias.debias.passages import NeutralPassages
from tda_bias.debias.protocol import Fold, Protocol
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import PairSet
from tda_bias.stats.seeds import generator

# Neutral passages and texts of other categories in a step: these are a third as long.
_PASSAGES, _OTHERS = 4, 12


@dataclass(frozen=True)
class Corpus:
    """All texts of an experiment, and the untouched model; there may be no other categories."""

    items: TwinTexts
    neutral: NeutralPassages
    domain: Domain | None = None
    pairs: Mapping[str, PairSet] = field(default_factory=dict)

    @property
    def model(self) -> LanguageModel:
        """The untouched model."""
        return self.items.model

    def reported_groups(self) -> dict[str, list[str]]:
        """Targets of the items of other categories that are reported, by category."""
        reported = self.domain.report if self.domain is not None else {}
        return {name: [t.group for t in items.triples] for name, items in reported.items()}


@dataclass(frozen=True)
class Batch:
    """The texts of a step, as numbers: items, neutral passages, texts of other categories."""

    items: list[int]
    passages: list[int]
    domain: list[int]


def batches(corpus: Corpus, fold: Fold, protocol: Protocol) -> list[Batch]:
    """The texts of every step: the same for every condition of a fold."""
    rng = generator(protocol.seed, "batches", str(fold.number))
    rng_of_domain = generator(protocol.seed, "batches of other categories", str(fold.number))
    n_passages = len(corpus.neutral.learn.ids)
    n_domain = len(corpus.domain.learn) if corpus.domain is not None else 0
    drawn = []
    for _ in range(protocol.epochs):
        order = rng.permutation(fold.train)
        for part in np.array_split(order, protocol.batches(len(order))):
            passages = rng.choice(n_passages, min(_PASSAGES, n_passages), replace=False)
            size = min(_OTHERS, n_domain)
            domain = rng_of_domain.choice(max(1, n_domain), size, replace=False)
            drawn.append(Batch(part.tolist(), passages.tolist(), domain.tolist()))
    return drawn
