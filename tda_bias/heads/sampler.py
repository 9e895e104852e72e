"""Patterns of one group to the Gram matrices of its step functions, some layers at a time."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tda_bias.heads.texts import MIN_TOKENS
from tda_bias.runs.text import counted
from tda_bias.threads import Task, in_threads
from tda_bias.topology.gram import Gram, gram_matrices
from tda_bias.topology.persistence import (
    Rows,
    directed,
    edge_weights,
    n_births,
    n_deaths,
    pays,
    ragged_births_deaths,
    tasks_of,
)
from tda_bias.topology.steps import StepGrid
from tda_bias.types import Attention, Backend, Combine, Distance, InputError

if TYPE_CHECKING:
    from tda_bias.heads.patterns import PatternBatch

# Number of births and deaths of a text, by homology dimension.
SIZE_OF = (n_births, n_deaths)
# Texts whose matrices torch works on together on a processor.
_TEXTS_TOGETHER = 8
# Beyond this, sets that wait for the rest of their group wait in a file.
MOST_BYTES = 256_000_000
# Sorted sets and Gram matrices that are in memory at a time when a group is complete.
WORKING_BYTES = 64_000_000


@dataclass(frozen=True)
class LayerGrams:
    """Gram matrices and sums of some layers of a group; dimension 0 first, on the CPU.

    Attributes:
        layers: Which, among the layers with attention; rows hold all heads of the first, then those
            of the next.
        gram: <f_i - c, f_j - c> over the number of steps, c the mean of the step functions of all
            texts of the group; squared attention-weight units.
        sums: Sums of the births and of the deaths, attention-weight units.
    """

    layers: range
    gram: tuple[Float64[Tensor, "row text text"], Float64[Tensor, "row text text"]]
    sums: tuple[Float64[Tensor, "row text"], Float64[Tensor, "row text"]]


class GroupSampler:
    """Takes the patterns of one group's texts and keeps what is computed from them.

    Births and deaths are computed as patterns come. Inner products need all texts of the group, so
    the sorted sets, half as large as the patterns, wait for the last one.

    Args:
        n_tokens: Numbers of tokens of all texts of the group, at least ``MIN_TOKENS``; the text
            indices of batches are places in it.
        n_layers: Layers with attention.
        attention: Direction of the model's attention.
        combine: As in ``births_deaths``.
        backend: As in ``births_deaths``.
        distance: As in ``StepGrid``.
        most_bytes: Memory for sorted sets that wait; beyond, they wait in a file without a name in
            the temporary folder, which the system removes whatever happens.

    Attributes:
        grids: One per dimension.

    Raises:
        InputError: if a text has too few tokens.
    """

    def __init__(
        self,
        n_tokens: Int[np.ndarray, " text"],
        *,
        n_layers: int,
        attention: Attention,
        combine: Combine,
        backend: Backend,
        distance: Distance,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._n_tokens = n_tokens
        if n_tokens.min() < MIN_TOKENS:
            raise InputError(
                f"a text has {counted(n_tokens.min(), 'token')}; births and deaths need "
                f"{MIN_TOKENS}"
            )
        self._n_layers = n_layers
        self._attention: Attention = attention
        self._combine: Combine = combine
        self._backend: Backend = backend
        self._most_bytes = most_bytes
        sizes = [np.array([size(n) for n in self._n_tokens.tolist()]) for size in SIZE_OF]
        self.grids = tuple(StepGrid.for_sizes(d, distance, sizes[d]) for d in range(2))
        # The births of all texts, then their deaths.
        ends = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        self._offsets = (ends[: len(self._n_tokens) + 1], ends[len(self._n_tokens) :])
        self._missing = set(range(len(self._n_tokens)))
        # Of the first batch, which knows heads, type and device.
        self._sets: Float[np.ndarray, "row value"] | None = None
        self._file: mmap.mmap | None = None
        self._device = torch.device("cpu")
        self._compiled = False

    # -- births and deaths --

    def add(self, batch: PatternBatch) -> None:
        """Births and deaths of the texts of a batch; patterns are not kept.

        Raises:
            InputError: if the temporary folder is full.
        """
        if self._sets is None:
            self._sets = self._prepared(batch.patterns)
        if self._compiled:
            self._add_compiled(batch, self._sets)
        else:
            self._add_batched(batch, self._sets)
        self._missing -= set(batch.text.tolist())
        self._forget()

    def _prepared(self, patterns: Tensor) -> Float[np.ndarray, "row value"]:
        """An empty row of births and deaths for every layer and head."""
        rows = self._n_layers * patterns.shape[2]
        self._device = patterns.device
        entries = rows * int((self._n_tokens**2).sum())
        self._compiled = self._backend == "mst" and pays(patterns.device, entries)
        dtype = np.dtype(np.float64 if patterns.dtype == torch.float64 else np.float32)
        shape = rows, int(self._offsets[1][-1])
        if rows * shape[1] * dtype.itemsize <= self._most_bytes:
            return np.empty(shape, dtype)
        self._file = _temporary_file(rows * shape[1] * dtype.itemsize)
        return np.frombuffer(self._file, dtype).reshape(shape)

    def _forget(self) -> None:
        """Let what is in the file count as memory of this process no longer."""
        if self._file is not None:
            self._file.madvise(mmap.MADV_DONTNEED)

    def _add_compiled(self, batch: PatternBatch, sets: np.ndarray) -> None:
        tasks: list[Task] = []
        lengths = batch.length.tolist()
        for place, (text, n) in enumerate(zip(batch.text.tolist(), lengths, strict=True)):
            patterns = batch.patterns[place, :, :, :n, :n].flatten(0, 1)
            both_directions, patterns = directed(patterns, self._attention, self._combine)
            births, deaths = (Rows(sets, int(offsets[text])) for offsets in self._offsets)
            tasks += tasks_of(patterns.numpy(), births, deaths, both_directions=both_directions)
        in_threads(tasks)

    def _add_batched(self, batch: PatternBatch, sets: np.ndarray) -> None:
        # Texts of similar length together: the work grows with the square of the longest.
        on_processor = batch.patterns.device.type == "cpu"
        together = _TEXTS_TOGETHER if on_processor else len(batch.text)
        for chosen in torch.split(batch.length.argsort(), together):
            lengths = batch.length[chosen]
            n = int(lengths.max())
            patterns = batch.patterns[chosen.to(batch.patterns.device), :, :, :n, :n]
            weights = edge_weights(
                patterns.flatten(1, 2), attention=self._attention, combine=self._combine
            )
            both = ragged_births_deaths(weights, lengths, backend=self._backend)
            computed = [values.cpu().numpy() for values in (both.births, both.deaths)]
            for index, text in enumerate(batch.text[chosen].tolist()):
                for offsets, values in zip(self._offsets, computed, strict=True):
                    start, stop = offsets[text : text + 2]
                    sets[:, start:stop] = values[index, :, : stop - start]

    # -- Gram matrices --

    def layers(self) -> Iterator[LayerGrams]:
        """The layers in order, once every text has been added; the sets are not kept.

        Raises:
            ValueError: if a text is missing.
        """
        if self._sets is None or self._missing:
            raise ValueError(f"{len(self._missing)} texts of the group are missing")
        sets, self._sets = self._sets, None
        heads = len(sets) // self._n_layers
        # Sets in memory are there already; those in a file are read a few rows at a time.
        row_bytes = sets[0].nbytes if self._file is not None else 0
        layer_bytes = heads * (2 * 8 * len(self._n_tokens) ** 2 + row_bytes)
        together = max(1, WORKING_BYTES // layer_bytes)
        step = max(1, WORKING_BYTES // row_bytes) if row_bytes else len(sets)
        for first in range(0, self._n_layers, together):
            layers = range(first, min(first + together, self._n_layers))
            parts: list[list[Gram]] = [[], []]
            for start in range(first * heads, layers.stop * heads, step):
                values = sets[start : min(start + step, layers.stop * heads)]
                for dim, grid in enumerate(self.grids):
                    parts[dim].append(self._gram(values, self._offsets[dim], grid))
                self._forget()
            births, deaths = (Gram.joined(grams) for grams in parts)
            products, sums = (births.products, deaths.products), (births.sums, deaths.sums)
            yield LayerGrams(layers, products, sums)

    def _gram(self, values: np.ndarray, offsets: np.ndarray, grid: StepGrid) -> Gram:
        if self._compiled:
            return gram_matrices(values, offsets, grid, compiled=True)
        # Not every device has double precision.
        where = torch.device("cpu") if self._device.type == "mps" else self._device
        return gram_matrices(torch.from_numpy(values).to(where), offsets, grid, compiled=False)


def _temporary_file(size: int) -> mmap.mmap:
    """A file of some bytes in the temporary folder, without a name, as memory.

    Raises:
        InputError: if there is no room for it.
    """
    try:
        with tempfile.TemporaryFile() as file:
            # Room is taken now: a mapped file that grows on a full disk kills the process.
            reserve: Any = getattr(os, "posix_fallocate", lambda _, __, size: file.truncate(size))
            reserve(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise InputError(
            f"a group's births and deaths need {size / 1e9:.1f} GB in {tempfile.gettempdir()}: "
            f"{error.strerror}; let TMPDIR name a larger folder, or use --limit"
        ) from error
