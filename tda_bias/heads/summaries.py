"""Summaries of whole runs: by category, and between models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias


def category_summary(result: HeadBias, *, by: RankBy = "metric") -> pd.DataFrame:
    """Columns ``category groups mean sd standard_error`` of the groups' means over heads.

    The SD has the divisor n, as in the paper's figure; the standard error n - 1.
    """
    rows = []
    for category in result.categories:
        values = result.groups.loc[result.groups["category"] == category, f"{by}_mean"].to_numpy()
        n = len(values)
        error = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        rows.append(
            {
                "category": category, "groups": n, "mean": values.mean(), "sd": values.std(),
                "standard_error": error,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def agreement(results: Mapping[str, HeadBias]) -> pd.DataFrame:
    """Spearman over common groups of their mean |relative| over heads, model by model."""
    size = {}
    for name, result in results.items():
        table = result.combined.assign(size=result.combined["combined_relative"].abs())
        size[name] = table.groupby(["category", "group"])["size"].mean()
    names = list(results)
    rho = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for number, first in enumerate(names):
        for second in names[:number]:
            both = pd.concat([size[first], size[second]], axis=1, join="inner").dropna().to_numpy()
            if len(both) < 4:
                raise InputError(
                    f"{first} and {second} have {len(both)} groups in common; 4 are needed"
                )
            rho.loc[first, second] = rho.loc[second, first] = float(spearmanr(both).statistic)
    return rho
