"""What is read of a group's patterns as vectors, or as diagrams, to inner products of its texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.topology.flag import Pairs, flag_pairs, lifetimes, squared_distances
from tda_bias.topology.persistence import edge_weights
from tda_bias.topology.room import Room
from tda_bias.types import Attention

# Gram matrices, and vectors in double precision, that are in memory at a time.
_WORKING_BYTES = 64_000_000

Grams = tuple[Float[Tensor, "row text text"], Float[Tensor, "row text"]]


class Sampler(Protocol):
    """Takes the patterns of one group's texts and gives inner products of what is read of them.

    ``n_steps`` are the numbers that are compared of a text, by dimension, ``euclidean`` says
    whether the products are of vectors: distances may be such that they are not.
    """

    @property
    def n_steps(self) -> list[int]: ...  # noqa: D102

    @property
    def euclidean(self) -> bool: ...  # noqa: D102

    def add(
        self,
        patterns: Float[Tensor, "text layer head query key"],
        text: Int[Tensor, " text"],
        length: Int[Tensor, " text"],
    ) -> None:
        """Read some texts: their patterns, which are not kept, places in the group, and lengths."""

    def layers(self) -> Iterator[list[Grams]]:
        """Products about the texts' mean, and sums, some layers at a time, dimension by dimension.

        Rows hold all heads of the first layer, then those of the next.
        """


class Vectors(Protocol):
    """Reads vectors of patterns.

    Attributes:
        dims: Name of each dimension.
        scaled: Whether a head's values are divided by their SD over texts, so that values in other
            units weigh alike.
    """

    @property
    def dims(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def scaled(self) -> bool: ...  # noqa: D102

    def __call__(
        self, patterns: Float[Tensor, "text head query key"], texts: Sequence[int]
    ) -> list[tuple[Float[np.ndarray, "text head value"], Float[np.ndarray, "text head"]]]:
        """Values, and a sum of each text and head, by dimension.

        The ``texts``, places in the group, are of one length, ``head`` those of all layers. The
        number of values is the same in every call.
        """


def by_length(
    patterns: Float[Tensor, "text layer head query key"],
    text: Int[Tensor, " text"],
    length: Int[Tensor, " text"],
) -> Iterator[tuple[Float[Tensor, "text head query key"], list[int]]]:
    """The patterns of texts of one length, without what is beyond it, and their places."""
    for n in np.unique(length.numpy()).tolist():
        chosen = (length == n).nonzero()[:, 0]
        some = patterns[chosen.to(patterns.device), :, :, :n, :n].flatten(1, 2)
        yield some, text[chosen].tolist()


class VectorSampler:
    """Keeps the vectors of one group's texts until all are there; see ``Sampler``."""

    euclidean = True

    def __init__(self, n_texts: int, *, n_layers: int, read: Vectors) -> None:
        self._n_texts, self._n_layers, self._read = n_texts, n_layers, read
        # Made by the first batch, which knows heads and lengths of vectors.
        self._kept: list[tuple[Room, Room]] = []
        self._missing = set(range(n_texts))

    @property
    def n_steps(self) -> list[int]:
        """Length of the vectors, by dimension."""
        return [vectors.array.shape[2] for vectors, _ in self._kept]

    def add(self, patterns: Tensor, text: Tensor, length: Tensor) -> None:
        """Read some texts; as ``Sampler.add``."""
        for some, places in by_length(patterns, text, length):
            read = self._read(some, places)
            if not self._kept:
                self._kept = [self._room(*of_dim) for of_dim in read]
            for (vectors, sums), of_dim in zip(self._kept, read, strict=True):
                for room, values in zip((vectors, sums), of_dim, strict=True):
                    room.array[:, places] = np.moveaxis(values, 0, 1)
                    room.forget()
        self._missing -= set(text.tolist())

    def _room(self, vectors: np.ndarray, sums: np.ndarray) -> tuple[Room, Room]:
        rows = sums.shape[1]
        shape, single = (rows, self._n_texts), np.dtype(np.float32)
        return Room((*shape, vectors.shape[2]), single), Room(shape, np.dtype(np.float64))

    def layers(self) -> Iterator[list[Grams]]:
        """Inner products over the number of values; as ``Sampler.layers``.

        Raises:
            ValueError: if a text is missing.
        """
        if self._missing:
            raise ValueError(f"{len(self._missing)} texts of the group are missing")
        heads = len(self._kept[0][0].array) // self._n_layers
        widest = max(self._n_texts, *self.n_steps)
        together = max(1, _WORKING_BYTES // (heads * 8 * self._n_texts * widest))
        for first in range(0, self._n_layers, together):
            rows = slice(first * heads, min(first + together, self._n_layers) * heads)
            yield [
                (self._products(vectors.array[rows]), torch.from_numpy(sums.array[rows].copy()))
                for vectors, sums in self._kept
            ]

    def _products(self, vectors: Float[np.ndarray, "row text value"]) -> Tensor:
        values = torch.from_numpy(vectors.astype(np.float64))
        values -= values.mean(1, keepdim=True)
        if self._read.scaled:
            spread = values.square().mean(1, keepdim=True).sqrt()
            largest = torch.from_numpy(np.abs(vectors).max(1, keepdims=True)).double()
            # What varies at the level of rounding in single precision does not vary.
            varies = spread > 1e-6 * largest
            values = torch.where(varies, values / torch.where(varies, spread, 1.0), 0.0)
        return values @ values.mT / values.shape[2]


class DistanceSampler:
    """Flag complexes of some heads, compared by Wasserstein distances; see ``Sampler``.

    The products are -1/2 J D^2 J, D the distances and J the centring, and of no vectors: they may
    be indefinite. All are 0 of heads that are not asked for.

    Source: McArdle & Anderson (2001), Fitting multivariate models to community data.
    """

    euclidean = False

    def __init__(
        self, n_texts: int, *, n_layers: int, attention: Attention, rows: Sequence[int]
    ) -> None:
        self._n_texts, self._n_layers = n_texts, n_layers
        self._attention: Attention = attention
        self._rows = list(rows)
        self._n_heads = 0
        # By dimension, row and text.
        self._pairs: tuple[list[list[Pairs]], ...] = tuple(
            [[np.zeros((0, 2))] * n_texts for _ in rows] for _ in range(2)
        )
        self._missing = set(range(n_texts))

    @property
    def n_steps(self) -> list[int]:
        """Points of the largest diagram, by dimension."""
        return [max(len(of_text) for row in of_dim for of_text in row) for of_dim in self._pairs]

    def add(self, patterns: Tensor, text: Tensor, length: Tensor) -> None:
        """Read some texts; as ``Sampler.add``."""
        self._n_heads = patterns.shape[2]
        for some, places in by_length(patterns, text, length):
            chosen = some[:, self._rows].flatten(0, 1)
            found = flag_pairs(edge_weights(chosen, self._attention).cpu())
            for number, of_dims in enumerate(found):
                place, row = divmod(number, len(self._rows))
                for kept, pairs in zip(self._pairs, of_dims, strict=True):
                    kept[row][places[place]] = pairs
        self._missing -= set(text.tolist())

    def layers(self) -> Iterator[list[Grams]]:
        """Centred products of each layer; as ``Sampler.layers``.

        Raises:
            ValueError: if a text is missing.
        """
        if self._missing:
            raise ValueError(f"{len(self._missing)} texts of the group are missing")
        centring = np.eye(self._n_texts) - 1.0 / self._n_texts
        for layer in range(self._n_layers):
            own = {
                row - layer * self._n_heads: place
                for place, row in enumerate(self._rows)
                if row // self._n_heads == layer
            }
            grams: list[Grams] = []
            for of_dim in self._pairs:
                products = np.zeros((self._n_heads, self._n_texts, self._n_texts))
                sums = np.zeros((self._n_heads, self._n_texts))
                for head, place in own.items():
                    squared = squared_distances(of_dim[place])
                    products[head] = -0.5 * centring @ squared @ centring
                    sums[head] = [lifetimes(pairs) for pairs in of_dim[place]]
                grams.append((torch.from_numpy(products), torch.from_numpy(sums)))
            yield grams
