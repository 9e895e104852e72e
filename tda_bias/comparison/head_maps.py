"""Two rankings of heads side by side: where they agree, and what moved by more than its noise.

Heads of two models are the same heads where one model was made from the other: then maps are
compared head by head. Between sizes of a model only depth can be compared: layer profiles are read
at the same relative depths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.comparison.paired import CHANCE, PairedItems, agreement_row
from tda_bias.comparison.two_runs import TwoRunsRecord, shared_category
from tda_bias.heads.result import HeadBias
from tda_bias.stats.resampling import holm
from tda_bias.stats.seeds import generator
from tda_bias.store.record import HookedModelRecord
from tda_bias.store.result import Result
from tda_bias.types import InputError, RankBy

_MAPS: tuple[RankBy, ...] = ("evidence", "location", "relative", "statistic")
# Settings of a run without which two maps are different quantities.
_SAME = ("edges", "summary", "adjust")


class HeadsComparisonRecord(TwoRunsRecord):
    """Everything needed to repeat a comparison of two maps."""

    command: str = "compare heads"
    after: HookedModelRecord
    by: RankBy
    matched: bool  # heads were compared one by one
    # Of the map in each run, between halves of the contexts.
    reliability: tuple[float | None, float | None]
    same_texts: bool  # the same tokens
    same_weights: bool


_AGREEMENT = {"over": str, "n": int, **dict.fromkeys(("rho", *CHANCE), float)}
_LAYERS = {"model": str, "layer": int, "depth": float, "value": float}
_HEADS = {
    **dict.fromkeys(("layer", "head"), int),
    **dict.fromkeys(("before", "after", "change", "noise", "z", "p", "p_holm"), float),
}


@dataclass(frozen=True, repr=False)
class HeadsComparison(Result):
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

    COMMAND = "compare heads"
    RECORD = HeadsComparisonRecord
    TABLES = (
        ("agreement", "agreement.csv", _AGREEMENT),
        ("layers", "layers.csv", _LAYERS),
        ("heads", "heads.csv", _HEADS),
    )
    OPTIONAL = frozenset({"heads"})
    SHOWN = (("agreement of the maps", "agreement"), ("heads", "heads"))

    agreement: pd.DataFrame
    layers: pd.DataFrame
    heads: pd.DataFrame
    record: HeadsComparisonRecord


def compare_heads(
    before: HeadBias,
    after: HeadBias,
    *,
    category: str | None = None,
    by: RankBy = "evidence",
    n_resamples: int = 9999,
    seed: int = 0,
) -> HeadsComparison:
    """Compare the maps ``by`` of two runs of ``head_bias``, by permutations of heads and layers.

    The run after is of the same model changed, or of another size of it. A category must be given
    where the runs have several.

    Raises:
        InputError: if the runs are one, were computed differently, or lack the category or the map.
    """
    name = _checked(before, after, category, by)
    maps = {side: _Map(run, name, by) for side, run in (("before", before), ("after", after))}
    first, other = maps.values()
    matched = _same_architecture(before, after)
    rng = generator(seed, "agreement", name, by)
    profiles = [
        pd.DataFrame(
            {
                "model": side,
                "layer": head_map.layers,
                "depth": _depths(len(head_map.profile)),
                "value": head_map.profile,
            }
        )
        for side, head_map in maps.items()
    ]
    return HeadsComparison(
        agreement=pd.DataFrame([*_agreement(first, other, matched, n_resamples, rng)]),
        layers=pd.concat(profiles, ignore_index=True),
        heads=_moved(first, other) if matched else _moved(first, first).head(0),
        record=HeadsComparisonRecord(
            model=before.record.model,
            after=after.record.model,
            category=name,
            by=by,
            matched=matched,
            reliability=(first.reliability, other.reliability),
            same_texts=before.record.texts.hash == after.record.texts.hash,
            same_weights=before.record.model.weights == after.record.model.weights,
            n_resamples=n_resamples,
            seed=seed,
        ),
    )


class _Map:
    """One run's map, ``(layer, head)``.

    ``shown`` are the values that rank heads and ``profile`` their means over each layer; ``value``
    is the same before it is divided by its ``noise``, with the mean ``expected`` under exchange.
    """

    def __init__(self, run: HeadBias, category: str, by: RankBy) -> None:
        columns = run.columns(category, by=by)
        tested = columns.tested
        names = (columns.value, f"z_{tested}", f"z_null_{tested}", f"sd_null_{tested}")
        values = (run.layer_by_head(name, category) for name in names)
        self.shown, self.value, self.expected, self.noise = values
        self.layers = run.record.model.layers
        self.profile = np.asarray(np.nanmean(self.shown, axis=1))
        self.reliability = _reliability(run, category, tested)


def _moved(before: _Map, after: _Map) -> pd.DataFrame:
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
            "layer": np.asarray(before.layers)[layer],
            "head": head,
            "before": before.value.ravel(),
            "after": after.value.ravel(),
            "change": change.ravel(),
            "noise": noise.ravel(),
            "z": z,
            "p": p,
            "p_holm": holm(p),
        }
    )


# -- agreement -------------------------------------------------------------------------------------


def _agreement(
    first: _Map, other: _Map, matched: bool, n_resamples: int, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """Spearman over heads, where they are the same ones, and over relative depths."""
    draws: dict[str, Any] = {"of": "ranks", "n_resamples": n_resamples, "rng": rng}
    if matched:
        known = np.isfinite(first.shown) & np.isfinite(other.shown)
        heads = PairedItems(first.shown[known], other.shown[known], cluster=np.nonzero(known)[0])
        yield agreement_row("heads", heads, **draws)
        yield agreement_row("heads within layers", heads, exchanged="within clusters", **draws)
    # At as many relative depths as the smaller model has layers.
    n = min(len(first.profile), len(other.profile))
    x, y = (np.interp(_depths(n), _depths(len(m.profile)), m.profile) for m in (first, other))
    yield agreement_row("layers", PairedItems(x, y, cluster=np.arange(n)), **draws)


def _depths(n: int) -> Float[np.ndarray, " layer"]:
    """The middle of every layer, the whole model being 1."""
    return np.asarray((np.arange(n) + 0.5) / n)


# -- checks ----------------------------------------------------------------------------------------


def _checked(before: HeadBias, after: HeadBias, category: str | None, by: RankBy) -> str:
    """The category that both runs have, if they can be compared."""
    if by not in _MAPS:
        raise InputError(
            f"`by` must be one of {', '.join(_MAPS)}; got {by!r}: its noise is unknown"
        )
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
    category = shared_category(before.categories, after.categories, category)
    columns = [run.columns(category, by=by) for run in (before, after)]
    if columns[0] != columns[1]:
        raise InputError("one run has twins and the other has none; run both alike")
    return category


def _same_architecture(before: HeadBias, after: HeadBias) -> bool:
    """Tell whether the heads of the one are the heads of the other."""

    def shape(run: HeadBias) -> tuple[Any, ...]:
        model, n_heads = run.record.model, len(run.category) / len(run.categories)
        return model.architecture, model.layers, model.parameters, n_heads

    return shape(before) == shape(after)


def _reliability(run: HeadBias, category: str, tested: str) -> float | None:
    controls = run.controls(category)
    twins = controls.get("twins") or {}
    part = {
        "location": controls.get("location"),
        "location_twin": twins.get("location"),
        "relative_twin": twins.get("dispersion"),
    }.get(tested)
    if part is None and tested == controls["hot_spot_map"]:
        part = controls
    value = None if part is None else part["reliability"]
    return None if value is None or not np.isfinite(value) else float(value)
