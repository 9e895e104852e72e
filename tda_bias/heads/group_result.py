"""One group's numbers: small, saved at once, and enough for every table and test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from tda_bias.heads.group_statistic import (
    GroupStatistic,
    group_statistic,
    statistic_from_gram,
)
from tda_bias.heads.reliability import (
    Splits,
    adjust_for_length,
    split_half_contrast,
    split_half_relative,
    uniform_sets,
)
from tda_bias.heads.texts import GroupLayout, Versions
from tda_bias.heads.twin_contrast import Contrast, contrast, version_products
from tda_bias.threads import each_in_threads
from tda_bias.types import Adjust, Attention

if TYPE_CHECKING:
    from tda_bias.config import HeadBiasConfig
    from tda_bias.heads.sampler import LayerGrams
    from tda_bias.topology.steps import StepGrid

N_SPLITS = 100
# Statistics whose reliability is known: of random halves of the contexts.
HALVED = ("relative", "location", "location_twin", "relative_twin")


@dataclass(frozen=True)
class GroupResult:
    """Axes in this order: dimension, layer, head.

    Attributes:
        category: The group's category.
        group: The group.
        n_tokens: ``(context, role)`` tokens of the triples' texts, in the order of ``ROLES``.
        n_steps: ``(dim,)`` length of the step functions.
        statistic: The statistic, adjusted if asked for, with axes (dim, layer, head).
        contrast: Location and twin contrasts, with the same axes.
        versions: The triples and their twins.
        item_sums: ``(version, dim, layer, head)`` the sum of births (or deaths) of the stereotype
            text minus that of the anti-stereotype text, attention-weight units.
        length_statistic: ``(dim,)`` S of uniform attention at the same lengths.
        halves: For each name of ``HALVED`` ``(split, half, dim, layer, head)``, of random halves of
            the contexts.
        provenance: When and how the patterns were taken, for the run record.
    """

    category: str
    group: str
    n_tokens: Int[np.ndarray, "context role"]
    n_steps: Int[np.ndarray, " dim"]
    statistic: GroupStatistic
    contrast: Contrast
    versions: Versions
    item_sums: Float[np.ndarray, "version dim layer head"]
    length_statistic: Float[np.ndarray, " dim"]
    halves: Mapping[str, Float[np.ndarray, "split half dim layer head"]]
    provenance: dict[str, Any]

    @property
    def has_twins(self) -> bool:
        """Whether at least two contexts have a twin: with one there is nothing to test."""
        return len(self.versions.twinned) > 1

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain arrays by name, for ``PartStore``."""
        names = ("n_tokens", "n_steps", "item_sums", "length_statistic")
        arrays = {name: np.asarray(getattr(self, name)) for name in names}
        for part in ("statistic", "contrast"):
            values = getattr(self, part)
            for field in fields(values):
                arrays[f"{part}.{field.name}"] = getattr(values, field.name)
        arrays |= {f"halves.{name}": values for name, values in self.halves.items()}
        arrays["versions"] = self.versions.context
        arrays["provenance"] = np.array(json.dumps(self.provenance))
        return arrays

    @classmethod
    def from_arrays(
        cls, category: str, group: str, arrays: Mapping[str, np.ndarray]
    ) -> GroupResult:
        """The inverse of ``to_arrays``."""

        def part(name: str) -> dict[str, np.ndarray]:
            start = f"{name}."
            return {
                key.removeprefix(start): values
                for key, values in arrays.items()
                if key.startswith(start)
            }

        return cls(
            category=category,
            group=group,
            n_tokens=arrays["n_tokens"],
            n_steps=arrays["n_steps"],
            statistic=GroupStatistic(**part("statistic")),
            contrast=Contrast(**part("contrast")),
            versions=Versions(arrays["versions"], len(arrays["n_tokens"])),
            item_sums=arrays["item_sums"],
            length_statistic=arrays["length_statistic"],
            halves=part("halves"),
            provenance=json.loads(str(arrays["provenance"])),
        )


def part_identity(
    config: HeadBiasConfig, *, model: str, weights: str, dtype: str
) -> dict[str, Any]:
    """What a saved group depends on beside its texts: all but the tests, which are made from it."""
    settings = {"distance", "backend", "edges", "combine", "adjust", "seed"}
    about = {"format": 3, "model": model, "weights": weights, "dtype": dtype}
    return {**about, **config.model_dump(include=settings)}


