"""A minimal pair of texts, sets of them, and the words in which texts differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from tda_bias.script import Span, words
from tda_bias.show.text import is_visible
from tda_bias.store.record import DataRecord
from tda_bias.types import InputError, Triple

Scored = Literal["whole", "shared", "difference"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that differ in what is tested, and in as little else as possible.

    Attributes:
        id: Its name within the set.
        set: The set it belongs to.
        group: What it is about: an occupation, a bias type, a paradigm.
        more: The text that is stereotypical, or grammatical.
        less: The other one.
        context: What both texts continue, if anything; then only the continuation is scored.
        type: A division of the set that its own score is given for.
        scored: ``whole``: the whole text, or the whole continuation; ``difference``: the words in
            which the two differ; ``shared``: what they have in common, given what differs. The last
            is a quantity of masked models; for others it means ``whole``.
        cluster: Pairs that are no independent draws (a writer, an occupation) share it.
        source: Where the pair stands, for messages.
    """

    id: str
    set: str
    group: str
    more: str
    less: str
    context: str | None = None
    type: str | None = None
    scored: Scored = "whole"
    cluster: str | None = None
    source: str = ""

    def texts(self) -> tuple[str, str]:
        """The two full texts: the context, where there is one, one space, and what follows."""
        before = f"{self.context.strip()} " if self.context else ""
        return before + self.more.strip(), before + self.less.strip()

    @property
    def unit(self) -> str:
        """Name of what is drawn when pairs are resampled."""
        return self.group if self.cluster is None else self.cluster


@dataclass(frozen=True)
class PairSet:
    """Pairs in the order of their source, with what is known of them together.

    Attributes:
        name: As in ``SETS``, or what a user's file says.
        pairs: The pairs.
        source: Where they were read.
        revision: What pins their content: the hub's commit, or a hash of the files' bytes.
        uneven: Ids of pairs whose texts differ in more than what is tested: slips of the source,
            which are part of the official score.
        remarks: What is to be said of the source, a sentence each.
    """

    name: str
    pairs: tuple[Pair, ...]
    source: str
    revision: str | None
    uneven: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def record(self) -> DataRecord:
        """The source, for the record of a run."""
        return DataRecord(source=self.source, revision=self.revision, remarks=self.remarks)


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


def is_evaluation_only(name: str) -> bool:
    """Tell whether a set's name is that of texts that must not be trained on."""
    languages = "en|eng|enrevised|fr|french|nl|dutch"
    return (
        re.fullmatch(rf"crows(pairs.*|{languages})?", re.sub(r"[^a-z]", "", name.lower()))
        is not None
    )


def checked(pair: Pair) -> Pair:
    """The same pair, if its texts can be compared."""
    for name in ("id", "group", "more", "less"):
        if not is_visible(getattr(pair, name)):
            raise InputError(f"{pair.source}: `{name}` must be a text that is not empty")
    if pair.context is not None and not is_visible(pair.context):
        raise InputError(f"{pair.source}: `context` must be left out or a text that is not empty")
    if are_equal(pair):
        raise InputError(f"{pair.source}: `more` and `less` are the same text: {pair.more!r}")
    return pair


def are_equal(pair: Pair) -> bool:
    """Tell whether the two texts of a pair are one."""
    return pair.more.split() == pair.less.split()


def differing_spans(texts: Sequence[str]) -> tuple[Span, ...]:
    """The characters from the first to the last word in which texts differ.

    Returns:
        For each text first and past-the-last character; an empty range where a text has no word of
        its own (it lacks a word the others have).
    """
    spans = [words(text) for text in texts]
    spelled = [
        [text[start:stop] for start, stop in places]
        for text, places in zip(texts, spans, strict=True)
    ]
    first = _common(spelled)
    rest = [words_of[first:] for words_of in spelled]
    last = _common([words_of[::-1] for words_of in rest])
    differing = []
    for text, places in zip(texts, spans, strict=True):
        kept = places[first : len(places) - last]
        if kept:
            differing.append((kept[0][0], kept[-1][1]))
        else:
            place = places[first][0] if first < len(places) else len(text)
            differing.append((place, place))
    return tuple(differing)


def _common(sequences: Sequence[Sequence[str]]) -> int:
    """Number of first words that sequences share."""
    return sum(
        1 for _ in takewhile(lambda items: len(set(items)) == 1, zip(*sequences, strict=False))
    )
