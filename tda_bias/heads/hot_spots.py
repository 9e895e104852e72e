"""Tests of the heads that stand out over the groups of a category."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tda_bias.heads.resampled import BLOCK
from tda_bias.stats.resampling import benjamini_hochberg, permutation_pvalue

# Where the distribution of a head's map value under exchange is kept.
NULL_QUANTILES = np.linspace(0.0, 1.0, 41)
# Null values that one step of a pass over them works on.
_BLOCK = 200_000


@dataclass(frozen=True)
class HotSpots:
    """The map of a category and its tests.

    Attributes:
        z: ``(head,)``, the observed map: mean over groups of the z-score over heads, or of the
            value over its root mean square.
        null_mean: ``(head,)``, the mean of the map under exchange: what a head shows without any
            effect, because a few texts dominate it.
        null_sd: ``(head,)``, its standard deviation under exchange.
        pvalue: ``(head,)``: a map value this large under exchange.
        pvalue_max: ``(head,)``, the same for the largest standardised value of the whole map
            (family-wise).
        qvalue: ``(head,)``, Benjamini-Hochberg over heads.
        n_groups: ``(head,)``, number of groups with a defined value.
        critical: The evidence that a head needs for a family-wise p of .05; NaN without any test.
        null: ``(quantile, head)``, the map under exchange at ``NULL_QUANTILES``, single precision.
    """

    z: Float[np.ndarray, " head"]
    null_mean: Float[np.ndarray, " head"]
    null_sd: Float[np.ndarray, " head"]
    pvalue: Float[np.ndarray, " head"]
    pvalue_max: Float[np.ndarray, " head"]
    qvalue: Float[np.ndarray, " head"]
    n_groups: Int[np.ndarray, " head"]
    critical: float
    null: Float[np.ndarray, "quantile head"]

    @property
    def evidence(self) -> Float[np.ndarray, " head"]:
        """``(head,)``, the map minus its mean under exchange, over its SD: the order of max-z p."""
        undefined = np.full(self.z.shape, np.nan)
        return np.asarray(
            np.divide(self.z - self.null_mean, self.null_sd, out=undefined, where=self.null_sd > 0)
        )


def z_over_heads(values: Float[np.ndarray, "... head"]) -> Float[np.ndarray, "... head"]:
    """z-score over the last axis, population SD, NaN left out; NaN where heads do not vary."""
    count = np.isfinite(values).sum(-1, keepdims=True)
    filled = np.where(np.isfinite(values), values, 0.0)
    mean = filled.sum(-1, keepdims=True) / np.maximum(count, 1)
    deviation = values - mean
    squares = np.where(np.isfinite(deviation), deviation, 0.0) ** 2
    sd = np.sqrt(squares.sum(-1, keepdims=True) / np.maximum(count, 1))
    return np.asarray(np.divide(deviation, sd, out=np.full_like(deviation, np.nan), where=sd > 0))


@dataclass(frozen=True)
class GroupTerms:
    """A group's part of a map, and how it is exchanged.

    Attributes:
        terms: ``(unit, head)`` each unit's share of every head's combined value.
        given: ``(unit,)`` weights of the arrangement the data came in: ``given @ terms`` is the
            combined value.
        draw: Makes ``(resample, unit)`` random weights; called once, because all groups' draws
            together are large. Never an enumeration, because the groups multiply.
    """

    terms: Float[np.ndarray, "unit head"]
    given: Float[np.ndarray, " unit"]
    draw: Callable[[], np.ndarray]


def hot_spots(
    groups: Sequence[GroupTerms], *, direction: Literal["either", "same"] = "either"
) -> HotSpots:
    """Test which heads stand out over the groups more than exchanged labels make them.

    The map is the mean over groups of the z-score over heads of |combined|. It is recomputed under
    exchanges within contexts, independent between groups and shared by all heads; a head's p counts
    the draws with a value at least as large, its family-wise p those whose largest standardised
    value over all heads is.

    Args:
        groups: The groups, with as many draws each.
        direction: ``either``: groups may differ in sign, values count by size. ``same``: the signed
            map, the mean over groups of combined over its root mean square over heads; two-sided.
    """
    signed = direction == "same"
    combined = [group.given @ group.terms for group in groups]
    observed = np.stack([_over_rms(c) if signed else z_over_heads(np.abs(c)) for c in combined])
    n_groups = np.isfinite(observed).sum(0)
    z = _mean_over_groups(observed.sum(0, where=np.isfinite(observed)), n_groups)
    null = np.zeros((0, 0), dtype=np.float32)
    for group, row in zip(groups, observed, strict=True):
        weights = group.draw()
        if not null.size:
            null = np.zeros((len(weights), len(row)), dtype=np.float32)
        _add_null_map(null, weights, group.terms, np.isfinite(row), signed=signed)
    return map_with_tests(z, _mean_over_groups(null, n_groups), n_groups, two_sided=signed)


def map_with_tests(
    z: Float[np.ndarray, " head"],
    null: Float[np.ndarray, "resample head"],
    n_groups: Int[np.ndarray, " head"],
    *,
    two_sided: bool = False,
) -> HotSpots:
    """A map with its tests, from the same map under every draw."""
    # The null map is kept in single precision: anything closer than this is a tie.
    threshold = (np.abs(z) if two_sided else z) - 1e-5
    mean, sd, reached = null_summary(null, threshold, two_sided=two_sided)
    pvalue = permutation_pvalue(reached, len(null), exact=False)
    pvalue = np.where(np.isfinite(z), pvalue, np.nan)
    pvalue_max, critical = _family_wise(z, null, mean, sd, two_sided=two_sided)
    return HotSpots(
        z=z,
        null_mean=mean,
        null_sd=sd,
        pvalue=pvalue,
        pvalue_max=pvalue_max,
        qvalue=benjamini_hochberg(pvalue),
        n_groups=n_groups,
        critical=critical,
        null=_quantiles(null),
    )


def _quantiles(null: Float[np.ndarray, "resample head"]) -> Float[np.ndarray, "quantile head"]:
    """Draws at ``NULL_QUANTILES``; undefined ones, of a head without any value, stay so."""
    ascending = np.sort(np.ascontiguousarray(null.T), axis=1)
    place = np.round(NULL_QUANTILES * (len(null) - 1)).astype(int)
    return np.asarray(ascending[:, place].T)


def _over_rms(values: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """Values over their root mean square; NaN where all are 0."""
    rms = np.sqrt(np.nanmean(values**2)) if np.isfinite(values).any() else 0.0
    return values / rms if rms > 0 else np.full(values.shape, np.nan)


def _add_null_map(
    null: np.ndarray, weights: np.ndarray, terms: np.ndarray, used: np.ndarray, *, signed: bool
) -> None:
    """Add one group's values over the heads in use under every draw, in place."""
    if not used.any():
        return
    # Scaled by its largest column sum, so that single precision holds units of any size.
    scaled = terms[:, used] / np.abs(terms[:, used]).sum(0).max()
    columns = torch.from_numpy(scaled.astype(np.float32))
    signs = torch.from_numpy(weights.astype(np.float32))
    heads = slice(None) if used.all() else used  # a slice is added to in place
    step = max(1, BLOCK // columns.shape[1])
    for start in range(0, len(weights), step):
        part = slice(start, start + step)
        value = torch.matmul(signs[part], columns)
        if not signed:
            value = value.abs_()
            value -= value.mean(1, keepdim=True)
        sd = torch.linalg.vector_norm(value, dim=1, keepdim=True) / columns.shape[1] ** 0.5
        value /= sd.clamp_min(torch.finfo(sd.dtype).tiny)  # where heads do not vary, z is 0
        null[part, heads] += value.numpy()


def _family_wise(
    z: np.ndarray, null: np.ndarray, mean: np.ndarray, sd: np.ndarray, *, two_sided: bool
) -> tuple[np.ndarray, float]:
    """Each head standardised by its null mean and SD: p of the largest, and its 95 % point."""
    usable = np.isfinite(z) & (sd > 0)
    result = np.full(z.shape, np.nan)
    if not usable.any():
        return result, float("nan")
    size = (z[usable] - mean[usable]) / sd[usable]
    if two_sided:
        size = np.abs(size)
    largest = np.sort(largest_standardised(null, usable, mean, sd, two_sided=two_sided))
    count = len(null) - np.searchsorted(largest, size - 1e-4)
    result[usable] = permutation_pvalue(count, len(null), exact=False)
    return result, float(np.quantile(largest, 0.95))


def _mean_over_groups(total: np.ndarray, n_groups: np.ndarray) -> np.ndarray:
    mean = np.full(total.shape, np.nan, dtype=total.dtype)
    np.divide(total, n_groups, out=mean, where=n_groups > 0)
    return mean


# -- two passes over null values -------------------------------------------------------------------

# A block of draws at a time, which stays in the processor's cache, and in torch, which uses all
# cores: sums over draws are in double precision though the values are in single.


def null_summary(
    null: Float[np.ndarray, "draw test"],
    threshold: Float[np.ndarray, " test"],
    *,
    two_sided: bool = False,
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"], Int[np.ndarray, " test"]]:
    """Mean and standard deviation of every test over draws, and how many draws reach a threshold.

    Args:
        null: The values under every draw.
        threshold: Where a draw begins to count; NaN is never reached.
        two_sided: Sizes are compared with the threshold.
    """
    values, limit = torch.from_numpy(null), torch.from_numpy(threshold)
    # About the first draw: what does not vary has exactly no spread, and squares lose no digits.
    origin = values[0].double()
    total, squares = torch.zeros_like(origin), torch.zeros_like(origin)
    reached = torch.zeros(len(limit), dtype=torch.long)
    for block in _blocks(values):
        wide = block.double()
        counted = (wide.abs() if two_sided else wide) >= limit
        reached += counted.sum(0)
        wide = wide - origin
        total += wide.sum(0)
        squares += wide.square_().sum(0)
    mean = total / len(values)
    variance = (squares / len(values) - mean**2).clamp_(min=0.0)
    return (mean + origin).numpy(), variance.sqrt().numpy(), reached.numpy()


def largest_standardised(
    null: Float[np.ndarray, "draw test"],
    usable: Bool[np.ndarray, " test"],
    mean: Float[np.ndarray, " test"],
    sd: Float[np.ndarray, " test"],
    *,
    two_sided: bool = False,
) -> Float[np.ndarray, " draw"]:
    """Largest value of every draw over usable tests, less its mean and over its SD."""
    chosen = slice(None) if usable.all() else torch.from_numpy(np.flatnonzero(usable))
    centre, scale = (torch.from_numpy(of_test[usable]) for of_test in (mean, sd))
    largest = []
    for block in _blocks(torch.from_numpy(null)):
        standardised = (block[:, chosen].double() - centre).div_(scale)
        largest.append((standardised.abs_() if two_sided else standardised).amax(1))
    return np.asarray(torch.cat(largest).numpy())


def _blocks(values: Tensor) -> Iterator[Tensor]:
    yield from torch.split(values, max(1, _BLOCK // max(1, values.shape[1])))
