"""Patterns of one group to the Gram matrices of its step functions, some layers at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tda_bias.heads.texts import MIN_TOKENS
from tda_bias.runs.text import counted
from tda_bias.threads import Task, in_threads
from tda_bias.topology.compiled import Rows, pays, tasks_of
from tda_bias.topology.gram import Gram, gram_matrices
from tda_bias.topology.persistence import (
    directed,
    edge_weights,
    n_births,
    n_deaths,
    ragged_births_deaths,
)
from tda_bias.topology.set_store import SetStore
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
    """What is left of some layers of a group; dimension 0 first, on the CPU.

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
    the sorted sets, half as large as the patterns, wait for the last one: see ``SetStore``.

    Args:
        n_tokens: Numbers of tokens of all texts of the group, at least ``MIN_TOKENS``; the text
            indices of batches are places in it.
        n_layers: Layers with attention.
        attention: Direction of the model's attention.
        combine: As in ``births_deaths``.
        backend: As in ``births_deaths``.
        distance: As in ``StepGrid``.
        most_bytes: Memory for sorted sets that wait; beyond, they wait in a file.

    Attributes:
        grids: One per dimension.

    Raises:
        InputError: if a text has fewer tokens.
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
        self._n_tokens = n_tokens.reshape(-1)
        if self._n_tokens.min() < MIN_TOKENS:
            raise InputError(
                f"a text has {counted(self._n_tokens.min(), 'token')}; births and deaths need "
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
        self._store: SetStore | None = None
        self._compiled = False

    def add(self, batch: PatternBatch) -> Iterator[LayerGrams]:
        """Births and deaths of a batch; patterns are not kept.

        Returns:
            With the last text of the group its layers in order, computed as they are taken;
            otherwise nothing.
        """
        store = self._store or self._prepared(batch.patterns)
        if self._compiled:
            self._add_compiled(batch, store)
        else:
            self._add_batched(batch, store)
        self._missing -= set(batch.text.tolist())
        if self._missing:
            return iter(())
        self._store = None
        return self._layers(store, batch.patterns.shape[2], batch.patterns.device)

    def _prepared(self, patterns: Tensor) -> SetStore:
        rows = self._n_layers * patterns.shape[2]
        entries = rows * int((self._n_tokens**2).sum())
        self._compiled = self._backend == "mst" and pays(patterns.device, entries)
        dtype = np.dtype(np.float64 if patterns.dtype == torch.float64 else np.float32)
        self._store = SetStore(rows, int(self._offsets[1][-1]), dtype, self._most_bytes)
        return self._store

    # -- sorted sets --

    def _add_compiled(self, batch: PatternBatch, store: SetStore) -> None:
        tasks: list[Task] = []
        lengths = batch.length.tolist()
        for place, (text, n) in enumerate(zip(batch.text.tolist(), lengths, strict=True)):
            patterns = batch.patterns[place, :, :, :n, :n].flatten(0, 1)
            both_directions, patterns = directed(patterns, self._attention, self._combine)
            tasks += self._tasks(patterns.numpy(), text, both_directions, store)
        in_threads(tasks)

    def _tasks(
        self,
        patterns: Float[np.ndarray, "row n n"],
        text: int,
        both_directions: bool,
        store: SetStore,
    ) -> list[Task]:
        columns = [int(offsets[text]) for offsets in self._offsets]
        if store.array is not None:
            births, deaths = (Rows(store.array, column) for column in columns)
            return tasks_of(patterns, births, deaths, both_directions=both_directions)
        sizes = [size(patterns.shape[1]) for size in SIZE_OF]
        sets = [np.empty((len(patterns), size), patterns.dtype) for size in sizes]

        def write(rows: slice) -> None:
            for values, column in zip(sets, columns, strict=True):
                store.write(rows.start, column, values[rows])

        births, deaths = (Rows(values) for values in sets)
        return tasks_of(patterns, births, deaths, both_directions=both_directions, done=write)

    def _add_batched(self, batch: PatternBatch, store: SetStore) -> None:
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
            sets = [values.cpu().numpy() for values in (both.births, both.deaths)]
            texts = batch.text[chosen].tolist()
            for index, (text, length) in enumerate(zip(texts, lengths.tolist(), strict=True)):
                for size, offsets, values in zip(SIZE_OF, self._offsets, sets, strict=True):
                    store.write(0, int(offsets[text]), values[index, :, : size(length)])

    # -- Gram matrices --

    def _layers(self, store: SetStore, heads: int, device: torch.device) -> Iterator[LayerGrams]:
        layer_bytes = heads * (2 * 8 * len(self._n_tokens) ** 2 + store.row_bytes)
        together = max(1, WORKING_BYTES // layer_bytes)
        for first in range(0, self._n_layers, together):
            layers = range(first, min(first + together, self._n_layers))
            rows = range(first * heads, layers.stop * heads)
            births, deaths = self._grams(store, rows, device)
            products, sums = (births.products, deaths.products), (births.sums, deaths.sums)
            yield LayerGrams(layers, products, sums)

    def _grams(self, store: SetStore, rows: range, device: torch.device) -> list[Gram]:
        """Of births and of deaths, over some rows of the store, read a few at a time."""
        step = max(1, WORKING_BYTES // store.row_bytes) if store.row_bytes else len(rows)
        parts: list[list[Gram]] = [[], []]
        for start in range(rows.start, rows.stop, step):
            values = store.read(slice(start, min(start + step, rows.stop)))
            for dim, grid in enumerate(self.grids):
                parts[dim].append(self._gram(values, self._offsets[dim], grid, device))
        return [Gram.joined(grams) for grams in parts]

    def _gram(
        self, values: np.ndarray, offsets: np.ndarray, grid: StepGrid, device: torch.device
    ) -> Gram:
        if self._compiled:
            return gram_matrices(values, offsets, grid, compiled=True)
        # Not every device has double precision.
        where = torch.device("cpu") if device.type == "mps" else device
        return gram_matrices(torch.from_numpy(values).to(where), offsets, grid, compiled=False)
