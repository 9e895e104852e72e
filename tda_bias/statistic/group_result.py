"""One group's numbers: small, saved at once, and enough for every table and test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.statistic.controls import Splits, adjust_for_length, split_half_relative, uniform_sets
from tda_bias.statistic.group_statistic import GroupStatistic, group_statistic
from tda_bias.types import Adjust, Attention

if TYPE_CHECKING:
    from tda_bias.topology.sampler import GroupSampler, StepGrid

N_SPLITS = 100
# Step values whose deviations are in memory at a time.
_CHUNK_ELEMENTS = 8_000_000
_OWN_ARRAYS = ("n_tokens", "n_steps", "length_statistic", "halves")


@dataclass(frozen=True)
class GroupResult:
    """Axes in this order: dimension, layer, head.

    Attributes:
        category: The group's category.
        group: The group.
        n_tokens: ``(context, 3)`` tokens of the texts, in the order of ``ROLES``.
        n_steps: ``(dim,)`` length of the step functions.
        statistic: The statistic, adjusted if asked for, with axes (dim, layer, head).
        length_statistic: ``(dim,)`` S of uniform attention at the same lengths.
        halves: ``(split, half, dim, layer, head)`` the ``relative`` statistic of random halves.
        provenance: When and how the patterns were taken, for the run record.
    """

    category: str
    group: str
    n_tokens: Int[np.ndarray, "context 3"]
    n_steps: Int[np.ndarray, " dim"]
    statistic: GroupStatistic
    length_statistic: Float[np.ndarray, " dim"]
    halves: Float[np.ndarray, "split half dim layer head"]
    provenance: dict[str, Any]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name, for ``PartStore``."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _OWN_ARRAYS}
        for field in fields(GroupStatistic):
            arrays[f"statistic.{field.name}"] = getattr(self.statistic, field.name)
        arrays["provenance"] = np.array(json.dumps(self.provenance))
        return arrays

    @classmethod
    def from_arrays(
        cls, category: str, group: str, arrays: Mapping[str, np.ndarray]
    ) -> GroupResult:
        """The inverse of ``to_arrays``."""
        names = [field.name for field in fields(GroupStatistic)]
        statistic = GroupStatistic(**{name: arrays[f"statistic.{name}"] for name in names})
        return cls(
            category=category,
            group=group,
            statistic=statistic,
            provenance=json.loads(str(arrays["provenance"])),
            **{name: arrays[name] for name in _OWN_ARRAYS},
        )


def group_result(
    category: str,
    group: str,
    sampler: GroupSampler,
    n_tokens: Int[np.ndarray, "context 3"],
    *,
    attention: Attention,
    adjust: Adjust,
    rng: np.random.Generator,
) -> GroupResult:
    """Everything that is kept of a group, from its step functions.

    A few layers are worked off at a time: temporary arrays stay small whatever the model's size.
    """
    splits = Splits.draw(len(n_tokens), N_SPLITS, rng)
    compared = n_tokens[:, :2]
    lengths = compared if adjust == "length" else None
    dims, halves = [], []
    for steps in sampler.steps:
        parts, part_halves = [], []
        for chunk in torch.split(steps, max(1, _CHUNK_ELEMENTS // steps[0].numel())):
            roles = chunk.unbind(1)  # layer, head, context, steps
            parts.append(group_statistic(*(role.movedim(2, 0) for role in roles)))
            stereotype, anti = (role.flatten(0, 1) for role in roles[:2])
            found = split_half_relative(stereotype, anti, splits, lengths)
            part_halves.append(found.reshape(*found.shape[:2], len(chunk), -1))
        dims.append(_join(np.concatenate, parts))
        halves.append(np.concatenate(part_halves, axis=2))
    statistic = _join(np.stack, dims)
    return GroupResult(
        category=category,
        group=group,
        n_tokens=n_tokens,
        n_steps=np.array([grid.n_steps for grid in sampler.grids]),
        statistic=adjust_for_length(statistic, compared) if adjust == "length" else statistic,
        length_statistic=np.array(
            [length_statistic(grid, n_tokens, attention) for grid in sampler.grids]
        ),
        halves=np.stack(halves, axis=2).astype(np.float32),
        provenance={},
    )


def length_statistic(
    grid: StepGrid, n_tokens: Int[np.ndarray, "context 3"], attention: Attention
) -> float:
    """S of one dimension if every head spread its attention evenly: what lengths alone produce.

    NaN where the unrelated texts are all of one length.
    """
    rows = {}
    for n in np.unique(n_tokens).tolist():
        rows[n] = grid.rows(uniform_sets(n, attention)[grid.dim])
    roles = [np.stack([rows[n] for n in column]) for column in n_tokens.T.tolist()]
    return float(group_statistic(*roles).S)


def _join(join: Callable[..., np.ndarray], parts: list[GroupStatistic]) -> GroupStatistic:
    """Statistics joined along (``np.concatenate``) or before (``np.stack``) their first axis."""
    merged = {}
    for field in fields(GroupStatistic):
        axis = 1 if field.name.startswith("q_") else 0
        merged[field.name] = join([getattr(part, field.name) for part in parts], axis=axis)
    return GroupStatistic(**merged)
