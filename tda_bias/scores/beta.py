"""Beta: the part of a model's preference that is about the target, not about the wording.

The preference for the stereotype text of a triple holds its wording, length and plausibility. Its
twin, the same triple about another target, has these too. So

    beta = [l(s) - l(a)] - mean over twins of [l(s') - l(a')]

is what changes with the target; l is the log-probability of a continuation, as a sum or per token.
Without any bias a triple and its twins could be exchanged: that is what is tested. A twin's target
carries stereotypes of its own, so beta is relative to the other targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.scores.likelihood import TripleLikelihood
from tda_bias.scores.stereoset import SCORINGS, Scoring
from tda_bias.stats.resampling import (
    FEWEST_CLUSTERS,
    benjamini_hochberg,
    bootstrap_intervals,
    exchanges,
    generator,
    share_reached,
    smallest_effect,
    times_drawn,
)
from tda_bias.types import CATEGORIES, InputError

# Exchanges and resamples are worked off in blocks of so many.
_BLOCK = 500
# Columns of intervals: over items, and over targets.
LIMITS = tuple(
    f"{name}_{end}"
    for name in ("beta", "ss_twin")
    for end in ("low", "high", "low_targets", "high_targets")
)
_NUMBERS = (
    "log_odds", "log_odds_sd", "log_odds_twin", "beta", "beta_sd", "t", "p", "exact", "ss_twin",
    "p_ss_twin", "r", "explained", "smallest",
)  # fmt: skip


# -- one row per item ------------------------------------------------------------------------------


def twin_table(likelihoods: Sequence[Sequence[TripleLikelihood]]) -> pd.DataFrame:
    """One row per twin: log-probability and number of tokens of its two continuations.

    Args:
        likelihoods: Of the twins of every item, in the order of the items.

    Returns:
        Columns ``item`` (its row number), ``log_prob_s log_prob_a tokens_s tokens_a``.
    """
    rows = [
        {
            "item": number,
            **{f"log_prob_{name}": twin.total[role] for role, name in enumerate("sa")},
            **{f"tokens_{name}": twin.n_tokens[role] for role, name in enumerate("sa")},
        }
        for number, twins in enumerate(likelihoods)
        for twin in twins
    ]
    names = ["item", "log_prob_s", "log_prob_a", "tokens_s", "tokens_a"]
    return pd.DataFrame(rows, columns=names)


def log_odds(table: pd.DataFrame, scoring: Scoring) -> Float[np.ndarray, " row"]:
    """l(s) - l(a) of items or twins, in nats, or in nats per token of each continuation."""
    stereotype, anti = (
        table[f"log_prob_{name}"] / (1 if scoring == "sum" else table[f"tokens_{name}"])
        for name in "sa"
    )
    return (stereotype - anti).to_numpy(float)


def with_beta(items: pd.DataFrame, twins: pd.DataFrame) -> pd.DataFrame:
    """The items with what their twins say.

    Args:
        items: From ``stereoset.item_table``.
        twins: From ``twin_table``.

    Returns:
        The items with the columns ``twins`` (their number), ``logprob_s_twin logprob_a_twin``
        (means over them), ``beta_sum`` and ``beta_mean``; NaN where an item has no twin.
    """
    means = twins.groupby("item")[["log_prob_s", "log_prob_a"]].mean()
    means = means.reindex(range(len(items)))
    number = twins["item"].value_counts().reindex(range(len(items)), fill_value=0)
    table = items.assign(
        twins=number.to_numpy(int),
        logprob_s_twin=means["log_prob_s"].to_numpy(),
        logprob_a_twin=means["log_prob_a"].to_numpy(),
    )
    for scoring in SCORINGS:
        table[f"beta_{scoring}"] = TwinSets.of(items, twins, scoring).contrasts[:, 0]
    return table


@dataclass(frozen=True)
class TwinSets:
    """The log-odds of every item and of its twins.

    Attributes:
        values: ``(item, member)``: the item first, then its twins; NaN behind the last one.
        size: Members of each set; 1 for an item without twins.
    """

    values: Float[np.ndarray, "item member"]
    size: Int[np.ndarray, " item"]

    @classmethod
    def of(cls, items: pd.DataFrame, twins: pd.DataFrame, scoring: Scoring) -> TwinSets:
        """From the two tables; twins name their item by its row number."""
        item = twins["item"].to_numpy(int)
        size = 1 + np.bincount(item, minlength=len(items))
        values = np.full((len(items), int(size.max(initial=1))), np.nan)
        values[:, 0] = log_odds(items, scoring)
        place = 1 + twins.groupby("item").cumcount().to_numpy()
        values[item, place] = log_odds(twins, scoring)
        return cls(values, size)

    @property
    def contrasts(self) -> Float[np.ndarray, "item member"]:
        """Each member's log-odds minus the mean of the others of its set; NaN in a set of one."""
        others = (self.size - 1)[:, None]
        rest = np.nansum(self.values, axis=1, keepdims=True) - np.nan_to_num(self.values)
        mean = np.divide(rest, others, out=np.full_like(rest, np.nan), where=others > 0)
        return np.asarray(self.values - mean)

    def among(self, kept: np.ndarray) -> TwinSets:
        """Some of the items."""
        return TwinSets(self.values[kept], self.size[kept])


