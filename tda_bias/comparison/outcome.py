"""Outcomes of a model, item by item, and the tests of their change.

An outcome is a weighted mean over items: of log-odds over pairs, of wins over terms, of the risk of
words, of negative log-probabilities over windows. So the same test serves for all of them: every
item has a value before and one after, and items of a cluster (a target, an occupation) change
places together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from tda_bias.comparison.paired import PairedItems
from tda_bias.stats.clusters import FEWEST_CLUSTERS, ClusterMean
from tda_bias.stats.resampling import LEVEL, holm
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError

Kind = Literal["bias", "quality", "knowledge"]
COLUMNS = ("outcome", "item", "cluster", "weight", "value")


@dataclass(frozen=True)
class Guard:
    """A limit to how much worse an outcome may get."""

    margin: float  # the largest loss allowed, in the outcome's unit
    worse: Literal[1, -1]  # the sign of a change for the worse
    allowed: str  # the margin in words
    # Wins and losses that an item counts, where the outcome is their percentage; 0 elsewhere.
    wins: int = 0


@dataclass(frozen=True)
class Outcome:
    """A number of a model: of a bias, of its language, or of what it must go on knowing."""

    name: str  # without spaces
    kind: Kind
    unit: str
    about: str  # what it is, in a few words
    neutral: float | None = None  # its value without any preference, where it has one
    primary: bool = False  # one of those that a comparison is about
    guard: Guard | None = None  # how much worse it may get; None where nothing is at stake
    cluster: str = "target"  # what items share that are no independent draws
    tested: bool = True  # before and after could be exchanged; a distance cannot be below 0


@dataclass(frozen=True)
class Measure:
    """Something that is asked of a model."""

    name: str  # without spaces
    outcomes: Sequence[Outcome]
    # Texts and settings: everything that values depend on beside the weights.
    about: Mapping[str, Any]
    # Of a model, `batch_size` and `progress`: rows of every outcome, from `item_rows`.
    items: Callable[..., pd.DataFrame]
    of_both: bool = False  # asked of both models at once, before and after, as a distance is
    texts: Sequence[str] = ()  # what is read of texts that are not ours: may hold special tokens


def item_rows(
    outcome: str,
    *,
    item: Sequence[Any] | pd.Series[Any],
    cluster: Sequence[Any] | pd.Series[Any],
    value: Any,
    weight: Any = 1.0,
) -> pd.DataFrame:
    """The rows of one outcome: names of the items, each once, with clusters, values and weights."""
    return pd.DataFrame(
        {
            "outcome": outcome,
            "item": [str(name) for name in item],
            "cluster": [str(name) for name in cluster],
            "weight": np.broadcast_to(np.asarray(weight, float), (len(item),)),
            "value": np.asarray(value, float),
        },
        columns=list(COLUMNS),
    )


def equal_weights(groups: pd.Series[Any]) -> np.ndarray:
    """Weights with which a mean over items is the mean over groups of their means."""
    sizes = groups.map(groups.value_counts())
    return np.asarray(1.0 / sizes.to_numpy(float))


# -- the change of one outcome ---------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """An outcome before and after: weighted means over items, and the interval of their change."""

    before: float
    after: float
    change: float
    low: float
    high: float
    p: float  # two-sided, of exchanging before and after in whole clusters
    worst: float  # the one-sided 95 % bound on the side that is worse; NaN without guard
    items: int
    clusters: int
    # What the interval is over: clusters, or items where there are fewer than five clusters: then
    # it holds for these clusters only.
    over: str
    reason: str = ""  # why something is NaN
    spread: float = np.nan  # standard deviation of the change over repeated trainings
    error: float = np.nan  # standard error of the change


def paired_change(
    items: pd.DataFrame,
    *,
    guard: Guard | None = None,
    tested: bool = True,
    n_flips: int = 9999,
    confidence: float = 0.95,
    seed: int = 0,
) -> Change:
    """The change of one outcome.

    Of a model that was trained several times, before is compared with the mean over the trainings.
    Its interval adds the variance between trainings to that between clusters. ``p`` exchanges
    before and that mean: it speaks of these trainings.

    ``items`` has the columns ``cluster weight before after``, and ``after_2``, ``after_3``, ... of
    further trainings; items without a value in any of them are left out. Flips are ``n_flips``
    where there are too many to enumerate.
    """
    after_columns = after_names(items)
    known = items.dropna(subset=["before", *after_columns])
    n_clusters = known["cluster"].nunique()
    if len(known) == 0:
        nan = float("nan")
        return Change(nan, nan, nan, nan, nan, nan, nan, 0, 0, "items", "no item has a value")
    over = "clusters" if n_clusters >= FEWEST_CLUSTERS else "items"
    cluster = known["cluster"].to_numpy() if over == "clusters" else np.arange(len(known))
    weight, before = (known[name].to_numpy(float) for name in ("weight", "before"))
    paired = PairedItems(before, known[after_columns].to_numpy(float), cluster, weight)
    changes, measured = paired.by_training(), paired.change()
    worst = np.nan if guard is None else _worst(measured, guard, len(known))
    rng = generator(seed, "flips")
    p = paired.p_change(n_flips=n_flips, rng=rng) if tested else np.nan
    low, high = measured.limits(confidence)
    few = "" if measured.clusters >= FEWEST_CLUSTERS else "fewer than five items have no interval"
    if measured.error == 0 and tested and not few:
        few = "no item differs from another: there is no interval"
    return Change(
        before=float(weight @ before / weight.sum()),
        after=float(weight @ before / weight.sum() + changes.mean()),
        change=float(changes.mean()),
        low=low,
        high=high,
        p=p,
        worst=worst,
        items=len(known),
        clusters=n_clusters,
        over=over,
        spread=float(changes.std(ddof=1)) if len(changes) > 1 else np.nan,
        error=measured.error,
        reason=few if tested or few else "a distance is never below 0: there is nothing to test",
    )


def after_names(items: pd.DataFrame) -> list[str]:
    """The columns of the model after, training by training."""
    return [str(name) for name in items.columns if str(name).startswith("after")]


def _worst(measured: ClusterMean, guard: Guard, n_items: int) -> float:
    """The least favourable bound of a change; the change itself where no item differs.

    Where no item is lost there is no spread of losses; n wins and losses cannot rule out a share of
    losses below 1 - .05^(1/n), some 3/n (Clopper & Pearson 1934).
    """
    worst = measured.limits(1 - 2 * LEVEL)[1 if guard.worse > 0 else 0]
    if measured.error == 0 and measured.clusters >= FEWEST_CLUSTERS:
        worst = measured.mean
    if guard.wins:
        unseen = 100 * (1 - LEVEL ** (1 / (n_items * guard.wins)))
        worst = guard.worse * max(guard.worse * worst, unseen)
    return worst


def is_kept(guard: Guard, worst: float) -> bool:
    """Tell whether a bound is on the allowed side of the margin; an undefined one is not."""
    return bool(guard.worse * worst < guard.margin)


def verdict(guard: Guard, change: Change) -> str:
    """Judge a change: ``pass``, ``fail`` where the loss was measured, else ``inconclusive``."""
    if is_kept(guard, change.worst):
        return "pass"
    lost = guard.worse * change.change >= guard.margin
    return "fail" if lost else "inconclusive"


# -- all outcomes ----------------------------------------------------------------------------------


def change_table(items: pd.DataFrame, outcomes: Sequence[Outcome], **draws: Any) -> pd.DataFrame:
    """One row per outcome: before, after, what changed and how sure that is.

    ``items`` has the columns ``outcome item cluster weight before after measured``, and
    ``after_2``, ... of further trainings. Outcomes that no item belongs to are left out, unless
    items of one model alone do. ``draws`` are those of ``paired_change``.

    Returns:
        Columns ``outcome before after change low high p guard`` (``verdict``, or empty), then
        ``p_holm`` over the primary outcomes, ``worst`` (the one-sided 95 % bound that the guard is
        about), ``margin`` (the change up to which it is kept), ``allowed`` (the same in words),
        ``kind unit primary neutral about items clusters``, ``cluster`` (what those are), ``over``,
        ``unpaired``, ``spread`` (standard deviation of the change over trainings), ``error`` (its
        standard error) and ``reason``.
    """
    by_name = dict(tuple(items.groupby("outcome", sort=False)))
    rows = []
    for outcome in outcomes:
        if outcome.name in by_name:
            own, guard = by_name[outcome.name], outcome.guard
            change = paired_change(own, guard=guard, tested=outcome.tested, **draws)
            rows.append(_row(outcome, change, own["measured"] == "both"))
    if not rows:
        raise InputError("no outcome has an item")
    table = pd.DataFrame(rows)
    adjusted = np.full(len(table), np.nan)
    primary = table["primary"].to_numpy(bool)
    adjusted[primary] = holm(table.loc[primary, "p"].to_numpy(float))
    table.insert(list(table.columns).index("guard") + 1, "p_holm", adjusted)
    return table


def _row(outcome: Outcome, change: Change, paired: pd.Series[bool]) -> dict[str, Any]:
    guard, reason = outcome.guard, change.reason
    if change.items == 0 and not paired.any():
        reason = "the models read no item alike: other tokenizers"
    return {
        "outcome": outcome.name,
        **{name: getattr(change, name) for name in ("before", "after", "change", "low", "high")},
        "p": change.p,
        "guard": "" if guard is None else verdict(guard, change),
        "worst": change.worst,
        "margin": np.nan if guard is None else guard.worse * guard.margin,
        "allowed": "" if guard is None else guard.allowed,
        "kind": outcome.kind,
        "unit": outcome.unit,
        "primary": outcome.primary,
        "neutral": np.nan if outcome.neutral is None else outcome.neutral,
        "about": outcome.about,
        "items": change.items,
        "clusters": change.clusters,
        "cluster": outcome.cluster,
        "over": change.over,
        "unpaired": int((~paired).sum()),
        "spread": change.spread,
        "error": change.error,
        "reason": reason,
    }
