"""Texts that stand against each other, read in blocks that are saved and shared by processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tda_bias.models.load import LanguageModel
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, Store, texts_hash
from tda_bias.runs.work import Job
from tda_bias.scores.text_likelihood import (
    READINGS,
    Contrast,
    Reading,
    Start,
    TokenScores,
    text_log_probs,
    tokenize,
)

# Contrasts whose readings are kept in one file: a stopped run loses at most so many.
_BLOCK = 128


@dataclass(frozen=True)
class TextReader:
    """Reads contrasts block by block, so that what comes out is the same whoever reads a block.

    Attributes:
        model: A causal, masked or sequence-to-sequence language model.
        batch_size: Texts per forward pass.
        start: As in ``text_log_probs``.
        share_prefix: As in ``text_log_probs``.
        store: Given what the readings depend on, returns the store in which they are kept and
            looked up; without it nothing is saved on the way.
        progress: Called with finished contrasts and all.
    """

    model: LanguageModel
    batch_size: int = 32
    start: Start = "tokenizer"
    share_prefix: str = "auto"
    store: Store | None = None
    progress: Progress | None = None

    def read(
        self, named: Mapping[str, Sequence[Contrast]]
    ) -> dict[str, dict[Reading, list[TokenScores]]]:
        """Log-probabilities of the scored tokens of every text.

        Args:
            named: Contrasts, by a name for the saved parts: ``pairs``, ``whole sentences``.

        Returns:
            By the same names what ``text_log_probs`` gives.

        Raises:
            InputError: as ``text_log_probs``, or if the store holds readings of something else.
            ShareDone: if the store's parts are shared by several processes and another one gathers.
        """
        jobs: dict[str, list[Job]] = {}
        total, done = sum(map(len, named.values())), 0
        for name, contrasts in named.items():
            blocks = range(0, len(contrasts), _BLOCK)
            jobs[name] = [self._job(name, contrasts, first, done, total) for first in blocks]
            done += len(contrasts)
        store = PartStore(None, {}) if self.store is None else self.store(self._identity())
        parts = store.each([job for of_name in jobs.values() for job in of_name])
        read: dict[str, dict[Reading, list[TokenScores]]] = {}
        done = 0
        for name, contrasts in named.items():
            read[name] = _joined(
                [_from_arrays(arrays) for arrays in islice(parts, len(jobs[name]))]
            )
            done += len(contrasts)
            self._tell(done, total)
        return read

    def _job(
        self, name: str, contrasts: Sequence[Contrast], first: int, before: int, total: int
    ) -> Job:
        block = contrasts[first : first + _BLOCK]

        def computed() -> dict[str, np.ndarray]:
            return _as_arrays(
                text_log_probs(
                    self.model,
                    block,
                    batch_size=self.batch_size,
                    start=self.start,
                    share_prefix=self.share_prefix,
                    progress=lambda done, _: self._tell(before + first + done, total),
                )
            )

        return Job(
            f"{name} {first + 1} to {first + len(block)}",
            float(sum(len(text) for contrast in block for text in contrast.texts)),
            lambda: {"texts": self._hash(block)},
            computed,
        )

    def _identity(self) -> dict[str, Any]:
        """Identity of saved readings, beside the texts."""
        model = self.model
        about = {"format": 1, "model": model.name, "weights": model.weight_hash()}
        return {**about, "dtype": model.dtype_name, "kind": model.kind, "start": self.start}

    def _hash(self, block: Sequence[Contrast]) -> str:
        """Of the tokens of some contrasts, and of what of them is scored in which way."""
        return texts_hash(
            [
                (
                    [contrast.context],
                    *contrast.ids,
                    *(places.tolist() for places in contrast.scored),
                    *(contrast.word or ()),
                )
                for contrast in tokenize(self.model, block)
            ]
        )

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _as_arrays(readings: Mapping[Reading, Sequence[TokenScores]]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for reading, several in readings.items():
        texts = [tokens for of_contrast in several for tokens in of_contrast]
        arrays[reading] = np.concatenate(texts)
        arrays[f"{reading} tokens"] = np.array(
            [[len(tokens) for tokens in of_contrast] for of_contrast in several]
        )
    return arrays


def _from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[Reading, list[TokenScores]]:
    readings: dict[Reading, list[TokenScores]] = {}
    for reading in READINGS:
        if reading not in arrays:
            continue
        sizes = arrays[f"{reading} tokens"]
        texts = iter(np.split(arrays[reading], np.cumsum(sizes.reshape(-1))[:-1]))
        readings[reading] = [tuple(next(texts) for _ in of_contrast) for of_contrast in sizes]
    return readings


def _joined(blocks: Sequence[dict[Reading, list[TokenScores]]]) -> dict[Reading, list[TokenScores]]:
    """Blocks one after the other, in the readings that all of them have."""
    shared = [reading for reading in READINGS if all(reading in block for block in blocks)]
    return {
        reading: [scores for block in blocks for scores in block[reading]] for reading in shared
    }
