"""Correlations, over StereoSet's targets, of what heads do with what the model says.

Two tables in, tables out: no model is run, none is imported. A correlation over targets says
something about targets, with as many observations as there are targets; ``rank_tests.power`` says
how large it must be to be seen. Categories differ in both tables for reasons of their own, so draws
permute targets within their category.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.crossref.rank_tests import column_tests, correlation, partial_correlation
from tda_bias.stats.resampling import benjamini_hochberg, permutations_within

SUMMARIES = ("mean_T", "mean_abs_T", "max_abs_T", "sd_T", "n_sig_heads", "top_share", "gini")
# Number of StereoSet items, tokens of the word that was read, and its frequency in English.
COVARIATES = ("n_items", "tokens", "zipf")
# Share of heads whose part of the sum of |T| is one of the summaries.
_TOP_SHARE = 0.1


def head_vectors(
    combined: pd.DataFrame, *, column: str = "combined_relative"
) -> tuple[pd.DataFrame, Float[np.ndarray, "target head"], list[tuple[int, int]]]:
    """The combined value of every head for every target.

    Args:
        combined: The table of a run of ``tdabias heads``.
        column: Which of its columns.

    Returns:
        The targets (``category target``), their values, and the (layer, head) of the columns.
        Undefined values are 0: such a head has nothing to compare.
    """
    wide = combined.pivot_table(
        index=["category", "group"],
        columns=["layer", "head"],
        values=column,
        dropna=False,
        observed=True,
    )
    wide = wide.dropna(how="all")
    keys = wide.index.to_frame(index=False).rename(columns={"group": "target"})
    columns = [(int(pair[0]), int(pair[1])) for pair in wide.columns.to_list()]
    return keys, np.nan_to_num(wide.to_numpy(dtype=float)), columns


def head_summaries(
    table: pd.DataFrame, combined: pd.DataFrame, *, column: str = "combined_relative"
) -> pd.DataFrame:
    """Summaries of a target's heads.

    Args:
        table: Rows per target, layer, head and dimension, with ``q_bh``.
        combined: Rows per target, layer and head.
        column: Which combined value is T.

    Returns:
        Columns ``category target n_items mean_T mean_abs_T max_abs_T sd_T n_sig_heads top_share
        gini``: heads with q < .05 in either dimension; the share of the sum of |T| in the top tenth
        of heads, and the Gini coefficient of |T|.
    """
    keys, values, _ = head_vectors(combined, column=column)
    size = np.abs(values)
    significant = table[table["q_bh"] < 0.05].groupby(["category", "group"])
    counts = significant.apply(lambda rows: len(rows[["layer", "head"]].drop_duplicates()))
    items = table.groupby(["category", "group"])["n"].first()
    index = list(keys.itertuples(index=False, name=None))
    summaries = keys.copy()
    summaries["n_items"] = [int(items[pair]) for pair in index]
    summaries["mean_T"] = values.mean(1)
    summaries["mean_abs_T"] = size.mean(1)
    summaries["max_abs_T"] = size.max(1)
    summaries["sd_T"] = values.std(1)
    known = counts.to_dict() if len(counts) else {}
    summaries["n_sig_heads"] = [int(known.get(pair, 0)) for pair in index]
    ordered = np.sort(size, axis=1)
    top = max(1, round(_TOP_SHARE * size.shape[1]))
    total = np.where(size.sum(1) > 0, size.sum(1), np.nan)
    summaries["top_share"] = ordered[:, -top:].sum(1) / total
    rank = np.arange(1, size.shape[1] + 1)
    summaries["gini"] = (2 * rank - size.shape[1] - 1) @ ordered.T / (size.shape[1] * total)
    return summaries


def usable_covariates(table: pd.DataFrame, names: Sequence[str] = COVARIATES) -> list[str]:
    """Covariates that a table has and that vary in it."""
    return [name for name in names if name in table and table[name].nunique() > 1]


def correlations(
    table: pd.DataFrame,
    quantities: Sequence[str],
    summaries: Sequence[str] = SUMMARIES,
    *,
    covariates: Sequence[str] = COVARIATES,
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Every quantity against every head summary, over targets.

    Args:
        table: From ``targets.joined``.
        quantities: Columns of what the model says.
        summaries: Columns of what its heads do.
        covariates: Columns whose ranks are taken out in the partial correlation, as far as the
            table has them.
        n_resamples: Permutations of targets, within categories; and bootstrap resamples.
        rng: The generator they come from.

    Returns:
        One row per pair: ``spearman p low high partial p_partial pearson n q``. p is two-sided over
        the permutations, the interval BCa, q Benjamini-Hochberg over all pairs. NaN where a column
        does not vary.
    """
    orders = permutations_within(list(table["category"]), n_resamples, rng)
    rows = []
    for quantity in quantities:
        for summary in summaries:
            x, y = table[summary].to_numpy(float), table[quantity].to_numpy(float)
            row: dict[str, Any] = {"quantity": quantity, "summary": summary, "n": len(x)}
            row |= correlation(x, y, orders, rng)
            usable = usable_covariates(table, covariates)
            row |= partial_correlation(x, y, table[usable].to_numpy(float), orders)
            rows.append(row)
    tests = pd.DataFrame(rows)
    return tests.assign(q=benjamini_hochberg(tests["p"].to_numpy(float)))


@dataclass(frozen=True)
class HeadMap:
    """Spearman's rho over targets of |T| of every head with one quantity.

    Attributes:
        quantity: Its column.
        table: One row per head: ``layer head rho p p_max q``; p_max is family-wise over heads.
        shuffled: The same with the heads of every target in random order: how many heads have
            p < .05 where no head means anything, and the smallest p_max.
    """

    quantity: str
    table: pd.DataFrame
    shuffled: dict[str, float]


def head_map(
    values: Float[np.ndarray, "target head"],
    columns: Sequence[tuple[int, int]],
    quantity: Float[np.ndarray, " target"],
    category: Sequence[str],
    *,
    name: str,
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> HeadMap:
    """Which heads' |T| goes with a quantity over targets.

    Args:
        values: T of every head for every target.
        columns: (layer, head) of each column.
        quantity: One number per target.
        category: Of each target; permutations stay within.
        name: Of the quantity.
        n_resamples: Permutations, shared by all heads.
        rng: The generator they come from.
    """
    orders = permutations_within(category, n_resamples, rng)
    tests = column_tests(np.abs(values), quantity, orders)
    table = pd.DataFrame(columns, columns=["layer", "head"]).assign(
        rho=tests.rho, p=tests.pvalue, p_max=tests.pvalue_max, q=tests.qvalue
    )
    mixed = rng.permuted(np.abs(values), axis=1)
    control = column_tests(mixed, quantity, orders)
    return HeadMap(
        quantity=name,
        table=table,
        shuffled={
            "heads_p05": float(np.sum(control.pvalue < 0.05)),
            "expected_p05": 0.05 * float(np.sum(~np.isnan(control.pvalue))),
            "smallest_p_max": float(np.nanmin(control.pvalue_max, initial=1.0)),
        },
    )
