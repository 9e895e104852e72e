"""The same items before and after, and what items share: how they changed and how they agree.

Items are anything that both sides have a value of: texts, heads, words. Those of a cluster (a
target, a layer) resemble each other, so clusters are the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from tda_bias.stats.clusters import ClusterMean, cluster_mean
from tda_bias.stats.correlation import PermutedCorrelation, permuted_correlation
from tda_bias.stats.sign_flips import flip_pvalue


@dataclass(frozen=True)
class PairedItems:
    """Two values of every item.

    Attributes:
        before: One side; no NaN here or after.
        after: The other side; one column per training where it was trained several times.
        cluster: What items share; any labels.
        weight: Of the items, above 0; all alike if None.

    Examples:
        >>> items = PairedItems(np.zeros(6), np.arange(1.0, 7), np.repeat(["a", "b", "c"], 2))
        >>> items.change().mean, items.p_change(rng=np.random.default_rng(0))
        (3.5, 0.25)
    """

    before: Float[np.ndarray, " item"]
    after: Float[np.ndarray, "item *training"]
    cluster: np.ndarray
    weight: Float[np.ndarray, " item"] | None = None

    def __len__(self) -> int:
        return len(self.before)

    def by_training(self) -> Float[np.ndarray, " training"]:
        """The weighted mean change of every training."""
        weight = np.ones(len(self)) if self.weight is None else self.weight
        return np.asarray(weight @ self._changes() / weight.sum())

    def change(self) -> ClusterMean:
        """The mean of after - before and, with several trainings, their variance added."""
        mean = cluster_mean(self._changes().mean(1), self.cluster, weight=self.weight)
        of_each = self.by_training()
        return mean.plus(cluster_mean(of_each)) if len(of_each) > 1 else mean

    def p_change(self, *, n_flips: int = 9999, rng: np.random.Generator) -> float:
        """Two-sided p of exchanging before and after (the mean of trainings) in whole clusters."""
        change = self._changes().mean(1)
        weighted = change if self.weight is None else self.weight * change
        return flip_pvalue(weighted, self.cluster, n_resamples=n_flips, rng=rng)

    def _changes(self) -> Float[np.ndarray, "item training"]:
        return np.asarray(self.after.reshape(len(self), -1) - self.before[:, None])

    def correlation(
        self,
        *,
        of: Literal["ranks", "values"],
        exchanged: Literal["all", "within clusters"] = "all",
        n_resamples: int = 9999,
        rng: np.random.Generator,
    ) -> PermutedCorrelation:
        """The correlation of before with after (of one training), beside what chance gives.

        Args:
            of: Ranks (Spearman's) or values (Pearson's).
            exchanged: Which items change places.
            n_resamples: Exchanges.
            rng: Of the exchanges.

        Returns:
            NaN for fewer than 3 items and where one side does not vary: then nothing is drawn.
        """
        if len(self) < 3:
            return PermutedCorrelation(float("nan"), np.empty(0), float("nan"))
        strata = self.cluster if exchanged == "within clusters" else None
        return permuted_correlation(
            self.before, self.after, strata, n_resamples=n_resamples, rng=rng, of=of
        )


# Columns of an agreement, after the correlation itself.
CHANCE = ("chance_low", "chance_high", "p")


def agreement_row(
    over: str,
    items: PairedItems,
    *,
    of: Literal["ranks", "values"],
    exchanged: Literal["all", "within clusters"] = "all",
    n_resamples: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The row of a table of agreement; arguments are those of ``PairedItems.correlation``.

    Returns:
        ``over`` (what it is over), ``n`` items, ``rho`` (of ranks) or ``r`` (of values), and
        ``CHANCE``: the middle 95 % of exchanges and the one-sided p.
    """
    found = items.correlation(of=of, exchanged=exchanged, n_resamples=n_resamples, rng=rng)
    chance = dict(zip(CHANCE, (*found.chance(), found.p_larger()), strict=True))
    return {"over": over, "n": len(items), "rho" if of == "ranks" else "r": found.r, **chance}
