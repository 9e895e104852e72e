"""Which numbers of a prompt go together over prompts.

A prompt that leaves more open is changed more by any name. Whether a prompt whose text the group
moves is one whose decision it moves is another question. Pure tables in, a table out.
"""

from __future__ import annotations

import pandas as pd

from tda_bias.stats.correlation import spearman_limits, spearman_over_items

CORRELATION_COLUMNS = {
    **dict.fromkeys(("quantity", "other"), str),
    "prompts": int,
    **dict.fromkeys(("spearman", "low", "high"), float),
}
# How far a decision is moved, whichever way.
DECISION_SIZE = "decision size"
_PAIRS = (
    ("twins", "placebos"),
    *(("effect", other) for other in ("twins", "placebos", "echo", "sampled", "tokens")),
    ("effect", DECISION_SIZE),
)


def prompt_correlations(
    prompts: pd.DataFrame, decisions: pd.DataFrame, *, confidence: float = 0.95
) -> pd.DataFrame:
    """Rank correlations over prompts of what they have to do with each other.

    Args:
        prompts: A row per prompt, with ``id`` and its numbers; see ``result_tables``.
        decisions: A row per prompt that asks for a decision, with ``id`` and ``difference``; may be
            empty.
        confidence: Coverage of the intervals.

    Returns:
        One row per pair: ``quantity`` and ``other``; the ``prompts`` that have both; Spearman's
        correlation ``spearman``, NaN where one does not vary or there are fewer than three; its
        interval ``low high``.
    """
    size = decisions.set_index("id")["difference"].astype(float).abs()
    numbers = prompts.assign(**{DECISION_SIZE: prompts["id"].map(size)})
    rows = []
    for quantity, other in _PAIRS:
        if other == DECISION_SIZE and size.empty:
            continue
        both = numbers[[quantity, other]].astype(float).dropna()
        rho = spearman_over_items(both[quantity], both[other])
        low, high = spearman_limits(rho, len(both), confidence=confidence)
        rows.append(
            {
                "quantity": quantity,
                "other": other,
                "prompts": len(both),
                "spearman": rho,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows, columns=[*CORRELATION_COLUMNS])
