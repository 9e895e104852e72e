"""Do targets whose heads treat stereotypes differently also show risk in what the model says?

Joins, per StereoSet target, what the heads do with a table of what the model says (prejudice,
volatility, signed mean stereotype, or any other number per word). Two tables in, tables out: no
model is run, none is imported.

A correlation over targets says something about targets, with as many observations as there are
targets; ``power`` says how large it must be to be seen. Categories differ in both tables for
reasons of their own, so draws permute targets within their category.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.resampling import (
    benjamini_hochberg,
    permutation_pvalue,
    permutations_within,
    standardised_ranks,
    two_sided_share,
)
from tda_bias.types import InputError, RankBy

SUMMARIES = ("mean_T", "mean_abs_T", "max_abs_T", "sd_T", "n_sig_heads", "top_share", "gini")


# Number of StereoSet items, tokens of the word that was read, and its frequency in English.
COVARIATES = ("n_items", "tokens", "zipf")


_TOP_SHARE = 0.1


_BATCH = 500


def head_vectors(
    combined: pd.DataFrame, *, by: RankBy = "relative"
) -> tuple[pd.DataFrame, Float[np.ndarray, "target head"], list[tuple[int, int]]]:
    """The combined value of every head for every target.

    Args:
        combined: The table of a run of ``tdabias heads``.
        by: Which value.

    Returns:
        The targets (``category target``), their values, and the (layer, head) of the columns.
        Undefined values are 0: such a head has nothing to compare.
    """
    wide = combined.pivot_table(
        index=["category", "group"],
        columns=["layer", "head"],
        values=f"combined_{by}",
        dropna=False,
        observed=True,
    )
    wide = wide.dropna(how="all")
    keys = wide.index.to_frame(index=False).rename(columns={"group": "target"})
    columns = [(int(pair[0]), int(pair[1])) for pair in wide.columns.to_list()]
    return keys, np.nan_to_num(wide.to_numpy(dtype=float)), columns


def head_summaries(
    table: pd.DataFrame, combined: pd.DataFrame, *, by: RankBy = "relative"
) -> pd.DataFrame:
    """What a target's heads amount to.

    Args:
        table: Rows per target, layer, head and dimension, with ``q_bh``.
        combined: Rows per target, layer and head.
        by: Which combined value is T.

    Returns:
        Columns ``category target n_items mean_T mean_abs_T max_abs_T sd_T n_sig_heads top_share
        gini``: heads with q < .05 in either dimension; the share of the sum of |T| in the top tenth
        of heads, and the Gini coefficient of |T|.
    """
    keys, values, _ = head_vectors(combined, by=by)
    size = np.abs(values)
    significant = table[table["q_bh"] < 0.05].groupby(["category", "group"])
    counts = significant.apply(lambda rows: len(rows[["layer", "head"]].drop_duplicates()))
    items = table.groupby(["category", "group"])["n"].first()
    index = list(keys.itertuples(index=False, name=None))
    found = keys.copy()
    found["n_items"] = [int(items[pair]) for pair in index]
    found["mean_T"] = values.mean(1)
    found["mean_abs_T"] = size.mean(1)
    found["max_abs_T"] = size.max(1)
    found["sd_T"] = values.std(1)
    known = counts.to_dict() if len(counts) else {}
    found["n_sig_heads"] = [int(known.get(pair, 0)) for pair in index]
    ordered = np.sort(size, axis=1)
    top = max(1, round(_TOP_SHARE * size.shape[1]))
    total = np.where(size.sum(1) > 0, size.sum(1), np.nan)
    found["top_share"] = ordered[:, -top:].sum(1) / total
    rank = np.arange(1, size.shape[1] + 1)
    found["gini"] = (2 * rank - size.shape[1] - 1) @ ordered.T / (size.shape[1] * total)
    return found


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
        table: From ``joined``.
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
            row |= _one_correlation(x, y, orders, rng)
            own = usable_covariates(table, covariates)
            row |= _partial(x, y, table[own].to_numpy(float), orders)
            rows.append(row)
    found = pd.DataFrame(rows)
    defined = found["p"].notna()
    found["q"] = np.nan
    found.loc[defined, "q"] = benjamini_hochberg(found.loc[defined, "p"].to_numpy())
    return found


def _one_correlation(
    x: np.ndarray, y: np.ndarray, orders: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    ranks_x, ranks_y = standardised_ranks(x), standardised_ranks(y)
    rho = float(ranks_x @ ranks_y)
    if np.isnan(rho):
        return dict.fromkeys(("spearman", "p", "low", "high", "pearson"), np.nan)
    low, high = _bca(x, y, rng)
    return {
        "spearman": rho,
        "p": two_sided_share(ranks_x[orders] @ ranks_y, rho),
        "low": low,
        "high": high,
        "pearson": float(np.corrcoef(x, y)[0, 1]),
    }


def _partial(
    x: np.ndarray, y: np.ndarray, covariates: np.ndarray, orders: np.ndarray
) -> dict[str, float]:
    """Correlation of what ranks leave after a least-squares fit on the covariates' ranks."""
    if not covariates.shape[1] or len(x) < covariates.shape[1] + 3:
        return {"partial": np.nan, "p_partial": np.nan}
    design = np.column_stack([np.ones(len(x)), stats.rankdata(covariates, axis=0)])
    residuals = []
    for values in (x, y):
        ranks = stats.rankdata(values)
        own = ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]
        length = np.sqrt(own @ own)
        if length < 1e-9 * len(x):
            return {"partial": np.nan, "p_partial": np.nan}
        residuals.append(own / length)
    rho = float(residuals[0] @ residuals[1])
    return {"partial": rho, "p_partial": two_sided_share(residuals[0][orders] @ residuals[1], rho)}


