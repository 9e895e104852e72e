"""What trainings for less bias found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.debias.protocol import RANDOM, Protocol
from tda_bias.debias.summary import DebiasRecord, failing_guards, quantity_of
from tda_bias.show.text import Finding, counted, interval_text
from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tda_bias.stats.resampling import LEVEL, least_pvalue

# Shorter trainings test the program.
_ENOUGH_STEPS = 10
TESTS_THE_PROGRAM = "this tests the program, not the method."
BETTER = "passed the guards with less loss than the original"


def debias_finding(record: DebiasRecord) -> Finding:
    """The verdict, compared with random heads and with the guard."""
    protocol = record.protocol
    quantity = quantity_of(record.twins).capitalize()
    return Finding(
        result=[record.verdict],
        control=[
            f"Random heads: {counted(protocol.n_random, 'set')} {record.matching}. Guards: "
            "both language-model scores, and minimal pairs where they were read, at most "
            f"{protocol.allowed:g} lower; perplexity at most +{protocol.allowed:g} %; of "
            "random sets, how many pass.",
        ],
        power=[
            f"With {counted(protocol.n_random, 'random set')} no p can be below "
            f"{least_pvalue(protocol.n_random):.2f}."
        ],
        details=[
            *record.broken,
            f"{quantity}: nats per token, items of targets that a training never saw; "
            f"{protocol.folds_run} of {protocol.n_folds} folds. p: (1 + random sets that leave "
            "as little where the language-model score has fallen by a point) / (1 + random "
            "sets).",
        ],
    )


def verdict(
    row: Mapping[Any, Any],
    table: pd.DataFrame,
    protocol: Protocol,
    steps: int,
    *,
    quantity: str = "target effect",
    unchanged: int = 0,
) -> str:
    """Say whether there is less bias, and whether choosing heads helped, in plain words.

    The first is said of the condition of a row, the second of the rankings of a table. A training
    has so many ``steps``; ``unchanged`` trainings of the condition ended with the original.
    """
    interval = interval_text(row["change_low"], row["change_high"], 3, sign="+")
    text = (
        f"On targets it never saw, training {row['condition']} changed the {quantity} per token "
        f"from {row['before']:.3f} to {row['beta']:.3f} (change {row['change']:+.3f}, 95 %: "
        f"{interval}) at {row['perplexity']:+.1f} % perplexity: {less_or_not(row)}"
    )
    if failing := failing_guards(row, protocol):
        text += f" It costs more than the guards allow ({'; '.join(failing)}): not for use."
    if unchanged:
        trainings = counted(unchanged, "training")
        text += f" In {trainings} no check {BETTER}: there the model stays as it was."
    text += f" {_helped(table, protocol)}"
    if steps < _ENOUGH_STEPS:
        text += f" {counted(steps, 'step')} a training: {TESTS_THE_PROGRAM}"
    return text


def less_or_not(row: Mapping[Any, Any]) -> str:
    """Whether less of the bias is left, as far as the folds can say."""
    less = abs(row["beta"]) < abs(row["before"])
    left = "less of the bias is left" if less else "no less of the bias is left"
    if row["folds"] < FEWEST_CLUSTERS:
        folds = counted(int(row["folds"]), "fold is", "folds are")
        return f"{left}, and {folds} too few to say more."
    # Where beta has changed its sign, its size need not have changed.
    turned = row["before"] * row["beta"] < 0
    needed = ("change", "both") if turned else ("change",)
    if all(row[f"{name}_low"] > 0 or row[f"{name}_high"] < 0 for name in needed):
        return f"{left}."
    return f"{left}, which may be chance."


def best_ranking(table: pd.DataFrame, protocol: Protocol) -> tuple[str, pd.Series[Any]]:
    """Whether choosing heads helped, in words, and the row of the best ranking."""
    ranked = table[table["condition"].isin(protocol.choosing)]
    # Few random sets give few values of p: of equal ones, what leaves least.
    best = ranked.iloc[int(np.lexsort((ranked["beta_at_lms"].abs(), ranked["p"]))[0])]
    # With 19 sets the smallest p is .05, and a test at this level rejects with it.
    if best["p"] * len(ranked) <= LEVEL:
        return "Choosing heads helped", best
    if len(ranked) / (1 + protocol.n_random) > LEVEL:
        return "Whether choosing heads helped cannot be told from so few random sets", best
    return "Choosing heads did not help beyond chance", best


def _helped(table: pd.DataFrame, protocol: Protocol) -> str:
    helped, best = best_ranking(table, protocol)
    ranked = table["condition"].isin(protocol.choosing).sum()
    random = float(table.loc[table["condition"] == RANDOM, "beta_at_lms"].iloc[0])
    return (
        f"{helped}: where the language-model score has fallen by a point (or at the last check) "
        f"the best ranking "
        f"({best['condition']}) leaves {abs(best['beta_at_lms']):.3f}, as many random heads "
        f"{random:.3f} on average (p {best['p']:.2f} of {counted(protocol.n_random, 'random set')}"
        f", before correcting for {counted(int(ranked), 'ranking')})."
    )
