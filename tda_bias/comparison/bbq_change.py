"""Two runs of ``bbq`` on the same items: what changed, over templates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.comparison.paired import PairedItems
from tda_bias.comparison.two_runs import TwoRunsRecord
from tda_bias.stats.seeds import generator
from tda_bias.store.result import Result
from tda_bias.types import InputError
from unqover.bbq.result import BBQScores
from unqover.bbq.scores import MEASURES

_KEYS = ["category", "id"]
_SAME = ["cluster", "condition", "polarity"]
_NUMBERS = ("before", "after", "change", "low", "high", "p", "smallest")


class BBQChangeRecord(TwoRunsRecord):
    """Everything needed to repeat a comparison of two runs of ``bbq``."""

    command: str = "compare bbq"
    items: int
    only_one: int


@dataclass(frozen=True, repr=False)
class BBQChange(Result):
    """Changes of BBQ's measures between two runs.

    Attributes:
        changes: One row per measure: ``condition measure items templates``; ``before after change``
            with ``low high p smallest``, paired by items, over templates.
        record: How it came about; ``only_one`` is how many items one run alone has answered.
    """

    COMMAND = "compare bbq"
    RECORD = BBQChangeRecord
    TABLES = (
        (
            "changes",
            "changes.csv",
            {"condition": str, "measure": str, "items": int, **dict.fromkeys(_NUMBERS, float)},
        ),
    )
    SHOWN = (("changes", "changes"),)

    changes: pd.DataFrame
    record: BBQChangeRecord


def compare_bbq(
    before: BBQScores,
    after: BBQScores,
    *,
    category: str | None = None,
    n_resamples: int = 9999,
    seed: int = 0,
) -> BBQChange:
    """Compare the quoted answers of two runs, item by item.

    Every measure that is a mean over the same items in both: s_DIS and the share of right persons
    are not, because each run has other answers that name a person.

    Args:
        before: One run.
        after: The other one.
        category: Only this one of BBQ's; all that both have if None.
        n_resamples: Exchanges of before and after in whole templates.
        seed: Of the exchanges.

    Raises:
        InputError: if both are of the same weights, they share no item, or what has the same id is
            another item.
    """
    weights = [run.record.model.weights for run in (before, after)]
    if weights[0] is not None and weights[0] == weights[1]:
        raise InputError(f"both runs are of {before.record.model.name} with the same weights")
    first, second = (_answered(run, category) for run in (before, after))
    shared = first.index.intersection(second.index)
    if not len(shared):
        raise InputError("the two runs of `tdabias bbq` share no answered item")
    only_one = len(first) + len(second) - 2 * len(shared)
    first, second = first.loc[shared].reset_index(), second.loc[shared].reset_index()
    if not first[_SAME].equals(second[_SAME]):
        raise InputError(
            "the two runs of `tdabias bbq` have other items under the same ids; compare runs on "
            "the same data"
        )
    rows = []
    for measure in MEASURES:
        if measure.name not in ("s_DIS", "right"):
            kept = first["condition"] == measure.condition
            before_values, after_values = (measure.values(side[kept]) for side in (first, second))
            about = {"condition": measure.condition, "measure": measure.name}
            rng = generator(seed, *about.values())
            cluster = first.loc[kept, "cluster"].to_numpy()
            changed = _change(before_values, after_values, cluster, n_resamples, rng)
            rows.append({**about, **changed})
    return BBQChange(
        changes=pd.DataFrame(rows).dropna(subset=["change"]).reset_index(drop=True),
        record=BBQChangeRecord(
            model=before.record.model,
            after=after.record.model,
            category=category or "all",
            n_resamples=n_resamples,
            seed=seed,
            items=len(shared),
            only_one=only_one,
        ),
    )


def _answered(run: BBQScores, category: str | None) -> pd.DataFrame:
    """The answered items of the scoring that is quoted, by category and id."""
    table = run.items[run.items["scoring"] == run.items["scoring"].iloc[0]]
    names = list(table["category"].unique())
    if category is not None:
        if category not in names:
            raise InputError(
                f"`category` must be one that both runs have ({', '.join(names)}); got {category!r}"
            )
        table = table[table["category"] == category]
    answered: pd.DataFrame = table[table["answer"] >= 0].set_index(_KEYS)
    return answered


def _change(
    before: Float[np.ndarray, " item"],
    after: Float[np.ndarray, " item"],
    cluster: np.ndarray,
    n_flips: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    known = np.isfinite(before) & np.isfinite(after)
    if not known.any():
        return {"items": 0, "templates": 0, **dict.fromkeys(_NUMBERS, math.nan)}
    items = PairedItems(before[known], after[known], cluster[known])
    change = items.change()
    low, high = change.limits()
    means = {"before": before[known].mean(), "after": after[known].mean(), "change": change.mean}
    sure = {"low": low, "high": high, "p": items.p_change(n_flips=n_flips, rng=rng)}
    counts = {"items": change.items, "templates": change.clusters}
    return {**counts, **means, **sure, "smallest": change.smallest()}
