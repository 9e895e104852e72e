"""Tables of rank correlations over targets, with their tests by permutation.

Many columns (heads) are compared with one quantity under one set of permutations; see
``tda_bias.stats.correlation``. A correlation over targets has as many observations as there are
targets. Categories differ for reasons of their own, so draws permute targets within their category.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tda_bias.stats.correlation import (
    ColumnTests,
    column_tests,
    permutations_within,
    spearman_limits,
)
from tda_bias.stats.resampling import LEVEL, benjamini_hochberg

SUMMARIES = ("mean_T", "mean_abs_T", "max_abs_T", "sd_T", "n_sig_heads", "top_share", "gini")
# Columns of a table over targets, and what they hold.
COVARIATES = {
    "n_items": "number of items",
    "tokens": "tokens of the word",
    "zipf": "word frequency",
}


def column_table(tests: ColumnTests) -> pd.DataFrame:
    """One row per column: ``rho p p_max q``."""
    return pd.DataFrame(
        {"rho": tests.rho, "p": tests.pvalue, "p_max": tests.pvalue_max, "q": tests.qvalue}
    )


def usable_covariates(table: pd.DataFrame) -> list[str]:
    """Covariates that a table has and that vary in it; the partial correlation takes them out."""
    return [name for name in COVARIATES if name in table and table[name].nunique() > 1]


def correlations(
    table: pd.DataFrame,
    quantities: Sequence[str],
    summaries: Sequence[str] = SUMMARIES,
    *,
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Every quantity against every head summary, over targets, permuted within categories.

    ``partial`` is without the ranks of the covariates that the table has, and undefined where there
    are too few targets for them.

    Returns:
        One row per pair: ``spearman p low high partial p_partial n q``. p is two-sided over
        the permutations, q Benjamini-Hochberg over all pairs. NaN where a column does not vary.
    """
    orders = permutations_within(list(table["category"]), n_resamples, rng)
    said = table[[*quantities]].to_numpy(float)
    held = table[usable_covariates(table)].to_numpy(float)
    # Covariates need targets that are left over for the correlation.
    has_partial = 0 < held.shape[1] <= len(table) - 3
    tables = []
    for summary in summaries:
        x = table[summary].to_numpy(float)
        whole = column_tests(said, x, orders)
        limits = np.array([spearman_limits(rho, len(x)) for rho in whole.rho])
        found = {"quantity": list(quantities), "summary": summary, "n": len(x)}
        found |= {"spearman": whole.rho, "p": whole.pvalue}
        found |= {"low": limits[:, 0], "high": limits[:, 1], "partial": np.nan, "p_partial": np.nan}
        if has_partial:
            partial = column_tests(said, x, orders, covariates=held)
            found |= {"partial": partial.rho, "p_partial": partial.pvalue}
        tables.append(pd.DataFrame(found))
    # One after the other by quantity, whose number is the index.
    tests = pd.concat(tables).sort_index(kind="stable").reset_index(drop=True)
    return tests.assign(q=benjamini_hochberg(tests["p"].to_numpy(float)))


def head_map(
    vectors: pd.DataFrame,
    quantity: pd.Series[float],
    *,
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Test which heads' |T| (``crossref.head_vectors``) goes with a quantity of the same targets.

    Permutations are within categories and shared by all heads.

    Returns:
        One row per head: ``layer head rho p p_max q``, where rho is Spearman's and p_max is
        family-wise over heads. And the same with the heads of every target in random order, where
        no head means anything: ``heads_p05``, how many have p < .05, and ``expected_p05``.
    """
    orders = permutations_within(list(vectors.index.get_level_values("category")), n_resamples, rng)
    size, numbers = vectors.abs().to_numpy(), quantity.to_numpy(float)
    tests = column_table(column_tests(size, numbers, orders))
    places = vectors.columns.to_frame(index=False)
    control = column_tests(rng.permuted(size, axis=1), numbers, orders).pvalue
    shuffled = {
        "heads_p05": float((control < LEVEL).sum()),
        "expected_p05": LEVEL * float(np.isfinite(control).sum()),
    }
    return pd.concat([places, tests], axis=1), shuffled
