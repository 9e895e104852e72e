"""What a training for less bias comes to: the change on targets that it never saw."""

from __future__ import annotations

import pandas as pd

from tda_bias.debias.finding import best_ranking, less_or_not
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.summary import failing_guards, quantity_of
from tda_bias.show.text import counted
from tda_bias.show.verdict import Outcome, per_spread, power_said
from tda_bias.stats.clusters import cluster_mean

_UNIT = "nats per token"


def debias_outcomes(run: DebiasRun) -> list[Outcome]:
    """The change of the target effect by the condition that is recommended."""
    record, table, protocol = run.record, run.conditions, run.record.protocol
    row = table[table["condition"] == record.recommended].iloc[0].to_dict()
    items = _items(run.table("items"), record.recommended)
    change = items["after"] - items["before"]
    # Of random sets these are means over them, as everything else here.
    over_folds = cluster_mean(change.to_numpy(float), items["fold"].to_numpy())
    low, high = over_folds.limits()
    failing = failing_guards(row, protocol)
    _, best = best_ranking(table, protocol)
    quantity = quantity_of(record.twins)
    return [
        Outcome(
            question="change",
            name=f"Change: {quantity} after training {counted(int(row['heads']), 'head')}",
            about=f"{quantity} per token after the training less before it, on targets that it "
            "never saw",
            value=over_folds.mean,
            low=low,
            high=high,
            unit=_UNIT,
            p=over_folds.pvalue(),
            clusters=int(row["folds"]),
            cluster="fold",
            # Less bias that is paid with language is no less bias of the same model.
            confounded=("capability",) if failing else (),
            category=record.category,
            lines=[
                f"{row['before']:.3f} to {row['beta']:.3f}, heads by {record.recommended}",
                less_or_not(row).removesuffix("."),
                f"chosen beside random heads: p {best['p']:.2f} "
                f"({counted(protocol.n_random, 'set')})",
                *(failing or ["guards hold"]),
            ],
            limits=["the saved model is the original"] if record.unchanged else [],
            power=power_said(over_folds.smallest(), _UNIT),
            items=items,
        ).standardised(per_spread(change.std(ddof=1)))
    ]


def _items(items: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The items of test targets before and after; of random sets the mean over them."""
    own = items[items["condition"] == condition]
    means = own.groupby(["fold", "group", "id"], sort=False)[["beta_before", "beta"]].mean()
    names = {"group": "target", "id": "item", "beta_before": "before", "beta": "after"}
    return means.reset_index().rename(columns=names)
