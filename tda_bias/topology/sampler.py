"""Patterns of one group to its step functions: the only large arrays a run holds at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.topology.persistence import (
    BirthsDeaths,
    edge_weights,
    n_births,
    n_deaths,
    ragged_births_deaths,
)
from tda_bias.topology.steps import Array, exact_step_function, step_function, union_grid
from tda_bias.types import Attention, Backend, Combine, Distance, InputError

if TYPE_CHECKING:
    from tda_bias.patterns.capture import PatternBatch

# Number of births and deaths of a text, by homology dimension.
SIZE_OF = (n_births, n_deaths)
# A text of fewer tokens has no deaths, hence no value in dimension 1.
MIN_TOKENS = 3
_TEXTS_TOGETHER = 8


@dataclass(frozen=True)
class StepGrid:
    """How the sets of one group and dimension become rows of one common length.

    Attributes:
        dim: Homology dimension: 0 births, 1 deaths.
        distance: ``steps`` smooths to the size of the largest set; ``exact`` uses the union grid.
        n_steps: Length of a row.
        grid: Interval ends of the union grid, None for ``steps``.
    """

    dim: int
    distance: Distance
    n_steps: int
    grid: Float[np.ndarray, " grid"] | None

    @classmethod
    def for_lengths(cls, dim: int, distance: Distance, n_tokens: np.ndarray) -> StepGrid:
        """The grid of a group whose texts have these numbers of tokens, at least ``MIN_TOKENS``."""
        sizes = [SIZE_OF[dim](n) for n in np.unique(n_tokens).tolist()]
        if distance == "exact":
            grid = union_grid(sizes)
            return cls(dim, distance, len(grid), grid)
        return cls(dim, distance, max(sizes), None)

    def rows(self, values: Array) -> Array:
        """Sorted sets of one size ``(..., size)`` as rows ``(..., n_steps)`` of the grid."""
        if self.grid is not None:
            return exact_step_function(values, self.grid)
        return step_function(values, self.n_steps)


class GroupSampler:
    """Takes the patterns of one group's texts and keeps their step functions.

    Args:
        n_tokens: ``(triple, role)`` numbers of tokens of all texts of the group.
        attention: Direction of the model's attention.
        combine: As in ``births_deaths``.
        backend: As in ``births_deaths``.
        distance: As in ``StepGrid``.

    Attributes:
        grids: One per dimension.
        steps: Per dimension ``(layer, role, head, triple, steps)`` on the CPU, filled by ``add``;
            roles in the order of ``ROLES``. Empty before the first batch.
    """

    def __init__(
        self,
        n_tokens: Int[np.ndarray, "triple 3"],
        *,
        n_layers: int,
        attention: Attention,
        combine: Combine,
        backend: Backend,
        distance: Distance,
    ) -> None:
        self._n_triples = len(n_tokens)
        self._n_layers = n_layers
        self._attention = attention
        self._combine: Combine = combine
        self._backend: Backend = backend
        self.grids = tuple(StepGrid.for_lengths(dim, distance, n_tokens) for dim in range(2))
        self.steps: list[Tensor] = []

    def add(self, batch: PatternBatch) -> None:
        """Births and deaths of a batch, straight to step functions; patterns are not kept."""
        layer, head = batch.patterns.shape[1:3]
        if not self.steps:
            self.steps = [self._empty(head, grid, batch.patterns.dtype) for grid in self.grids]
        layers = slice(batch.first_layer, batch.first_layer + layer)
        # Texts of similar length together: the work grows with the square of the longest.
        for chosen in torch.split(batch.length.argsort(), _TEXTS_TOGETHER):
            length = batch.length[chosen]
            n = int(length.max())
            patterns = batch.patterns[chosen.to(batch.patterns.device), :, :, :n, :n]
            weights = edge_weights(
                patterns.flatten(1, 2), attention=self._attention, combine=self._combine
            )
            found = ragged_births_deaths(weights, length, backend=self._backend)
            self._keep(found, batch.text[chosen].tolist(), length.tolist(), layers)

    def _keep(
        self, found: BirthsDeaths[Tensor], texts: list[int], lengths: list[int], layers: slice
    ) -> None:
        sets = (found.births, found.deaths)
        # A text at a time: its rows fit in the processor's cache, those of a batch do not.
        for index, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            triple, role = divmod(text, 3)
            for grid, values, steps in zip(self.grids, sets, self.steps, strict=True):
                rows = grid.rows(values[index, :, : SIZE_OF[grid.dim](length)])
                kept = steps[layers, role, :, triple]
                kept.copy_(rows.reshape(kept.shape))

    def _empty(self, heads: int, grid: StepGrid, dtype: torch.dtype) -> Tensor:
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        shape = (self._n_layers, 3, heads, self._n_triples, grid.n_steps)
        try:
            return torch.empty(shape, dtype=kept)
        except RuntimeError:
            gigabytes = kept.itemsize * np.prod([float(x) for x in shape]) / 1e9
            raise InputError(
                f"a group's step functions need {gigabytes:.1f} GB of memory; use --limit"
            ) from None
