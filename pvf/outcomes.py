"""Risk word by word, for comparisons of models: means over the rows are R, R_p and R_v."""

from __future__ import annotations

import pandas as pd

from pvf.preferences import Preferences
from pvf.risk import decompose


def risk_items(preferences: Preferences) -> pd.DataFrame:
    """One row per word x with its share of the model's risk, under the papers' definition.

    Returns:
        Columns ``x R R_p R_v``, whose means are the model's numbers (templates weighted by their
        counts, scale of [PCF], maximum norm).
    """
    risk = decompose(preferences.by_class().p, context_weights=preferences.counts)
    return pd.DataFrame({"x": preferences.x, "R": risk.r, "R_p": risk.r_p, "R_v": risk.r_v})
