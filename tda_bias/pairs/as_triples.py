"""Pairs as what heads are ranked on: triples without an unrelated text."""

from __future__ import annotations

from tda_bias.pairs.pair import PairSet
from tda_bias.types import Triple


def pair_triples(pairs: PairSet) -> list[Triple]:
    """A triple without an unrelated text for each pair; the set's name is the category.

    What is compared within a group needs two texts. Only S, whose denominator is the spread of
    unrelated texts, is undefined for them.
    """
    return [
        Triple(
            group=pair.group,
            category=pairs.name,
            context=pair.context or "",
            stereotype=pair.more,
            anti_stereotype=pair.less,
            unrelated="",
            source=pair.source or pair.id,
        )
        for pair in pairs.pairs
    ]
