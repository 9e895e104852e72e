"""Two rankings of heads side by side: where they agree, and what moved by more than its noise.

Heads of two models are the same heads where one model was made from the other: then maps are
compared head by head. Between sizes of a model only depth can be compared: layer profiles are read
at the same relative depths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.heads.maps import map_columns
from tda_bias.heads.result import HeadBias
from tda_bias.runs.record import HookedModelRecord, RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.stats.resampling import (
    benjamini_hochberg,
    generator,
    holm,
    permutations_within,
    share_reached,
    standardised_ranks,
)
from tda_bias.types import InputError, RankBy

MAPS: tuple[RankBy, ...] = ("evidence", "location", "relative", "statistic")
# Settings of a run without which two maps are different quantities.
_SAME = ("distance", "edges", "combine", "adjust")


class HeadsComparisonRecord(RunRecord):
    """Everything needed to repeat a comparison of two runs; ``model`` is the one before.

    Attributes:
        compares: What was compared.
        after: The other model.
        runs: Folders of the runs.
        category: The category.
        by: The map.
        matched: Whether heads were compared one by one.
        reliability: Of the map in each run, between halves of the contexts.
        same_texts: Whether both runs read the same tokens.
        same_weights: Whether both are of the same weights.
        n_resamples: Permutations.
        seed: Of the permutations.
    """

    command: str = "compare"
    compares: Literal["heads"] = "heads"
    after: HookedModelRecord
    runs: tuple[str, str] = ("", "")
    category: str
    by: RankBy
    matched: bool
    reliability: tuple[float | None, float | None]
    same_texts: bool
    same_weights: bool
    n_resamples: int
    seed: int


_AGREEMENT = {
    "over": str,
    "n": int,
    "rho": float,
    "chance_low": float,
    "chance_high": float,
    "p": float,
}
_LAYERS = {"model": str, "layer": int, "depth": float, "value": float}
_HEADS = {
    "layer": int,
    "head": int,
    **{name: float for name in ("before", "after", "change", "noise", "z")},
    **{name: float for name in ("p", "p_holm", "q")},
}


@dataclass(frozen=True)
class HeadsComparison(SavedResult):
    """Agreement of two maps, and heads that moved.

    Attributes:
        agreement: One row per way to compare (``heads``, ``heads within layers``, ``layers``):
            Spearman of the maps, the middle 95 % of the same with places exchanged at random, and
            the share of the exchanges that agree as much.
        layers: One row per model (``before``, ``after``) and layer: relative depth and the mean
            over heads.
        heads: One row per head: values before and after, and by how many standard deviations of
            both maps' noise it moved; empty where heads are not matched.
        record: Everything needed to repeat it.
    """

    COMMAND = "compare"
    RECORD = HeadsComparisonRecord
    TABLES = (
        ("agreement", "agreement.csv", _AGREEMENT),
        ("layers", "layers.csv", _LAYERS),
        ("heads", "heads.csv", _HEADS),
    )
    SHOWN = (("agreement of the maps", "agreement"), ("heads", "heads"))

    agreement: pd.DataFrame
    layers: pd.DataFrame
    heads: pd.DataFrame
    record: HeadsComparisonRecord

    def __repr__(self) -> str:
        names = f"{self.record.model.name}, {self.record.after.name}"
        return f"HeadsComparison({names}: {self.record.category}, {self.record.by})"


def compare_heads(
    before: HeadBias,
    after: HeadBias,
    *,
    category: str | None = None,
    by: RankBy = "evidence",
    n_resamples: int = 9999,
    seed: int = 0,
) -> HeadsComparison:
    """Compare the maps of two runs of ``head_bias``.

    Args:
        before: The run that changes are counted from.
        after: The other one: the same model changed, or another size of it.
        category: The category of both, where they have several.
        by: The map; one that has a noise of its own.
        n_resamples: Permutations for the chance lines.
        seed: Of the permutations.

    Raises:
        InputError: if the runs are one, were computed differently, or lack the category or the map.
    """
    name = _checked(before, after, category, by)
    first, other = (_Map.of(run, name, by) for run in (before, after))
    matched = _same_architecture(before, after)
    rng = generator(seed, "agreement", name, by)
    rows = list(_over_heads(first, other, n_resamples, rng)) if matched else []
    rows.append(_over_layers(first, other, n_resamples, rng))
    layers = [
        pd.DataFrame(
            {
                "model": side,
                "layer": np.arange(len(head_map.profile)),
                "depth": _depths(len(head_map.profile)),
                "value": head_map.profile,
            }
        )
        for side, head_map in (("before", first), ("after", other))
    ]
    weights = [run.record.model.weights for run in (before, after)]
    return HeadsComparison(
        agreement=pd.DataFrame(rows),
        layers=pd.concat(layers, ignore_index=True),
        heads=moved(first, other) if matched else moved(first, first).head(0),
        record=HeadsComparisonRecord(
            model=before.record.model,
            after=after.record.model,
            category=name,
            by=by,
            matched=matched,
            reliability=(first.reliability, other.reliability),
            same_texts=before.record.texts.hash == after.record.texts.hash,
            same_weights=weights[0] == weights[1],
            n_resamples=n_resamples,
            seed=seed,
        ),
    )


@dataclass(frozen=True)
class _Map:
    """One run's map.

    Attributes:
        shown: ``(layer, head)`` the values that rank heads.
        value: ``(layer, head)`` the map before it is divided by its noise.
        expected: ``(layer, head)`` its mean under exchange.
        noise: ``(layer, head)`` its standard deviation under exchange.
        reliability: Between halves of the contexts; None where it is undefined.
    """

    shown: Float[np.ndarray, "layer head"]
    value: Float[np.ndarray, "layer head"]
    expected: Float[np.ndarray, "layer head"]
    noise: Float[np.ndarray, "layer head"]
    reliability: float | None

    @classmethod
    def of(cls, run: HeadBias, category: str, by: RankBy) -> _Map:
        """From a run's table."""
        columns = map_columns(by, run.category.columns)
        tested = columns.tested
        names = (columns.value, f"z_{tested}", f"z_null_{tested}", f"sd_null_{tested}")
        shown, value, expected, noise = (run.layer_by_head(name, category) for name in names)
        return cls(shown, value, expected, noise, _reliability(run, category, tested))

    @property
    def profile(self) -> Float[np.ndarray, " layer"]:
        """Mean over heads."""
        return np.asarray(np.nanmean(self.shown, axis=1))


