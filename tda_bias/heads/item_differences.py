"""Heads' differences item by item: the stereotype text minus the anti-stereotype text.

Groups tell heads apart by what they do on average; items by what they do each time. Both measures
are in the units of their group's tests:

    sum          sum of births (dimension 0) or of deaths (1), attention-weight units
    dispersion   the item's share of ``relative``: (q_anti - q_stereotype) over the group's mean of
                 (q_anti + q_stereotype); the mean over a group is its ``relative``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.heads.texts import TEXTS
from tda_bias.heads.twin_contrast import contrast_matrix
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from tda_bias.heads.group_result import GroupResult
    from tda_bias.runs.run import Run
    from tda_bias.runs.writing import RunWriter

MEASURES = ("sum", "dispersion")
TABLE, ARRAYS = "items.parquet", "items.npz"
COLUMNS: dict[str, type] = dict.fromkeys(("category", "group", "id", *TEXTS), str)

Measured = Mapping[str, Float[np.ndarray, "item dim layer head"]]


@dataclass(frozen=True)
class ItemDifferences:
    """The differences of every item of a run.

    Attributes:
        items: One row per item: ``category group id``, see ``triples.triple_ids``; its texts, and
            those of its first twin, empty without one.
        layers: The layers of the third axis below.
        raw: Measure to ``(item, dim, layer, head)``.
        twins: The same minus the mean over the item's twins, NaN without any; empty if the run had
            no twins.
    """

    items: pd.DataFrame
    layers: Sequence[int]
    raw: Measured
    twins: Measured

    def __post_init__(self) -> None:
        expected = len(self.items), len(self.layers)
        for name, values in {**self.raw, **self.twins}.items():
            if values.ndim != 4 or (values.shape[0], values.shape[2]) != expected:
                raise InputError(
                    f"{name} must have the shape ({expected[0]}, dim, {expected[1]}, head); got "
                    f"{values.shape}"
                )

    @classmethod
    def of(
        cls,
        results: Sequence[GroupResult],
        items: Sequence[Sequence[Mapping[str, str]]],
        layers: Sequence[int],
    ) -> ItemDifferences:
        """From the numbers of every group.

        Args:
            results: The groups.
            items: For each group what is known of its contexts, in order: ``id`` and texts.
            layers: The layers that were hooked.
        """
        rows = [
            {"category": result.category, "group": result.group, **item}
            for result, known in zip(results, items, strict=True)
            for item in known
        ]
        raw = [_raw(result) for result in results]
        twins = [_minus_twins(result) for result in results]
        has_twins = any(result.has_twins for result in results)
        return cls(
            items=pd.DataFrame(rows),
            layers=layers,
            raw={name: np.concatenate([part[name] for part in raw]) for name in MEASURES},
            twins={name: np.concatenate([part[name] for part in twins]) for name in MEASURES}
            if has_twins
            else {},
        )

    # -- files --

    def write(self, run: RunWriter) -> None:
        """Add the table and the arrays, in single precision, to a run that is being written."""
        arrays = {"layers": np.array(self.layers)}
        for kind, measured in (("raw", self.raw), ("twins", self.twins)):
            arrays |= {f"{kind}.{name}": v.astype(np.float32) for name, v in measured.items()}
        run.table(TABLE, self.items)
        run.arrays(ARRAYS, arrays)

    @classmethod
    def read(cls, run: Run) -> ItemDifferences:
        """Read the files of ``write``.

        Raises:
            InputError: if the run has none, or a file is not as it was written.
        """
        arrays = run.arrays(ARRAYS)
        raw, twins = (
            {
                key.removeprefix(f"{kind}."): values
                for key, values in arrays.items()
                if key.startswith(f"{kind}.")
            }
            for kind in ("raw", "twins")
        )
        return cls(run.table(TABLE, COLUMNS), arrays["layers"].tolist(), raw, twins)


def _raw(result: GroupResult) -> dict[str, np.ndarray]:
    statistic = result.statistic
    total = (statistic.q_stereotype + statistic.q_anti).mean(0)
    difference = statistic.q_anti - statistic.q_stereotype
    n = result.versions.n
    return {"sum": result.item_sums[:n], "dispersion": _ratio(difference, total)}


def _minus_twins(result: GroupResult) -> dict[str, np.ndarray]:
    versions = result.versions
    between = contrast_matrix(versions)

    def contrasted(values: np.ndarray) -> np.ndarray:
        contrasts = np.full((versions.n, *values.shape[1:]), np.nan)
        contrasts[versions.twinned] = np.tensordot(between, values, axes=(1, 0))
        return contrasts

    total = result.contrast.dispersion_total / max(1, len(versions.twinned))
    dispersion = _ratio(contrasted(result.contrast.dispersion), total)
    return {"sum": contrasted(result.item_sums), "dispersion": dispersion}


def _ratio(values: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Values over a total that may be zero or undefined: NaN there."""
    out = np.full(values.shape, np.nan)
    np.divide(values, total, out=out, where=np.broadcast_to(total > 0, values.shape))
    return out


# -- the texts that carry a head's difference most -------------------------------------------------


def shares(items: ItemDifferences, *, twins: bool) -> Float[np.ndarray, "item layer head"]:
    """Each item's share of a head's relative dispersion, means over both dimensions.

    Args:
        items: The items.
        twins: Whether what their twins add is subtracted; NaN for items without one.
    """
    measured = (items.twins if twins else items.raw)["dispersion"]
    return np.asarray(measured.mean(1), dtype=float)


def carriers(
    share: Float[np.ndarray, "item layer head"], head: HeadId, n: int
) -> Int[np.ndarray, " n"]:
    """The items that add most to a head's value, by size; undefined ones are none.

    Args:
        share: As ``shares`` gives it, of the items in question.
        head: The head, its layer counted among those that were hooked.
        n: How many; fewer where there are no more.
    """
    size = np.abs(share[:, head.layer, head.head])
    defined = np.flatnonzero(np.isfinite(size))
    return defined[np.argsort(-size[defined], kind="stable")][:n]
