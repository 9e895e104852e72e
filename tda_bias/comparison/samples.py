"""Two sides of sample files of lm-evaluation-harness: what changed in every task, item by item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import Outcome, change_table
from tda_bias.comparison.sample_files import Samples
from tda_bias.config import CompareConfig
from tda_bias.show.text import counted
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.store.result import Result
from tda_bias.types import InputError

_ITEMS = {
    **dict.fromkeys(("outcome", "item", "cluster", "measured"), str),
    **dict.fromkeys(("weight", "before", "after"), float),
}
_TABLE = {
    **dict.fromkeys(("outcome", "task", "metric", "over"), str),
    **dict.fromkeys(("before", "after", "change", "error", "low", "high", "p", "p_holm"), float),
    **dict.fromkeys(("items", "clusters", "unpaired"), int),
}


class SamplesRecord(RunRecord):
    """Everything needed to repeat a comparison of sample files; ``model`` is the side before."""

    command: str = "compare samples"
    after: ModelRecord
    confidence: float
    n_flips: int
    seed: int
    cluster: str  # what is a cluster: document, or the field of the documents
    # Files of each task, before and after: of several the scores of an item are averaged.
    runs: dict[str, tuple[int, int]]
    left_out: tuple[str, ...] = ()  # tasks of one side alone
    other_prompts: int = 0  # documents that the two sides were asked about in other words


@dataclass(frozen=True, repr=False)
class SampleComparison(Result):
    """What changed from one side to the other.

    Attributes:
        table: One row for each task, metric and filter, as ``change_table`` gives it; ``p_holm`` is
            corrected over the first metric of every task and filter.
        items: Both scores of every item.
        record: Everything needed to repeat it.
    """

    COMMAND = "compare samples"
    RECORD = SamplesRecord
    TABLES = (("table", "compare.csv", _TABLE), ("items", "items.parquet", _ITEMS))
    SHOWN = (("changes", "table"),)

    table: pd.DataFrame
    items: pd.DataFrame
    record: SamplesRecord


def compare_samples(
    before: Samples,
    after: Samples,
    *,
    cluster: str = "document",
    config: CompareConfig | None = None,
) -> SampleComparison:
    """Compare the scores of the same documents on two sides, task by task.

    Scores are paired by document and filter. ``cluster`` is what ``read_samples`` took as clusters,
    for messages.

    Raises:
        InputError: if the sides share no task or no document, a document differs between them, or
            all scores and answers are equal.
    """
    config = config or CompareConfig()
    items = _paired(before, after)
    both = items[items["measured"] == "both"]
    if both.empty:
        raise InputError(f"{before.name} and {after.name} share no document of a task and metric")
    _refuse_equal(before, after, both)
    names = items[["outcome", "task", "filter", "metric"]].drop_duplicates("outcome")
    first = names.drop_duplicates(["task", "filter"])["outcome"]
    outcomes = [
        Outcome(
            name,
            kind="quality",
            unit="score",
            about=f"{name}: mean over documents",
            primary=name in set(first),
            cluster=cluster,
        )
        for name in names["outcome"]
    ]
    draws = {"n_flips": config.n_flips, "confidence": config.confidence, "seed": config.seed}
    table = change_table(items, outcomes, **draws).merge(
        names[["outcome", "task", "metric"]], on="outcome"
    )
    runs = {
        str(task): (before.files[str(task)], after.files[str(task)])
        for task in both["task"].unique()
    }
    return SampleComparison(
        table=table,
        items=items[[*_ITEMS]],
        record=SamplesRecord(
            model=ModelRecord(name=before.name),
            after=ModelRecord(name=after.name),
            confidence=config.confidence,
            n_flips=config.n_flips,
            seed=config.seed,
            cluster=cluster,
            runs=runs,
            left_out=tuple(sorted(set(before.files) ^ set(after.files))),
            other_prompts=int((both["prompt_before"] != both["prompt_after"]).sum()),
        ),
    )


def _paired(before: Samples, after: Samples) -> pd.DataFrame:
    """The scores of both sides, item by item; what one side lacks is NaN."""
    keys = ["task", "filter", "metric", "doc_id"]
    items = before.table.merge(
        after.table,
        on=keys,
        how="outer",
        suffixes=("_before", "_after"),
        indicator="measured",
        validate="one_to_one",
        sort=False,
    )
    # Tasks of one side alone are no outcome; their documents would stand as unpaired.
    shared = set(before.table["task"]) & set(after.table["task"])
    items = items[items["task"].isin(shared)].reset_index(drop=True)
    if items.empty:
        tasks = [", ".join(sorted(set(side.table["task"]))) for side in (before, after)]
        raise InputError(f"the two sides share no task: {tasks[0]}; and {tasks[1]}")
    other = items[(items["measured"] == "both") & (items["doc_before"] != items["doc_after"])]
    if len(other):
        one = other.iloc[0]
        raise InputError(
            f"document {one['doc_id']} of {one['task']} is another text on the other side "
            f"({counted(other['doc_id'].nunique(), 'doc_hash', 'doc_hashes')} of its documents "
            "differ): the sides were run on other data, and cannot be paired"
        )
    of_filter = np.where(items["filter"] == "none", "", ":" + items["filter"].astype(str))
    return items.assign(
        outcome=items["task"] + ":" + items["metric"] + of_filter,
        item=items["doc_id"],
        cluster=items["cluster_before"].fillna(items["cluster_after"]),
        weight=1.0,
        before=items["score_before"],
        after=items["score_after"],
        measured=items["measured"].astype(str),
    )


def _refuse_equal(before: Samples, after: Samples, both: pd.DataFrame) -> None:
    """Refuse two sides whose scores are all equal, unless their answers show two models."""
    if not (both["before"] == both["after"]).all():
        return
    tasks = both["task"].unique()
    if all(before.answers[task] == after.answers[task] for task in tasks):
        raise InputError(
            f"all {len(both)} scores of {before.name} and {after.name} are equal, and so are the "
            "answers: one model twice, or a backend that does not work; this is no result"
        )