# -- tests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExchangeTest:
    """A mean and a share under exchange of triples with their twins.

    Attributes:
        p: Two-sided, of the mean of beta.
        p_share: Two-sided, of the distance from one half of the share of items with beta > 0.
        exact: Whether all exchanges were enumerated.
    """

    p: float
    p_share: float
    exact: bool


def exchange_test(
    sets: TwinSets, *, n_resamples: int = 9999, rng: np.random.Generator
) -> ExchangeTest:
    """Test whether a triple and its twins can be exchanged.

    In every draw each set puts forward one of its members as the original, all alike probable; with
    one twin this flips the sign of beta. Exact for up to 12 items of one twin.

    Args:
        sets: Items that have twins.
        n_resamples: Draws, where there are too many arrangements to enumerate.
        rng: The generator they come from.
    """
    contrasts = sets.contrasts
    drawn = exchanges(sets.size, n_resamples, rng)
    null = np.empty((len(drawn), 2))
    for start in range(0, len(drawn), _BLOCK):
        part = slice(start, start + _BLOCK)
        values = contrasts[np.arange(len(contrasts)), drawn.member[part]]
        null[part] = _mean_and_share(values).T
    observed = np.abs(_mean_and_share(contrasts[:, 0]) - [0.0, 50.0])
    p, p_share = share_reached(np.abs(null - [0.0, 50.0]), observed, exact=drawn.exact)
    return ExchangeTest(float(p), float(p_share), drawn.exact)


def _mean_and_share(beta: np.ndarray, axis: int = -1) -> Float[np.ndarray, "2 ..."]:
    """Mean, and percentage of positive values, a tie as one half."""
    return np.stack([beta.mean(axis), 50 * (np.sign(beta) + 1).mean(axis)])


# -- one row per category and group ----------------------------------------------------------------


