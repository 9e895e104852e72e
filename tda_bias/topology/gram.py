"""Patterns of a group's texts to inner products of their step functions, some layers at a time.

Everything that is computed of a group follows from these products about the texts' mean: squared
distances to any centre, hence variances, and differences. Steps are made and used a block at a
time: a (text, step) array never exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import assert_never

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tda_bias.topology.exact import exact_gram_matrices
from tda_bias.topology.persistence import (
    Rows,
    Task,
    at_least_single,
    edge_weights,
    in_threads,
    n_births,
    n_deaths,
    padded_births_deaths,
    pays,
    tasks_of,
)
from tda_bias.topology.room import Room
from tda_bias.topology.steps import step_columns
from tda_bias.types import Attention, GraphSummary

# Number of births and deaths of a text, by homology dimension.
_SIZE_OF = (n_births, n_deaths)
# Texts whose matrices torch works on together on a processor.
_TEXTS_TOGETHER = 8
# Sorted sets and Gram matrices that are in memory at a time when a group is complete.
WORKING_BYTES = 64_000_000
# Step values in double precision that torch works on at a time.
_BLOCK_ELEMENTS = 8_000_000
# Steps that one task of a thread sums over at most, and products, about a millisecond's, that it
# takes at least where a row has fewer.
_TASK_STEPS = 1 << 15
_TASK_PRODUCTS = 8_000_000


class GroupSampler:
    """Takes the patterns of one group's texts and keeps what is computed from them.

    Births and deaths are computed as patterns come. Inner products need all texts of the group, so
    the sorted sets, half as large as the patterns, wait for the last one.

    ``n_tokens`` are those of all texts of the group, at least 3 each; the text indices of batches
    are places in it. ``n_steps`` is by dimension the size of the group's largest set; ``summary``
    says whether sets are smoothed to it (``graph``) or compared as they are (``graph-exact``).
    """

    euclidean = True

    def __init__(
        self,
        n_tokens: Int[np.ndarray, " text"],
        *,
        n_layers: int,
        attention: Attention,
        summary: GraphSummary = "graph",
    ) -> None:
        self._n_tokens = n_tokens
        self._n_layers = n_layers
        self._attention: Attention = attention
        self._gram = products_of(summary)
        sizes = [np.array([size(n) for n in self._n_tokens.tolist()]) for size in _SIZE_OF]
        self.n_steps = [int(of_dim.max()) for of_dim in sizes]
        # The births of all texts, then their deaths.
        ends = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        self._offsets = (ends[: len(self._n_tokens) + 1], ends[len(self._n_tokens) :])
        self._missing = set(range(len(self._n_tokens)))
        # Of the first batch, which knows heads, type and device.
        self._sets: Room | None = None
        self._device = torch.device("cpu")
        self._compiled = False

    # -- births and deaths --

    def add(
        self,
        patterns: Float[Tensor, "text layer head query key"],
        text: Int[Tensor, " text"],
        length: Int[Tensor, " text"],
    ) -> None:
        """Births and deaths of some texts; patterns, anything beyond a text's length, are not kept.

        Raises:
            InputError: if the temporary folder is full.
        """
        if self._sets is None:
            self._sets = self._prepared(patterns)
        if self._compiled:
            self._add_compiled(patterns, text, length, self._sets.array)
        else:
            self._add_batched(patterns, text, length, self._sets.array)
        self._missing -= set(text.tolist())
        self._sets.forget()

    def _prepared(self, patterns: Tensor) -> Room:
        rows = self._n_layers * patterns.shape[2]
        self._device = patterns.device
        entries = rows * int((self._n_tokens**2).sum())
        self._compiled = pays(patterns.device, entries)
        dtype = np.dtype(np.float64 if patterns.dtype == torch.float64 else np.float32)
        return Room((rows, int(self._offsets[1][-1])), dtype)

    def _add_compiled(
        self, patterns: Tensor, text: Tensor, length: Tensor, sets: np.ndarray
    ) -> None:
        tasks: list[Task] = []
        for place, (number, n) in enumerate(zip(text.tolist(), length.tolist(), strict=True)):
            matrices = patterns[place, :, :, :n, :n].flatten(0, 1)
            births, deaths = (Rows(sets, int(offsets[number])) for offsets in self._offsets)
            weights = at_least_single(matrices).numpy()
            tasks += tasks_of(weights, births, deaths, self._attention)
        in_threads(tasks)

    def _add_batched(
        self, patterns: Tensor, text: Tensor, length: Tensor, sets: np.ndarray
    ) -> None:
        # Texts of similar length together: the work grows with the square of the longest.
        together = _TEXTS_TOGETHER if patterns.device.type == "cpu" else len(text)
        for chosen in torch.split(length.argsort(), together):
            lengths = length[chosen]
            n = int(lengths.max())
            matrices = patterns[chosen.to(patterns.device), :, :, :n, :n]
            weights = edge_weights(matrices.flatten(1, 2), self._attention)
            both = padded_births_deaths(weights, lengths)
            computed = [values.cpu().numpy() for values in both]
            for index, number in enumerate(text[chosen].tolist()):
                for offsets, values in zip(self._offsets, computed, strict=True):
                    start, stop = offsets[number : number + 2]
                    sets[:, start:stop] = values[index, :, : stop - start]

    # -- Gram matrices --

    def layers(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Gram matrices and sums, some layers at a time, once every text has been added.

        Yields:
            As ``gram_matrices``, dimension 0 first; rows hold all heads of the first layer, then
            those of the next. The sets are not kept.

        Raises:
            ValueError: if a text is missing.
        """
        if self._sets is None or self._missing:
            raise ValueError(f"{len(self._missing)} texts of the group are missing")
        room, self._sets = self._sets, None
        sets = room.array
        heads = len(sets) // self._n_layers
        # Sets in memory are there already; those in a file are read a few rows at a time.
        row_bytes = sets[0].nbytes if room.in_file else 0
        layer_bytes = heads * (2 * 8 * len(self._n_tokens) ** 2 + row_bytes)
        together = max(1, WORKING_BYTES // layer_bytes)
        step = max(1, WORKING_BYTES // row_bytes) if row_bytes else len(sets)
        for first in range(0, self._n_layers, together):
            end = min(first + together, self._n_layers) * heads
            parts: list[list[tuple[Tensor, Tensor]]] = [[], []]
            for start in range(first * heads, end, step):
                values = sets[start : min(start + step, end)]
                # Not every device has double precision.
                where = torch.device("cpu") if self._device.type == "mps" else self._device
                some = values if self._compiled else torch.from_numpy(values).to(where)
                for of_dim, offsets, n in zip(parts, self._offsets, self.n_steps, strict=True):
                    of_dim.append(self._gram(some, offsets, n))
                room.forget()
            yield [(_joined(grams), _joined(sums)) for grams, sums in map(_unzipped, parts)]


def _unzipped(pairs: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], list[Tensor]]:
    return [gram for gram, _ in pairs], [sums for _, sums in pairs]


def _joined(some: list[Tensor]) -> Tensor:
    return some[0] if len(some) == 1 else torch.cat(some)


def products_of(summary: GraphSummary) -> Callable[..., tuple[Tensor, Tensor]]:
    """What makes inner products of sorted sets: of step functions, or of the sets as they are."""
    match summary:
        case "graph":
            return gram_matrices
        case "graph-exact":
            return exact_gram_matrices
        case _:
            assert_never(summary)


# -- one dimension ---------------------------------------------------------------------------------


def gram_matrices(
    values: Float[np.ndarray | Tensor, "row values"],
    offsets: Int[np.ndarray, " text+1"],
    n_steps: int,
) -> tuple[Float64[Tensor, "row text text"], Float64[Tensor, "row text"]]:
    """Inner products of the step functions of all pairs of texts and sums of the sets, on the CPU.

    Args:
        values: Sorted sets of all texts one after the other, one row per head; NumPy for the
            compiled kernel, a tensor for torch on its device.
        offsets: Where each text's set, which is not empty, begins in a row, and the last ends.
        n_steps: At least the size of the largest set.

    Returns:
        <f_i - c, f_j - c> / n_steps, c the mean of the step functions of all texts, in squared
        attention-weight units; and the sums.
    """
    if isinstance(values, np.ndarray):
        return _compiled(values, offsets, n_steps)
    return _batched(values, offsets, n_steps)


def _compiled(values: np.ndarray, offsets: np.ndarray, n_steps: int) -> tuple[Tensor, Tensor]:
    from tda_bias.topology.kernels import kernels

    rows, texts = len(values), len(offsets) - 1
    step = max(1, _TASK_PRODUCTS // (texts * texts * n_steps))
    starts = range(0, n_steps, _TASK_STEPS)
    products = np.empty((len(starts), rows, texts, texts))
    sums = np.empty((rows, texts))
    fill = kernels(values.dtype).fill_gram

    def task(part: slice, piece: int) -> None:
        start = starts[piece]
        last = min(start + _TASK_STEPS, n_steps)
        fill(values[part], offsets, n_steps, start, last, products[piece, part])
        if piece == 0:
            sets = values[part, : offsets[-1]]
            np.add.reduceat(sets, offsets[:-1], axis=1, dtype=np.float64, out=sums[part])

    parts = [slice(start, start + step) for start in range(0, rows, step)]
    in_threads([partial(task, part, piece) for part in parts for piece in range(len(starts))])
    total = products[0] if len(starts) == 1 else products.sum(0)
    total /= n_steps
    return torch.from_numpy(total), torch.from_numpy(sums)


def _batched(values: Tensor, offsets: np.ndarray, n_steps: int) -> tuple[Tensor, Tensor]:
    rows, texts = len(values), len(offsets) - 1
    sets = [values[:, start:stop] for start, stop in pairwise(offsets)]
    products = values.new_zeros((rows, texts, texts), dtype=torch.float64)
    width = max(1, _BLOCK_ELEMENTS // (rows * texts))
    for start in range(0, n_steps, width):
        stop = min(start + width, n_steps)
        block = torch.stack(
            [step_columns(of_text.double(), n_steps, start, stop) for of_text in sets], dim=1
        )
        block -= block.mean(1, keepdim=True)
        products.baddbmm_(block, block.mT)
    sums = torch.stack([of_text.sum(1, dtype=torch.float64) for of_text in sets], dim=1)
    return (products / n_steps).cpu(), sums.cpu()