def moved(before: _Map, after: _Map) -> pd.DataFrame:
    """Movement of every head, in standard deviations of both maps' noise.

    Both values are taken relative to what they are expected to be under exchange. The noises are
    added as if they were independent; of two runs on the same texts they are not, so that the true
    noise is smaller and p is too large rather than too small.
    """
    change = (after.value - after.expected) - (before.value - before.expected)
    noise = np.hypot(before.noise, after.noise)
    z = np.divide(change, noise, out=np.full_like(change, np.nan), where=noise > 0).ravel()
    p = np.asarray(2 * stats.norm.sf(np.abs(z)))
    layer, head = (axis.ravel() for axis in np.indices(change.shape))
    return pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "before": before.value.ravel(),
            "after": after.value.ravel(),
            "change": change.ravel(),
            "noise": noise.ravel(),
            "z": z,
            "p": p,
            "p_holm": holm(p),
            "q": benjamini_hochberg(p),
        }
    )


# -- agreement -------------------------------------------------------------------------------------


def _over_heads(
    first: _Map, other: _Map, n_resamples: int, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    known = np.isfinite(first.shown) & np.isfinite(other.shown)
    x, y = first.shown[known], other.shown[known]
    layer = np.nonzero(known)[0]
    yield _agreement("heads", x, y, np.zeros_like(layer), n_resamples, rng)
    yield _agreement("heads within layers", x, y, layer, n_resamples, rng)


def _over_layers(
    first: _Map, other: _Map, n_resamples: int, rng: np.random.Generator
) -> dict[str, Any]:
    """At as many relative depths as the smaller model has layers."""
    n = min(len(first.profile), len(other.profile))
    x, y = (np.interp(_depths(n), _depths(len(m.profile)), m.profile) for m in (first, other))
    return _agreement("layers", x, y, np.zeros(n, dtype=int), n_resamples, rng)


def _depths(n: int) -> Float[np.ndarray, " layer"]:
    """The middle of every layer, the whole model being 1."""
    return np.asarray((np.arange(n) + 0.5) / n)


def _agreement(
    over: str,
    x: Float[np.ndarray, " place"],
    y: Float[np.ndarray, " place"],
    stratum: Int[np.ndarray, " place"],
    n_resamples: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Spearman, and what it is when places of a stratum are exchanged."""
    row: dict[str, Any] = {"over": over, "n": len(x)}
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return row | dict.fromkeys(("rho", "chance_low", "chance_high", "p"), np.nan)
    first, second = standardised_ranks(x), standardised_ranks(y)
    rho = float(first @ second)
    null = second[permutations_within(stratum, n_resamples, rng)] @ first
    low, high = np.quantile(null, [0.025, 0.975])
    return row | {
        "rho": rho,
        "chance_low": float(low),
        "chance_high": float(high),
        "p": float(share_reached(null, rho)),
    }


# -- checks ----------------------------------------------------------------------------------------


def _checked(before: HeadBias, after: HeadBias, category: str | None, by: RankBy) -> str:
    """The category that both runs have.

    Raises:
        InputError: as ``compare_heads``.
    """
    if by not in MAPS:
        raise InputError(f"`by` must be one of {', '.join(MAPS)}; got {by!r}: its noise is unknown")
    first, other = before.record, after.record
    if first.model.weights == other.model.weights and first.texts.hash == other.texts.hash:
        raise InputError(
            f"both runs are of {first.model.name} with the same weights and texts: was the "
            "checkpoint loaded?"
        )
    for name in _SAME:
        values = [getattr(record.config, name) for record in (first, other)]
        if values[0] != values[1]:
            raise InputError(
                f"the runs were computed differently (`{name}` {values[0]} and {values[1]}); run "
                "both alike"
            )
    shared = [name for name in before.categories if name in after.categories]
    if category is None and len(shared) == 1:
        category = shared[0]
    if category not in shared:
        raise InputError(
            f"`category` must be one that both runs have ({', '.join(shared) or 'there is none'}); "
            f"got {category!r}"
        )
    columns = [map_columns(by, run.category.columns) for run in (before, after)]
    if columns[0] != columns[1]:
        raise InputError("one run has twins and the other has none; run both alike")
    return str(category)


def _same_architecture(before: HeadBias, after: HeadBias) -> bool:
    """Tell whether the heads of the one are the heads of the other."""
    models = [run.record.model for run in (before, after)]
    about = [(model.architecture, model.layers, model.parameters) for model in models]
    sizes = [len(run.category) / len(run.categories) for run in (before, after)]
    return about[0] == about[1] and sizes[0] == sizes[1]


def _reliability(run: HeadBias, category: str, tested: str) -> float | None:
    controls = run.controls(category)
    twins = controls.get("twins") or {}
    where = {
        "location": controls.get("location"),
        "location_twin": twins.get("location"),
        "relative_twin": twins.get("dispersion"),
    }.get(tested)
    if where is not None:
        value = where["reliability"]
    elif tested == controls["hot_spot_map"]:
        value = controls["reliability"]
    else:
        value = None
    return None if value is None or not np.isfinite(value) else float(value)
