"""Groups that are computed side by side, each with a copy of the model of its own.

A pass over short texts is too small for all threads to share: they wait for each other after every
layer's small steps, and for any other program that has a core. With a thread for each group nobody
waits. The copies have their weights in common.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tda_bias.heads.passes import ContextTexts
from tda_bias.heads.patterns import PatternReader
from tda_bias.models.load import LoadedModel
from tda_bias.models.shared_weights import copies_at_a_time
from tda_bias.threads import Pool

# Matrices of longer texts are worth sharing, and their patterns take memory.
_MOST_TOKENS = 128


def groups_at_a_time(model: LoadedModel, weights: str | None, longest: int, n_groups: int) -> int:
    """How many groups are computed at a time: as many as torch has threads, where that pays.

    Args:
        model: The model.
        weights: Hash of its weights now; None to take it where it decides, for it reads them all.
        longest: Tokens of the longest text.
        n_groups: How many there are.
    """
    most = copies_at_a_time(model, n_groups) if longest <= _MOST_TOKENS else 1
    if most > 1 and not model.can_be_copied(weights or model.weight_hash()):
        return 1
    return most


class Readers:
    """Readers of one model's patterns, as many as are used at the same time.

    Args:
        first: The first of them; the others are copies, made when they are needed.
    """

    def __init__(self, first: PatternReader) -> None:
        self._first = first
        self._readers = Pool(first, first.copied)
        self._lock = threading.Lock()

    def find_sharing(self, contexts: Sequence[ContextTexts]) -> None:
        """As the reader's, once for all of them."""
        with self._lock:
            self._first.find_sharing(contexts)

    def borrowed(self) -> AbstractContextManager[PatternReader]:
        """A reader that nobody else uses meanwhile."""
        return self._readers.borrowed()
