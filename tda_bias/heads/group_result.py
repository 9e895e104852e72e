"""One group's numbers: small, saved at once, and enough for every table and test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from tda_bias.types import Attention

if TYPE_CHECKING:
    from tda_bias.config import HeadBiasConfig
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
        """True if at least two contexts have a twin: with one there is nothing to test."""
        return len(self.versions.twinned) > 1

    @classmethod
    def from_arrays(
        cls, category: str, group: str, arrays: Mapping[str, np.ndarray]
    ) -> GroupResult:
        """From plain arrays by name, as a finished group is saved.

        Args:
            category: The group's category.
            group: The group.
            arrays: As the attributes are called; those of ``statistic``, ``contrast`` and
                ``halves`` with these names and a dot in front, ``versions`` as the context of each,
                ``provenance`` as JSON.
        """

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
    """Settings a saved group depends on: all but those of the tests, which are made from it."""
    settings = {"distance", "backend", "edges", "combine", "adjust", "seed"}
    about = {"format": 3, "model": model, "weights": weights, "dtype": dtype}
    return {**about, **config.model_dump(include=settings)}


# -- from inner products ---------------------------------------------------------------------------


def layer_numbers(
    gram: Float[np.ndarray, "row text text"],
    sums: Float[np.ndarray, "row text"],
    layout: GroupLayout,
    splits: Splits,
    *,
    lengths: Int[np.ndarray, "context 2"] | None = None,
) -> dict[str, np.ndarray]:
    """All numbers of some layers and one dimension, named as in ``GroupResult.from_arrays``.

    Args:
        gram: Inner products of the texts' step functions, as in ``LayerGrams``.
        sums: Sums of the texts' births, or deaths.
        layout: Which text is which.
        splits: Random halves of the contexts.
        lengths: Tokens of the stereotype and the anti-stereotype texts, where a linear effect of
            length is to be taken out.

    Returns:
        Arrays whose last axis is the row: layer, head.
    """
    products = version_products(gram, layout)
    statistic = statistic_from_gram(gram, layout)
    if lengths is not None:
        statistic = adjust_for_length(statistic, lengths)
    halves = {"relative": split_half_relative(gram, layout, splits, lengths)}
    halves |= split_half_contrast(products, layout.versions, splits)
    stereotype, anti = (
        np.concatenate([sums[:, part] for part in parts], axis=1)
        for parts in (
            (layout.stereotype, layout.twin_stereotype),
            (layout.anti, layout.twin_anti),
        )
    )
    return {
        **{f"statistic.{name}": values for name, values in vars(statistic).items()},
        **{f"contrast.{name}": values for name, values in vars(contrast(products)).items()},
        **{f"halves.{name}": values.astype(np.float32) for name, values in halves.items()},
        "item_sums": (stereotype - anti).T,
    }


def joined_layers(
    parts: Sequence[Sequence[Mapping[str, np.ndarray]]], n_layers: int
) -> dict[str, np.ndarray]:
    """The numbers of all layers and both dimensions with the axes ``(..., dim, layer, head)``.

    Args:
        parts: For some layers after the other, the ``layer_numbers`` of each dimension.
        n_layers: Layers of all parts together.
    """
    # Of texts that are all the same the rank is 0; a row of zeros stands for it.
    rank = max(1, *(numbers["contrast.factor"].shape[1] for dims in parts for numbers in dims))
    arrays = {}
    for name in parts[0][0]:
        of_name = [[numbers[name] for numbers in dims] for dims in parts]
        if name == "contrast.factor":
            of_name = [[_padded(factor, rank) for factor in dims] for dims in of_name]
        joined = [np.concatenate(layers, axis=-1) for layers in zip(*of_name, strict=True)]
        stacked = np.stack(joined, axis=-2)
        arrays[name] = stacked.reshape(*stacked.shape[:-1], n_layers, -1)
    return arrays


def _padded(factor: np.ndarray, rank: int) -> np.ndarray:
    """A factor of a given rank, in single precision: its tolerance is far above."""
    missing = np.zeros((factor.shape[0], rank - factor.shape[1], *factor.shape[2:]), np.float32)
    return np.concatenate([factor.astype(np.float32), missing], axis=1)


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