def _bca(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    def rho(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        ranks = [stats.rankdata(values, axis=-1) for values in (a, b)]
        centred = [r - r.mean(-1, keepdims=True) for r in ranks]
        length = [np.sqrt((c**2).sum(-1)) for c in centred]
        product = (centred[0] * centred[1]).sum(-1)
        # A resample of one value only has no correlation: it counts as none.
        both = length[0] * length[1]
        return np.asarray(np.divide(product, both, out=np.zeros_like(product), where=both > 0))

    with warnings.catch_warnings():
        # Where all resamples give one value (a perfect order) there is no interval: it is NaN.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        found = stats.bootstrap((x, y), rho, paired=True, n_resamples=2000, method="BCa", rng=rng)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


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
    found = _map_tests(np.abs(values), quantity, orders)
    table = pd.DataFrame(columns, columns=["layer", "head"]).assign(**found)
    mixed = rng.permuted(np.abs(values), axis=1)
    control = _map_tests(mixed, quantity, orders)
    return HeadMap(
        quantity=name,
        table=table,
        shuffled={
            "heads_p05": float(np.sum(control["p"] < 0.05)),
            "expected_p05": 0.05 * float(np.sum(~np.isnan(control["p"]))),
            "smallest_p_max": float(np.nanmin(control["p_max"], initial=1.0)),
        },
    )


def _map_tests(
    size: np.ndarray, quantity: np.ndarray, orders: np.ndarray
) -> Mapping[str, Float[np.ndarray, " head"]]:
    ranks, own = standardised_ranks(size), standardised_ranks(quantity)
    defined = ~np.isnan(ranks).any(0) & ~np.isnan(own).any()
    rho = np.full(size.shape[1], np.nan)
    rho[defined] = own @ ranks[:, defined] if defined.any() else rho[defined]
    count, largest = np.zeros(size.shape[1]), np.empty(len(orders))
    threshold = np.abs(np.nan_to_num(rho)) - 1e-12
    for start in range(0, len(orders), _BATCH):
        part = slice(start, start + _BATCH)
        null = np.abs(own[orders[part]] @ np.where(defined, ranks, 0.0))
        count += (null >= threshold).sum(0)
        largest[part] = null.max(1)
    p = np.where(defined, permutation_pvalue(count, len(orders), exact=False), np.nan)
    above = len(orders) - np.searchsorted(np.sort(largest), threshold, side="left")
    p_max = np.where(defined, permutation_pvalue(above, len(orders), exact=False), np.nan)
    q = np.full_like(p, np.nan)
    if defined.any():
        q[defined] = benjamini_hochberg(p[defined])
    return {"rho": rho, "p": p, "p_max": p_max, "q": q}


def mantel(
    values: Float[np.ndarray, "target head"],
    quantity: Float[np.ndarray, " target"],
    category: Sequence[str],
    *,
    distance: Literal["cosine", "spearman"] = "cosine",
    n_resamples: int = 9999,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Do targets with similar head profiles have similar values? Spearman over pairs of targets.

    Args:
        values: T of every head for every target.
        quantity: One number per target; pairs differ by its absolute difference.
        category: Permutations of targets stay within.
        distance: Of head profiles: 1 - cosine, or 1 - Spearman.
        n_resamples: Permutations.
        rng: The generator they come from.

    Returns:
        ``rho p``, one-sided: similar profiles with similar values.
    """
    profile = standardised_ranks(values.T).T if distance == "spearman" else values
    length = np.linalg.norm(profile, axis=1, keepdims=True)
    profile = np.divide(profile, length, out=np.zeros_like(profile), where=length > 0)
    pairs = np.triu_indices(len(values), 1)
    apart = standardised_ranks((1 - profile @ profile.T)[pairs])
    difference = np.abs(quantity[:, None] - quantity[None])
    rank = np.zeros_like(difference)
    rank[pairs] = standardised_ranks(difference[pairs])
    rank += rank.T
    rho = float(rank[pairs] @ apart)
    if np.isnan(rho):
        return {"rho": np.nan, "p": np.nan}
    orders = permutations_within(category, n_resamples, rng)
    null = np.array([rank[o[pairs[0]], o[pairs[1]]] @ apart for o in orders])
    larger = np.asarray(np.sum(null >= rho - 1e-12))
    return {"rho": rho, "p": float(permutation_pvalue(larger, n_resamples, exact=False))}


def power(n: int) -> dict[str, float]:
    """What a correlation over n targets can show.

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


def load_targets(folder: str | Path) -> pd.DataFrame:
    """The joined table that a run of ``tdabias crossref`` left.

    Raises:
        InputError: if the folder has none.
    """
    try:
        return pd.read_csv(Path(folder) / "targets.csv")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} has no targets.csv; `tdabias crossref` makes it ({error})"
        ) from error
