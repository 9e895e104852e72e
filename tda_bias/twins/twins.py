"""Triples and their twins: what was made, what was left out and why."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tda_bias.types import Triple

Key = tuple[str, str, str, str, str, str]


def text_fields(triple: Triple) -> tuple[str, str, str, str]:
    """Context, stereotype, anti-stereotype and unrelated continuation."""
    return triple.context, triple.stereotype, triple.anti_stereotype, triple.unrelated


def with_texts(triple: Triple, group: str, texts: Iterable[str]) -> Triple:
    """A triple with another group and other texts, in the order of ``text_fields``."""
    context, stereotype, anti_stereotype, unrelated = texts
    return replace(
        triple,
        group=group,
        context=context,
        stereotype=stereotype,
        anti_stereotype=anti_stereotype,
        unrelated=unrelated,
    )


def content(triple: Triple) -> Key:
    """Content of a triple, wherever it stands: category, group and its four texts."""
    return (triple.category, triple.group, *text_fields(triple))


@dataclass(frozen=True, slots=True)
class Excluded:
    """A triple without a twin, and why.

    Attributes:
        triple: The triple.
        reason: The same words for the same reason, to be counted.
    """

    triple: Triple
    reason: str


@dataclass(frozen=True)
class Twins:
    """The twins of triples. Iterating gives each triple that has some, with them.

    Attributes:
        pairs: Triples with their twins; equal triples (but for their source) stand once.
        excluded: The triples that have none.
        made: How they were made or where they were read.
        note: Why there are none at all; else empty.
    """

    pairs: tuple[tuple[Triple, tuple[Triple, ...]], ...]
    excluded: tuple[Excluded, ...] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    _by_content: Mapping[Key, tuple[Triple, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        by_content = {content(triple): twins for triple, twins in self.pairs}
        object.__setattr__(self, "_by_content", by_content)

    def __iter__(self) -> Iterator[tuple[Triple, tuple[Triple, ...]]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        """Triples with twins."""
        return len(self.pairs)

    def of(self, triple: Triple) -> tuple[Triple, ...]:
        """The twins of a triple; none where there are none."""
        return self._by_content.get(content(triple), ())

    def only(self, triples: Iterable[Triple]) -> Twins:
        """The same for some of the triples.

        A triple's twins then do not depend on which others were selected with it.
        """
        wanted = {content(triple) for triple in triples}
        return replace(
            self,
            pairs=tuple(pair for pair in self.pairs if content(pair[0]) in wanted),
            excluded=tuple(e for e in self.excluded if content(e.triple) in wanted),
        )

    def reasons(self) -> dict[str, int]:
        """How many triples were left out, by reason, the most frequent first."""
        return dict(Counter(e.reason for e in self.excluded).most_common())

    def record(self) -> dict[str, Any]:
        """How the twins came about, and what identifies them, for run records and saved parts."""
        return {
            **self.made,
            "triples": len(self.pairs),
            "twins": sum(len(twins) for _, twins in self.pairs),
            "excluded": self.reasons(),
            "note": self.note,
            "hash": self.hash(),
        }

    def hash(self) -> str:
        """Hash of every triple with its twins, in whatever order they stand."""
        lines = sorted(
            json.dumps([content(triple), [content(twin) for twin in twins]])
            for triple, twins in self.pairs
        )
        return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
