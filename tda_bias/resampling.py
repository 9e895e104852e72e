"""Permutations, ranks, p-values and q-values: once, for all packages.

Pure arrays in, numbers out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy import stats
from scipy.stats import false_discovery_control, rankdata


def spearman_over_items(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Spearman over the items (groups, heads) that are defined in both; NaN below 3 of them."""
    return float(spearman(np.asarray(x, float), np.asarray(y, float)))


def spearman(
    x: Float[np.ndarray, "... item"], y: Float[np.ndarray, "... item"]
) -> Float[np.ndarray, "..."]:
    """Spearman along the last axis over items defined in every row; NaN where there is none."""
    defined = (np.isfinite(x) & np.isfinite(y)).reshape(-1, x.shape[-1]).all(0)
    if defined.sum() < 3:
        return np.full(x.shape[:-1], np.nan)
    ranks = [rankdata(values[..., defined], axis=-1) for values in (x, y)]
    first, second = (r - r.mean(-1, keepdims=True) for r in ranks)
    product = (first * second).sum(-1)
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    undefined = np.full(x.shape[:-1], np.nan)
    return np.asarray(np.divide(product, scale, out=undefined, where=scale > 0))


# -- statistics ------------------------------------------------------------------------------------


def permutations_within(
    category: Sequence[str], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "draw target"]:
    """Random orders that exchange targets of the same category only."""
    labels = np.asarray(category)
    drawn = np.tile(np.arange(len(labels)), (n, 1))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        drawn[:, own] = own[np.argsort(rng.random((n, len(own))), axis=1)]
    return drawn


def standardised_ranks(values: Float[np.ndarray, "target *k"]) -> Float[np.ndarray, "target *k"]:
    """Ranks (ties share the mean rank) with mean 0 and length 1: products are Spearman's rho.

    A constant column becomes NaN.
    """
    ranks = stats.rankdata(values, axis=0)
    ranks = ranks - ranks.mean(0)
    length = np.sqrt((ranks**2).sum(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(length > 0, ranks / length, np.nan))


def two_sided_share(null: Float[np.ndarray, " draw"], observed: float) -> float:
    """Permutation p of a value among draws, by size; ties count."""
    count = np.asarray(np.sum(np.abs(null) >= abs(observed) - 1e-12))
    return float(permutation_pvalue(count, len(null), exact=False))


def permutation_pvalue(
    count: Int[np.ndarray, "..."], n_resamples: int, exact: bool
) -> Float[np.ndarray, "..."]:
    """(1 + count) / (1 + n_resamples), or count / n_resamples where all were enumerated.

    Source: Phipson & Smyth (2010), Permutation p-values should never be zero.
    """
    if exact:
        return np.asarray(count / n_resamples)
    return np.asarray((1 + count) / (1 + n_resamples))


def tolerance(size: np.ndarray) -> np.ndarray:
    """Differences below this are ties: rounding must not decide whether a draw counts."""
    return np.asarray(1e-12 + 1e-9 * size)


def benjamini_hochberg(pvalue: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """False-discovery-rate q of all defined p-values together; NaN stays NaN."""
    q = np.full(np.shape(pvalue), np.nan)
    defined = np.isfinite(pvalue)
    if defined.any():
        q[defined] = false_discovery_control(np.asarray(pvalue)[defined], method="bh")
    return q


def generator(seed: int, *names: str) -> np.random.Generator:
    """A generator of its own for everything that has a name: the order of calls does not matter."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])