class GroupReducer:
    """Takes a group's Gram matrices, some layers at a time; keeps what tables and tests need.

    Args:
        layout: Which text is which.
        n_tokens: ``(context, role)`` tokens of the triples' texts.
        adjust: Whether a linear effect of length is taken out.
        rng: Of the random halves.
    """

    def __init__(
        self,
        layout: GroupLayout,
        n_tokens: Int[np.ndarray, "context role"],
        *,
        adjust: Adjust,
        rng: np.random.Generator,
    ) -> None:
        self._layout = layout
        self._n_tokens = n_tokens
        self._adjust = adjust
        self._splits = Splits.draw(layout.n, N_SPLITS, rng)
        self._parts: list[list[_Numbers]] = []
        self._n_layers = 0

    def add(self, layers: LayerGrams) -> None:
        """Take the next finished layers; their matrices are not kept."""
        self._n_layers += len(layers.layers)
        arrays = [
            (gram.numpy(), sums.numpy())
            for gram, sums in zip(layers.gram, layers.sums, strict=True)
        ]
        self._parts.append(list(each_in_threads(lambda dim: self._reduced(*dim), arrays)))

    def _reduced(self, gram: np.ndarray, sums: np.ndarray) -> _Numbers:
        layout = self._layout
        compared = self._n_tokens[:, :2]
        lengths = compared if self._adjust == "length" else None
        halves = {"relative": split_half_relative(gram, layout, self._splits, lengths)}
        products = version_products(gram, layout)
        halves |= split_half_contrast(products, layout.versions, self._splits)
        statistic = statistic_from_gram(gram, layout)
        if lengths is not None:
            statistic = adjust_for_length(statistic, compared)
        stereotype, anti = (
            np.concatenate([sums[:, part] for part in parts], axis=1)
            for parts in (
                (layout.stereotype, layout.twin_stereotype),
                (layout.anti, layout.twin_anti),
            )
        )
        return _Numbers(statistic, contrast(products), (stereotype - anti).T, halves)

    def result(
        self,
        category: str,
        group: str,
        *,
        grids: Sequence[StepGrid],
        attention: Attention,
        provenance: dict[str, Any],
    ) -> GroupResult:
        """The group's numbers, once every layer has been added."""
        contrasts = [[numbers.contrast for numbers in dims] for dims in self._parts]
        # Of texts that are all the same the rank is 0; a row of zeros stands for it.
        rank = max(1, *(c.factor.shape[1] for dims in contrasts for c in dims))
        contrasts = [[_padded(c, rank) for c in dims] for dims in contrasts]
        statistics = [[numbers.statistic for numbers in dims] for dims in self._parts]
        halves = self._parts[0][0].halves
        return GroupResult(
            category=category,
            group=group,
            n_tokens=self._n_tokens,
            n_steps=np.array([grid.n_steps for grid in grids]),
            statistic=GroupStatistic(**self._joined_fields(statistics)),
            contrast=Contrast(**self._joined_fields(contrasts)),
            versions=self._layout.versions,
            item_sums=self._joined([[n.item_sums for n in dims] for dims in self._parts]),
            length_statistic=np.array(
                [length_statistic(grid, self._n_tokens, attention) for grid in grids]
            ),
            halves={
                name: self._joined([[n.halves[name] for n in dims] for dims in self._parts]).astype(
                    np.float32
                )
                for name in halves
            },
            provenance=provenance,
        )

    def _joined_fields(self, parts: list[list[Any]]) -> dict[str, np.ndarray]:
        """Results of layers and dimensions, field by field, as ``_joined``."""
        names = [field.name for field in fields(parts[0][0])]
        return {
            name: self._joined([[getattr(part, name) for part in dims] for dims in parts])
            for name in names
        }

    def _joined(self, parts: list[list[np.ndarray]]) -> np.ndarray:
        """Arrays ``(..., row)`` of layers and dimensions as ``(..., dim, layer, head)``."""
        dims = [np.concatenate(layers, axis=-1) for layers in zip(*parts, strict=True)]
        stacked = np.stack(dims, axis=-2)
        return stacked.reshape(*stacked.shape[:-1], self._n_layers, -1)


@dataclass(frozen=True)
class _Numbers:
    """What is kept of some layers and one dimension; the last axis is the row: layer, head."""

    statistic: GroupStatistic
    contrast: Contrast
    item_sums: Float[np.ndarray, "version row"]
    halves: dict[str, Float[np.ndarray, "split half row"]]


def _padded(given: Contrast, rank: int) -> Contrast:
    """The same with a factor of a given rank, in single precision: its tolerance is far above."""
    factor = given.factor.astype(np.float32)
    missing = np.zeros((factor.shape[0], rank - factor.shape[1], *factor.shape[2:]), np.float32)
    return replace(given, factor=np.concatenate([factor, missing], axis=1))


def length_statistic(
    grid: StepGrid, n_tokens: Int[np.ndarray, "context role"], attention: Attention
) -> float:
    """S of one dimension if every head spread its attention evenly: what lengths alone produce.

    NaN where the unrelated texts are all of one length, or there are none.
    """
    if n_tokens.shape[1] < 3:
        return float("nan")
    rows = {}
    for n in np.unique(n_tokens).tolist():
        rows[n] = grid.rows(uniform_sets(n, attention)[grid.dim])
    roles = [np.stack([rows[n] for n in column]) for column in n_tokens.T.tolist()]
    return float(group_statistic(*roles).S)
