"""Which heads stand out over the groups of a category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.inference.resampled import _BLOCK
from tda_bias.resampling import benjamini_hochberg, permutation_pvalue


@dataclass(frozen=True)
class HotSpots:
    """The map of a category and its tests.

    Attributes:
        z: ``(head,)``, the observed map: mean over groups of the z-score over heads.
        null_mean: ``(head,)``, the mean of the map under flips: what a head shows without any
            effect, because a few texts dominate it.
        pvalue: ``(head,)``, one-sided: a map value this large under within-triple flips.
        pvalue_max: ``(head,)``, the same for the largest standardised value of the whole map
            (family-wise).
        qvalue: ``(head,)``, Benjamini-Hochberg over heads.
        n_groups: ``(head,)``, number of groups with a defined value.
    """

    z: Float[np.ndarray, " head"]
    null_mean: Float[np.ndarray, " head"]
    pvalue: Float[np.ndarray, " head"]
    pvalue_max: Float[np.ndarray, " head"]
    qvalue: Float[np.ndarray, " head"]
    n_groups: Int[np.ndarray, " head"]


def z_over_heads(values: Float[np.ndarray, "... head"]) -> Float[np.ndarray, "... head"]:
    """z-score over the last axis, population SD, NaN left out; NaN where heads do not vary."""
    count = np.isfinite(values).sum(-1, keepdims=True)
    filled = np.where(np.isfinite(values), values, 0.0)
    mean = filled.sum(-1, keepdims=True) / np.maximum(count, 1)
    deviation = values - mean
    squares = np.where(np.isfinite(deviation), deviation, 0.0) ** 2
    sd = np.sqrt(squares.sum(-1, keepdims=True) / np.maximum(count, 1))
    return np.asarray(np.divide(deviation, sd, out=np.full_like(deviation, np.nan), where=sd > 0))


def hot_spots(
    groups: Sequence[Float[np.ndarray, "n head"]],
    *,
    n_resamples: int = 9999,
    rngs: Sequence[np.random.Generator],
) -> HotSpots:
    """Which heads stand out over the groups of a category more than flipped labels make them.

    The map is the mean over groups of the z-score over heads of |combined|. It is recomputed under
    flips within contexts, independent between groups and shared by all heads; a head's p counts
    the draws with a value at least as large, its family-wise p those whose largest standardised
    value over all heads is.

    Args:
        groups: For each group the contexts' shares of every head's combined value, whose sum over
            contexts is that value.
        n_resamples: Draws; never enumerated, because the groups multiply.
        rngs: One generator per group, so that the order of groups does not matter.
    """
    observed = np.stack([z_over_heads(np.abs(terms.sum(0))) for terms in groups])
    n_groups = np.isfinite(observed).sum(0)
    z = _mean_over_groups(observed.sum(0, where=np.isfinite(observed)), n_groups)
    null = np.zeros((n_resamples, observed.shape[1]), dtype=np.float32)
    for terms, rng, row in zip(groups, rngs, observed, strict=True):
        signs = rng.integers(0, 2, size=(n_resamples, len(terms)), dtype=np.int8)
        _add_null_map(null, 1 - 2 * signs, terms, np.isfinite(row))
    null = _mean_over_groups(null, n_groups)
    # The null map is kept in single precision: anything closer than this is a tie.
    pvalue = permutation_pvalue((null >= z - 1e-5).sum(0), n_resamples, exact=False)
    pvalue = np.where(np.isfinite(z), pvalue, np.nan)
    return HotSpots(
        z=z,
        null_mean=null.mean(0, dtype=float),
        pvalue=pvalue,
        pvalue_max=_largest(z, null),
        qvalue=benjamini_hochberg(pvalue),
        n_groups=n_groups,
    )


def _add_null_map(null: np.ndarray, flips: np.ndarray, terms: np.ndarray, used: np.ndarray) -> None:
    """Add one group's z-scores over the heads in use under every flip, in place."""
    if not used.any():
        return
    # Scaled by its largest column sum, so that single precision holds units of any size.
    scaled = terms[:, used] / np.abs(terms[:, used]).sum(0).max()
    columns = torch.from_numpy(scaled.astype(np.float32))
    signs = torch.from_numpy(flips.astype(np.float32))
    heads = slice(None) if used.all() else used  # a slice is added to in place
    step = max(1, _BLOCK // columns.shape[1])
    for start in range(0, len(flips), step):
        part = slice(start, start + step)
        value = torch.matmul(signs[part], columns).abs_()
        value -= value.mean(1, keepdim=True)
        sd = torch.linalg.vector_norm(value, dim=1, keepdim=True) / columns.shape[1] ** 0.5
        value /= sd.clamp_min(torch.finfo(sd.dtype).tiny)  # where heads do not vary, z is 0
        null[part, heads] += value.numpy()


def _largest(z: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Family-wise p: each head standardised by its own null mean and SD, then the largest."""
    mean, sd = null.mean(0, dtype=float), null.std(0, dtype=float)
    usable = np.isfinite(z) & (sd > 0)
    result = np.full(z.shape, np.nan)
    if usable.any():
        largest = ((null[:, usable] - mean[usable]) / sd[usable]).max(1)
        size = (z[usable] - mean[usable]) / sd[usable]
        count = len(null) - np.searchsorted(np.sort(largest), size - 1e-4)
        result[usable] = permutation_pvalue(count, len(null), exact=False)
    return result


def _mean_over_groups(total: np.ndarray, n_groups: np.ndarray) -> np.ndarray:
    mean = np.full(total.shape, np.nan, dtype=total.dtype)
    np.divide(total, n_groups, out=mean, where=n_groups > 0)
    return mean
