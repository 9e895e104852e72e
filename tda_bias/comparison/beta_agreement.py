"""Agreement of two models in the target effect (beta): the same items, the same targets?

Both models read the same items, which bring the same noise into a target's mean: a division by both
reliabilities would correct the wrong number. The corrected value therefore comes from the parts of
both variances and of the covariance that lie between targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.comparison.paired import CHANCE, PairedItems, agreement_row
from tda_bias.comparison.two_runs import TwoRunsRecord, shared_category
from tda_bias.scores.stereoset import SCORINGS, log_odds
from tda_bias.scores.stereoset_scores import StereoSetScores
from tda_bias.stats.seeds import generator
from tda_bias.store.result import Result
from tda_bias.types import InputError


class BetaAgreementRecord(TwoRunsRecord):
    """Everything needed to repeat a comparison of two target effects."""

    command: str = "compare beta"


_RELIABILITY = ("reliability_before", "reliability_after", "corrected")
_COLUMNS = {
    **dict.fromkeys(("quantity", "scoring", "over"), str),
    "n": int,
    **dict.fromkeys(("r", *CHANCE, *_RELIABILITY), float),
}


@dataclass(frozen=True, repr=False)
class BetaAgreement(Result):
    """Correlations of two models' target effects.

    Attributes:
        agreement: One row per quantity (``beta``, ``log_odds``), scoring and what it is over
            (``items``, ``items within targets``, ``targets``): Pearson's ``r`` with the middle 95 %
            of the same when items (of a target) or targets change places, one-sided ``p``; over
            targets also ``reliability_before``, ``reliability_after`` and ``corrected``.
        record: Everything needed to repeat it.
    """

    COMMAND = "compare beta"
    RECORD = BetaAgreementRecord
    TABLES = (("agreement", "agreement.csv", _COLUMNS),)
    SHOWN = (("agreement in the target effect", "agreement"),)

    agreement: pd.DataFrame
    record: BetaAgreementRecord


def compare_beta(
    before: StereoSetScores,
    after: StereoSetScores,
    *,
    category: str | None = None,
    n_resamples: int = 9999,
    seed: int = 0,
) -> BetaAgreement:
    """Correlate the target effects of two runs of ``stereoset`` over the items that both have.

    A category must be given where they have several.

    Raises:
        InputError: if a run has no twins, they share no category or fewer than three of its items,
            or both are of the same weights.
    """
    if before.record.model.weights == after.record.model.weights:
        raise InputError(f"both runs are of {before.record.model.name} with the same weights")
    if not (before.has_twins and after.has_twins):
        raise InputError("a run has no twins, and agreement is in the target effect (beta)")
    of_before, of_after = (list(run.items["category"].unique()) for run in (before, after))
    category = shared_category(of_before, of_after, category)
    pairs = pd.merge(_quantities(before), _quantities(after), on=["category", "id", "group"])
    pairs = pairs[pairs["category"] == category].dropna()
    if len(pairs) < 3:
        raise InputError(f"the runs share {len(pairs)} items with twins; a correlation needs 3")
    target = pairs["group"].to_numpy(str)
    rows = [
        {"quantity": quantity, "scoring": scoring, **row}
        for quantity in ("beta", "log_odds")
        for scoring in SCORINGS
        for row in agreement(
            pairs[f"{quantity}_{scoring}_x"].to_numpy(float),
            pairs[f"{quantity}_{scoring}_y"].to_numpy(float),
            target, n_resamples=n_resamples, rng=generator(seed, quantity, scoring, category),
        )
    ]  # fmt: skip
    return BetaAgreement(
        agreement=pd.DataFrame(rows),
        record=BetaAgreementRecord(
            model=before.record.model,
            after=after.record.model,
            category=category,
            n_resamples=n_resamples,
            seed=seed,
        ),
    )


def _quantities(run: StereoSetScores) -> pd.DataFrame:
    names = ["category", "id", "group", *(f"beta_{scoring}" for scoring in SCORINGS)]
    odds = {f"log_odds_{scoring}": log_odds(run.items, scoring) for scoring in SCORINGS}
    return run.items[names].assign(**odds)


def agreement(
    x: Float[np.ndarray, " item"],
    y: Float[np.ndarray, " item"],
    target: np.ndarray,
    *,
    n_resamples: int,
    rng: np.random.Generator,
) -> Iterator[dict[str, Any]]:
    """Rows over items, over items within targets, and over targets; see ``BetaAgreement``."""
    member: Int[np.ndarray, " item"] = np.unique(target, return_inverse=True)[1]
    size = np.bincount(member)
    means = np.stack([np.bincount(member, values) / size for values in (x, y)])
    within = np.stack([x, y]) - means[:, member]
    draws: dict[str, Any] = {"of": "values", "n_resamples": n_resamples, "rng": rng}
    unknown = dict.fromkeys(_RELIABILITY, np.nan)
    yield agreement_row("items", PairedItems(x, y, member), **draws) | unknown
    apart = PairedItems(within[0], within[1], cluster=member)
    over = "items within targets"
    yield agreement_row(over, apart, exchanged="within clusters", **draws) | unknown
    between, items = _components(means, within, size)
    variances, noise = np.diag(between), np.diag(items)
    with np.errstate(invalid="ignore", divide="ignore"):
        # A negative component of variance stands for none.
        real = np.maximum(variances, 0)
        reliability = real / (real + noise / _n0(size))
        corrected = between[0, 1] / np.sqrt(variances.prod())
    known = [*reliability, corrected if (variances > 0).all() else np.nan]
    targets = PairedItems(means[0], means[1], cluster=np.arange(len(size)))
    row = agreement_row("targets", targets, **draws)
    yield row | dict(zip(_RELIABILITY, known, strict=True))


def _components(
    means: Float[np.ndarray, "model target"],
    within: Float[np.ndarray, "model item"],
    size: Int[np.ndarray, " target"],
) -> tuple[Float[np.ndarray, "model model"], Float[np.ndarray, "model model"]]:
    """Covariances of both models between targets and within them, from mean cross products.

    Source: analysis of variance with random effects and groups of several sizes (Searle 1971).
    """
    n, groups = int(size.sum()), len(size)
    if groups < 2 or n == groups:
        return np.full((2, 2), np.nan), np.full((2, 2), np.nan)
    items = within @ within.T / (n - groups)
    apart = means - (means @ size / n)[:, None]
    between = (apart * size) @ apart.T / (groups - 1)
    return (between - items) / _n0(size), items


def _n0(size: Int[np.ndarray, " target"]) -> float:
    """Items of a target in the mean square between them: their number, where all have as many."""
    n = size.sum()
    return float((n - (size**2).sum() / n) / max(len(size) - 1, 1))