def beta_table(
    items: pd.DataFrame,
    twins: pd.DataFrame,
    *,
    n_resamples: int = 2000,
    n_exchanges: int = 9999,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Beta per group, category and overall, for both scorings.

    Args:
        items: From ``stereoset.item_table``.
        twins: From ``twin_table``.
        n_resamples: Bootstrap resamples of items, and of targets.
        n_exchanges: Exchanges of triples and twins, where they are not enumerated.
        confidence: Coverage of the intervals.
        seed: Of resamples and exchanges.

    Returns:
        One row per scoring and (category, group); group ``all`` is a category, category ``all``
        everything:

        - ``items``, ``left_out`` (items without twins), ``targets``, ``twins`` (mean number);
        - ``log_odds log_odds_twin``, means, ``log_odds_sd``;
        - ``beta`` with ``_sd``, ``_low _high`` (BCa over items) and ``_low_targets _high_targets``
          (over targets with all their items), ``t``, and the exchange test's ``p`` with ``q``
          (Benjamini-Hochberg over the groups of a category and scoring) and ``exact``;
        - ``ss_twin``, the percentage of items with beta > 0, 50 without bias, with the same
          intervals and ``p_ss_twin``;
        - ``r``, the correlation over items of the log-odds with those of the twins, and
          ``explained``, its square: the share of the variance that is wording;
        - ``smallest``: the mean that a t-test of these items would find four times out of five.

    Raises:
        InputError: if no item has a twin.
    """
    has_twin = np.isin(np.arange(len(items)), twins["item"])
    if not has_twin.any():
        raise InputError("no item has a twin: there is nothing to compare it with")
    rows: list[dict[str, Any]] = []
    for scoring in SCORINGS:
        sets = TwinSets.of(items, twins, scoring)
        for (category, group), member in _parts(items):
            used = np.flatnonzero(member & has_twin)
            row: dict[str, Any] = {"scoring": scoring, "category": category, "group": group}
            row |= {"items": len(used), "left_out": int((member & ~has_twin).sum())}
            rng = generator(seed, "beta", scoring, category, group)
            target = _numbered(items.iloc[used])
            row |= beta_summary(
                sets.among(used), target, n_resamples=n_resamples, n_exchanges=n_exchanges,
                confidence=confidence, rng=rng,
            )  # fmt: skip
            rows.append(row)
    table = pd.DataFrame(rows)
    groups = table[table["group"] != "all"].groupby(["scoring", "category"])["p"]
    table["q"] = groups.transform(lambda p: benjamini_hochberg(p.to_numpy(float)))
    return table


def _parts(items: pd.DataFrame) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    """Everything, each category and each of its groups, as masks over items."""
    if items["category"].nunique() > 1:
        yield ("all", "all"), np.ones(len(items), dtype=bool)
    for category in CATEGORIES:
        inside = (items["category"] == category).to_numpy()
        if inside.any():
            yield (category, "all"), inside
        for group in sorted(items.loc[inside, "group"].unique()):
            yield (category, str(group)), inside & (items["group"] == group).to_numpy()


def _numbered(items: pd.DataFrame) -> Int[np.ndarray, " item"]:
    """The number of each item's target; the same word in two categories is two targets."""
    return items.groupby(["category", "group"]).ngroup().to_numpy()


def beta_summary(
    sets: TwinSets,
    target: Int[np.ndarray, " item"],
    *,
    n_resamples: int = 2000,
    n_exchanges: int = 9999,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The numbers of one row of ``beta_table``.

    Args:
        sets: Items that have twins.
        target: The number of each item's target.
        n_resamples: As in ``beta_table``.
        n_exchanges: As there.
        confidence: As there.
        rng: The generator of all draws.
    """
    n = len(target)
    beta = sets.contrasts[:, 0]
    odds, twin = sets.values[:, 0], sets.values[:, 0] - beta
    row: dict[str, Any] = {"targets": len(np.unique(target)), "twins": np.nan}
    row |= dict.fromkeys((*_NUMBERS, *LIMITS), np.nan)
    if n == 0:
        return row
    mean, share = _mean_and_share(beta)
    test = exchange_test(sets, n_resamples=n_exchanges, rng=rng)
    row |= {"twins": float((sets.size - 1).mean()), "log_odds": odds.mean()}
    row |= {"log_odds_twin": twin.mean(), "beta": mean, "ss_twin": share}
    row |= {"p": test.p, "p_ss_twin": test.p_share, "exact": test.exact}
    if n < 2:
        return row
    sd = float(beta.std(ddof=1))
    row |= {"log_odds_sd": odds.std(ddof=1), "beta_sd": sd}
    row["t"] = mean / sd * np.sqrt(n) if sd > 0 else np.nan
    row["r"] = _pearson(odds, twin)
    row["explained"] = row["r"] ** 2
    row["smallest"] = sd * smallest_effect(n)
    return row | _limits(beta, target, n_resamples, confidence, rng)


def _limits(
    beta: np.ndarray,
    target: np.ndarray,
    n_resamples: int,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Intervals of the mean and of the share: over items, and over whole targets."""
    options: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "rng": rng}
    limits = [bootstrap_intervals((beta,), _mean_and_share, batch=_BLOCK, **options).limits()]
    label, member = np.unique(target, return_inverse=True)
    if len(label) < FEWEST_CLUSTERS:
        limits.append(np.full((2, 2), np.nan))
    else:
        limits.append(_target_limits(beta, member, len(label), options))
    # (over, limit, quantity) in the order of the names
    values = np.stack(limits).transpose(2, 0, 1).reshape(-1)
    return dict(zip(LIMITS, map(float, values), strict=True))


def _target_limits(
    beta: np.ndarray, target: np.ndarray, n_targets: int, options: dict[str, Any]
) -> Float[np.ndarray, "limit 2"]:
    per_item = np.stack([beta, 50 * (np.sign(beta) + 1), np.ones_like(beta)])
    total = np.stack([np.bincount(target, weights=values) for values in per_item], axis=1)

    def statistic(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        often = times_drawn(np.atleast_2d(drawn), n_targets) @ total
        values = often[:, :2].T / often[:, 2]
        return values[:, 0] if drawn.ndim == 1 else values

    return bootstrap_intervals((np.arange(n_targets),), statistic, batch=_BLOCK, **options).limits()


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
