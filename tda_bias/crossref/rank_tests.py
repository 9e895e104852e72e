"""Rank correlations over targets or items and their tests by permutation: no model is imported.

Many columns (heads) are compared with one quantity under one set of permutations, so that the
largest correlation of each permutation gives family-wise p-values. A correlation over targets has
as many observations as there are targets; ``power`` says how large it must be to be seen.
Categories differ for reasons of their own, so draws permute targets within their category.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.stats.clusters import spearman_limits
from tda_bias.stats.resampling import (
    benjamini_hochberg,
    family_wise_share,
    permutation_pvalue,
    permutations_within,
    standardised_ranks,
    tolerance,
)

SUMMARIES = ("mean_T", "mean_abs_T", "max_abs_T", "sd_T", "n_sig_heads", "top_share", "gini")
# Columns of a table over targets, and what they hold.
COVARIATES = {
    "n_items": "number of items",
    "tokens": "tokens of the word",
    "zipf": "word frequency",
}
# Permutations are worked off in blocks of so many.
_BLOCK = 500
# What a least-squares fit leaves of ranks is nothing below this share of their number.
_NOTHING = 1e-9


def power(n: int) -> dict[str, float]:
    """Power of one correlation over n targets or items.

    Returns:
        ``significant``: the smallest |rho| with p < .05, by the t approximation; ``power_80``: the
        true |rho| that is found four times out of five, by Fisher's z with Fieller's variance.
    """
    t = float(stats.t.ppf(0.975, n - 2))
    z = float(stats.norm.ppf(0.975) + stats.norm.ppf(0.8))
    return {
        "significant": t / np.sqrt(n - 2 + t**2),
        "power_80": float(np.tanh(z * np.sqrt(1.06 / (n - 3)))),
    }


# -- many columns at once --------------------------------------------------------------------------


def ranks_without(
    values: Float[np.ndarray, "item column"], covariates: Float[np.ndarray, "item covariate"]
) -> Float[np.ndarray, "item column"]:
    """Residuals of each column's ranks on the covariates' ranks, each of length 1.

    A column that the covariates explain wholly, or that holds a NaN, becomes NaN.
    """
    basis = _basis(covariates)
    ranks = stats.rankdata(values, axis=0)
    left = ranks - basis @ (basis.T @ ranks)
    length = np.sqrt((left**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(length > _NOTHING * len(values), left / length, np.nan)


def _basis(covariates: np.ndarray) -> np.ndarray:
    """An orthonormal basis of a constant and the covariates' ranks."""
    ranks = stats.rankdata(covariates, axis=0)
    design = np.column_stack([np.full(len(ranks), 1.0), ranks - ranks.mean(0)])
    left, size, _ = np.linalg.svd(design, full_matrices=False)
    return np.asarray(left[:, size > _NOTHING * size[0]])


def column_tests(
    columns: Float[np.ndarray, "item column"],
    quantity: Float[np.ndarray, " item"],
    orders: Int[np.ndarray, "draw item"],
    *,
    covariates: Float[np.ndarray, "item covariate"] | None = None,
) -> tuple[pd.DataFrame, float]:
    """Test which columns go with a quantity over items.

    Orders are permutations of the items, shared by all columns. The ranks of covariates are taken
    out of both sides: what they explain of the quantity stays in place, what they leave is permuted
    (Freedman & Lane 1983).

    Returns:
        One row per column: ``rho`` (Spearman, partial with covariates), ``p`` (two-sided),
        ``p_max`` (family-wise over the columns), ``q`` (Benjamini-Hochberg); NaN where a column
        does not vary. And the |rho| from which ``p_max`` is below .05; NaN if none is defined.
    """
    if covariates is None:
        ranks, quantity_ranks = standardised_ranks(columns), standardised_ranks(quantity)
        explained = np.zeros((len(quantity_ranks), 0))
    else:
        ranks = ranks_without(columns, covariates)
        quantity_ranks = ranks_without(quantity[:, None], covariates)[:, 0]
        explained = _basis(covariates)
    defined = ~np.isnan(ranks).any(0) & ~np.isnan(quantity_ranks).any()
    tests = pd.DataFrame(np.nan, index=range(columns.shape[1]), columns=["rho", "p", "p_max", "q"])
    if not defined.any():
        return tests, np.nan
    rho = quantity_ranks @ ranks[:, defined]
    size = np.abs(rho)
    count, largest = np.zeros(len(rho)), np.empty(len(orders))
    for start in range(0, len(orders), _BLOCK):
        part = slice(start, start + _BLOCK)
        null = np.abs(_permuted(quantity_ranks, orders[part], explained) @ ranks[:, defined])
        count += (null >= size - tolerance(size)).sum(0)
        largest[part] = null.max(1)
    pvalue = permutation_pvalue(count, len(orders), exact=False)
    found = (rho, pvalue, family_wise_share(largest, size), benjamini_hochberg(pvalue))
    tests.loc[defined] = np.column_stack(found)
    return tests, float(np.quantile(largest, 0.95, method="higher"))


def _permuted(
    values: np.ndarray, orders: np.ndarray, explained: np.ndarray
) -> Float[np.ndarray, "draw item"]:
    """Permuted residuals, scaled to length 1 after another fit; what it explains may stay in.

    The columns are free of the covariates, so only the length of the residuals matters.
    """
    moved = values[orders]
    if not explained.shape[1]:
        return np.asarray(moved)
    lost = ((moved @ explained) ** 2).sum(1, keepdims=True)
    left = np.sqrt(np.maximum(1 - lost, 0.0))
    return np.asarray(np.divide(moved, left, out=np.zeros_like(moved), where=left > _NOTHING))


# -- tables over targets ---------------------------------------------------------------------------


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
        whole, _ = column_tests(said, x, orders)
        partial = (
            column_tests(said, x, orders, covariates=held)[0] if has_partial else whole * np.nan
        )
        limits = np.array([spearman_limits(rho, len(x)) for rho in whole["rho"]])
        found = {"quantity": list(quantities), "summary": summary, "n": len(x)}
        found |= {"spearman": whole["rho"], "p": whole["p"]}
        found |= {"low": limits[:, 0], "high": limits[:, 1]}
        found |= {"partial": partial["rho"], "p_partial": partial["p"]}
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
    tests, _ = column_tests(size, numbers, orders)
    places = vectors.columns.to_frame(index=False)
    control, _ = column_tests(rng.permuted(size, axis=1), numbers, orders)
    shuffled = {
        "heads_p05": float((control["p"] < 0.05).sum()),
        "expected_p05": 0.05 * float(control["p"].notna().sum()),
    }
    return pd.concat([places, tests], axis=1), shuffled
