"""Paired tests of a change: sign flips, BCa intervals and non-inferiority, by whole clusters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.comparison.outcome import Guard
from tda_bias.stats.resampling import (
    FEWEST_CLUSTERS,
    Intervals,
    bootstrap_intervals,
    exchanges,
    generator,
    times_drawn,
    two_sided_share,
)

# The non-inferiority bound is one-sided.
LEVEL = 0.05
_BATCH = 500


@dataclass(frozen=True)
class Change:
    """An outcome before and after.

    Attributes:
        before: Weighted mean over the items.
        after: The same after.
        change: After minus before.
        low: Lower limit of the interval of the change.
        high: Upper limit.
        p: Two-sided, of exchanging before and after in whole clusters.
        worst: The one-sided 95 % bound of the change on the side that is worse, see ``_worst``; NaN
            without guard.
        items: Number of items.
        clusters: Number of clusters.
        over: What was drawn and flipped: ``clusters``, or ``items`` where there are fewer than six
            clusters: then the interval holds for these clusters only.
        reason: Why something is NaN; else empty.
        spread: Standard deviation of the change over repeated trainings; NaN for one.
    """

    before: float
    after: float
    change: float
    low: float
    high: float
    p: float
    worst: float
    items: int
    clusters: int
    over: str
    reason: str = ""
    spread: float = np.nan


def paired_change(
    items: pd.DataFrame,
    *,
    guard: Guard | None = None,
    tested: bool = True,
    n_resamples: int = 2000,
    n_flips: int = 9999,
    confidence: float = 0.95,
    seed: int = 0,
) -> Change:
    """The change of one outcome.

    Of a model that was trained several times, before stands against the mean over the trainings.
    Its intervals are nested: resamples draw clusters and, independently, trainings. ``p`` exchanges
    before and that mean: it speaks of these trainings.

    Args:
        items: Columns ``cluster weight before after``, and ``after_2``, ``after_3``, ... of further
            trainings; items without a value in any of them are left out.
        guard: Which change is worse, for the one-sided bound.
        tested: Whether before and after could be exchanged; a distance cannot be below 0.
        n_resamples: Bootstrap resamples of clusters.
        n_flips: Sign flips, where there are too many to enumerate.
        confidence: Coverage of the two-sided interval.
        seed: Of all draws.
    """
    after_columns = after_names(items)
    known = items.dropna(subset=["before", *after_columns])
    n_clusters = known["cluster"].nunique()
    if len(known) == 0:
        nan = float("nan")
        return Change(nan, nan, nan, nan, nan, nan, nan, 0, 0, "items", "no item has a value")
    over = "clusters" if n_clusters >= FEWEST_CLUSTERS else "items"
    unit = known["cluster"].factorize()[0] if over == "clusters" else np.arange(len(known))
    totals = _totals(known, unit, ["before", *after_columns])
    weight, before, *after = totals.sum(0)
    changes = (np.array(after) - before) / weight
    options = {"n_resamples": n_resamples}
    two_sided = _intervals(totals, confidence, rng=generator(seed, "two-sided"), **options)
    low, high = two_sided.limits() if two_sided is not None else (np.nan, np.nan)
    worst = np.nan
    if guard is not None:
        ends = _intervals(totals, 1 - 2 * LEVEL, rng=generator(seed, "one-sided"), **options)
        worst = _worst(ends, guard, len(known)) if ends is not None else np.nan
    p = _flipped(totals, n_flips, generator(seed, "flips")) if tested else float("nan")
    few = "" if len(totals) > 1 else "one item or cluster has no interval"
    return Change(
        before=float(before / weight),
        after=float(np.mean(after) / weight),
        change=float(changes.mean()),
        low=float(low),
        high=float(high),
        p=p,
        worst=float(worst),
        items=len(known),
        clusters=n_clusters,
        over=over,
        spread=float(changes.std(ddof=1)) if len(changes) > 1 else np.nan,
        reason=few if tested or few else "a distance is never below 0: there is nothing to test",
    )


def after_names(items: pd.DataFrame) -> list[str]:
    """The columns of the model after, training by training."""
    return [str(name) for name in items.columns if re.fullmatch(r"after(_\d+)?", str(name))]


def _totals(
    items: pd.DataFrame, unit: Int[np.ndarray, " item"], names: Sequence[str]
) -> Float[np.ndarray, "unit column"]:
    """Sums over each unit of the weights and of the weighted values before and after."""
    weight = items["weight"].to_numpy(float)
    values = (weight, *(weight * items[name].to_numpy(float) for name in names))
    return np.stack([np.bincount(unit, weights=column) for column in values], axis=1)


def _intervals(
    totals: Float[np.ndarray, "unit column"],
    confidence: float,
    *,
    n_resamples: int,
    rng: np.random.Generator,
) -> Intervals | None:
    """Bootstrap limits of the change; None for one unit.

    Whole units are drawn with replacement, and where there are several so are trainings.
    """
    n, trainings = len(totals), totals.shape[1] - 2
    if n < 2:
        return None
    parts = np.column_stack([totals[:, 0], totals[:, 2:] - totals[:, 1:2]])

    def statistic(*drawn: np.ndarray, axis: int = -1) -> Any:
        sums = times_drawn(np.atleast_2d(drawn[0]), n) @ parts
        changes = sums[:, 1:] / sums[:, :1]
        if trainings > 1:
            often = times_drawn(np.atleast_2d(drawn[1]), trainings)
            mean = (changes * often).sum(-1) / often.sum(-1)
        else:
            mean = changes[:, 0]
        return mean[0] if max(part.ndim for part in drawn) == 1 else mean

    samples = (np.arange(n), np.arange(trainings))
    return bootstrap_intervals(
        samples[: 1 + (trainings > 1)],
        statistic,
        n_resamples=n_resamples,
        confidence=confidence,
        batch=_BATCH,
        rng=rng,
    )


def _worst(intervals: Intervals, guard: Guard, n_items: int) -> float:
    """The least favourable bound of a change.

    Of the BCa and the percentile limit the worse, because BCa breaks down where few items change.
    Where none is lost, the bootstrap has no loss to draw; n wins and losses cannot rule out a share
    of losses below 1 - .05^(1/n), some 3/n (Clopper & Pearson 1934).
    """
    end = 1 if guard.worse > 0 else 0
    bounds = [intervals.limits(method)[end] for method in ("BCa", "percentile")]
    if guard.wins:
        unseen = 100 * (1 - LEVEL ** (1 / (n_items * guard.wins)))
        bounds.append(np.asarray(guard.worse * unseen))
    return guard.worse * max(guard.worse * float(bound) for bound in bounds)


def _flipped(
    totals: Float[np.ndarray, "unit column"], n_flips: int, rng: np.random.Generator
) -> float:
    """Two-sided p of the change when before and after of whole units change places."""
    difference = totals[:, 2:].mean(1) - totals[:, 1]
    draws = exchanges(np.full(len(difference), 2), n_flips, rng)
    null = (1 - 2 * draws.member) @ difference
    return two_sided_share(null, float(difference.sum()), exact=draws.exact)


def is_kept(guard: Guard, worst: float) -> bool:
    """Tell whether a bound is on the allowed side of the margin; an undefined one is not."""
    return bool(guard.worse * worst < guard.margin)
