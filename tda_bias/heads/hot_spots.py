"""Tests of heads against their own values under exchange: location in a group, maps of a category.

The location statistic |sum_i D_i|^2 / sum_i |D_i|^2 is recomputed with the signs of the contexts'
differences drawn at random: exchanging the two labels within a context, or a triple with its twin.
With several twins a context's difference is that of one version minus the mean of the others, and
the draw says which; the denominator then moves too. Large values speak against the null hypothesis
in any direction of the difference, so the p-values are two-sided by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.contrast import DifferenceRows
from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.group_statistic import ratio
from tda_bias.heads.resampled import (
    BLOCK,
    VersionDraws,
    label_flips,
    paired_terms,
    relative_terms,
    version_draws,
)
from tda_bias.stats.resampling import (
    SINGLE_PRECISION,
    benjamini_hochberg,
    family_wise_share,
    permutation_pvalue,
    threshold,
)
from tda_bias.stats.seeds import generator
from tda_bias.stats.sign_flips import random_signs

# Where the distribution of a head's map value under exchange is kept.
NULL_QUANTILES = np.linspace(0.0, 1.0, 41)
# Null values that one step of a pass over them works on.
_BLOCK = 200_000
# Null values of the location held at once in single precision; beyond, draws are worked off in
# blocks.
_BLOCK_VALUES = 1_000_000
# Values of a map in single precision, over their SD under exchange: closer ones are ties.
_STANDARDISED = 1e-4


# -- the location of one group ---------------------------------------------------------------------


def location_under_flips(
    signs: Float[np.ndarray, "resample unit"], rows: DifferenceRows
) -> Float[np.ndarray, "resample test"]:
    """The statistic of differences, a row for every unit, whose signs are flipped.

    Through the Gram matrix a flip costs n^2 / 2, however long the differences are. NaN where
    nothing differs.
    """
    columns, signed = (
        torch.from_numpy(np.ascontiguousarray(np.moveaxis(values, 2, 0))).double()
        for values in (rows.values, rows.signed())
    )
    gram = signed @ columns.mT  # test, unit, unit
    squares = gram.diagonal(dim1=1, dim2=2).sum(1)
    squares = torch.where(squares > 0, squares, torch.nan)
    first, second = np.triu_indices(len(rows.values), 1)
    pairs = (2 * gram[:, first, second] / squares[:, None]).T.float()
    flips = torch.from_numpy(np.ascontiguousarray(signs.T, dtype=np.float32))
    null = torch.empty(len(signs), rows.values.shape[2])
    step = max(1, _BLOCK_VALUES // max(1, len(first)))
    for start in range(0, len(signs), step):
        block = flips[:, start : start + step]
        products = block[first] * block[second]
        torch.matmul(products.mT, pairs, out=null[start : start + step])
    null += 1.0
    return np.asarray((null.clamp_(min=0.0) if rows.signature is None else null).numpy())


def location_under_exchange(
    draws: VersionDraws, rows: DifferenceRows
) -> Float[np.ndarray, "resample test"]:
    """The statistic with any version of a context in the place of the triple; NaN as above.

    Also NaN, for every draw of a test, where a draw's differences have no positive squares.
    """
    versions = draws.versions
    if all(len(members) == 2 for members in versions.members):
        triples, twins = np.array(versions.members).T
        contrasts = rows.of(triples).minus(rows.of(twins))
        return location_under_flips(1.0 - 2.0 * draws.member, contrasts)
    n_versions, rank, tests = rows.values.shape
    flat = torch.from_numpy(np.ascontiguousarray(rows.values).reshape(n_versions, -1)).float()
    of_contrasts = DifferenceRows(versions.contrasts(rows.values), rows.signature)
    squares = torch.from_numpy(of_contrasts.squares()).float()
    signature = None if rows.signature is None else torch.from_numpy(rows.signature).float()
    chosen = np.zeros(draws.signs.shape, dtype=np.float32)
    for place, members in enumerate(versions.members):
        np.put_along_axis(chosen, members[draws.member[:, place], None], 1.0, axis=1)
    null = np.empty((len(chosen), tests), dtype=np.float32)
    step = max(1, _BLOCK_VALUES // (rank * tests))
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        total = torch.from_numpy(draws.signs[part]).float() @ flat
        coordinates = total.view(-1, rank, tests).square_()
        numerator = (coordinates if signature is None else coordinates.mul_(signature)).sum(1)
        null[part] = (numerator / (torch.from_numpy(chosen[part]) @ squares)).numpy()
    if signature is not None:
        undefined = (torch.from_numpy(chosen) @ squares <= 0).any(0).numpy()
        null[:, undefined] = np.nan
    return null


def location_test(
    observed: Float[np.ndarray, " test"],
    null: Float[np.ndarray, "resample test"],
    *,
    exact: bool,
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    """P-values of every test alone and of the largest standardised of all together; ties count.

    The draws are ``exact`` where they are all arrangements there are. NaN stays NaN.
    """
    limit = threshold(observed, tolerance=SINGLE_PRECISION * np.maximum(1.0, observed))
    mean, sd, reached = null_summary(null, limit)
    single = permutation_pvalue(reached, len(null), exact)
    defined = np.isfinite(observed) & np.isfinite(mean)
    usable = defined & (sd > 0)
    family = np.full(observed.shape, np.nan)
    if usable.any():
        largest = largest_standardised(null, usable, mean, sd)
        size = (limit[usable] - mean[usable]) / sd[usable]  # ties are counted in the limit
        family[usable] = family_wise_share(largest, size, exact=exact, tolerance=0.0)
    return np.where(defined, single, np.nan), family


def location_tests(
    result: GroupResult, config: HeadBiasConfig
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, np.ndarray]]:
    """Location of one group, with and without twins, by the names of ``Contrast``.

    Returns:
        p-values as ``location_test`` gives them, and the statistic under random draws, ``(resample,
        dim x layer x head)``, which the category's map needs.
    """
    contrast, n, n_resamples = result.contrast, result.versions.n, config.n_permutations
    rows = contrast.rows()
    rng = partial(generator, config.seed, result.category, result.group)
    flips = label_flips(n, n_resamples, rng("location"))
    null = location_under_flips(flips.signs, rows.of(slice(n)))
    tests = {"location": location_test(contrast.location.ravel(), null, exact=flips.exact)}
    if flips.exact:  # the map needs as many draws of every group
        signs = random_signs((n_resamples, n), rng("locations"))
        null = location_under_flips(signs, rows.of(slice(n)))
    nulls = {"location": null}
    if result.has_twins:
        draws = version_draws(result.versions, n_resamples, rng("location of twins"))
        null = location_under_exchange(draws, rows)
        observed = contrast.location_twin.ravel()
        tests["location_twin"] = location_test(observed, null, exact=draws.exact)
        if draws.exact:
            again = rng("location of twins")
            draws = version_draws(result.versions, n_resamples, again, enumerated=False)
            null = location_under_exchange(draws, rows)
        nulls["location_twin"] = null
    return tests, nulls


# -- maps of a category ----------------------------------------------------------------------------


@dataclass(frozen=True)
class HotSpots:
    """The map of a category and its tests.

    Attributes:
        z: The observed map: mean over groups of the z-score over heads.
        null_mean: What a head shows under exchange, because a few texts dominate it.
        null_sd: The standard deviation of the map under exchange.
        pvalue: Of a map value this large under exchange.
        pvalue_max: The same for the largest standardised value of the whole map (family-wise).
        qvalue: Benjamini-Hochberg over heads.
        critical: The evidence that a head needs for a family-wise p of .05; NaN without any test.
        null: The map under exchange at ``NULL_QUANTILES``, single precision.
    """

    z: Float[np.ndarray, " head"]
    null_mean: Float[np.ndarray, " head"]
    null_sd: Float[np.ndarray, " head"]
    pvalue: Float[np.ndarray, " head"]
    pvalue_max: Float[np.ndarray, " head"]
    qvalue: Float[np.ndarray, " head"]
    critical: float
    null: Float[np.ndarray, "quantile head"]

    @property
    def evidence(self) -> Float[np.ndarray, " head"]:
        """The map minus its mean under exchange, over its SD: the order of max-z p."""
        return ratio(self.z - self.null_mean, self.null_sd)


def z_over_heads(values: Float[np.ndarray, "... head"]) -> Float[np.ndarray, "... head"]:
    """z-score over the last axis, population SD, NaN left out; NaN where heads do not vary."""
    count = np.isfinite(values).sum(-1, keepdims=True)
    filled = np.where(np.isfinite(values), values, 0.0)
    mean = filled.sum(-1, keepdims=True) / np.maximum(count, 1)
    deviation = values - mean
    squares = np.where(np.isfinite(deviation), deviation, 0.0) ** 2
    sd = np.sqrt(squares.sum(-1, keepdims=True) / np.maximum(count, 1))
    return ratio(deviation, sd)


# A group's part of a map, and how it is exchanged: ``(unit, head)`` each unit's share of a head's
# combined value; ``(unit,)`` weights of the arrangement the data came in, whose product with the
# shares is that value; ``(resample, unit)`` random ones, as many for every group, and never an
# enumeration: the groups multiply.
Exchanged = tuple[np.ndarray, np.ndarray, np.ndarray]


def hot_spots(groups: Iterable[Exchanged]) -> HotSpots:
    """Test which heads stand out over the groups more than exchanged labels make them.

    The map is the mean over groups of the z-score over heads of |combined|. It is recomputed under
    exchanges within contexts, independent between groups and shared by all heads; a head's p counts
    the draws with a value at least as large, its family-wise p those whose largest standardised
    value over all heads is. Groups come one after the other: all draws together are large.
    """
    rows: list[np.ndarray] = []
    null = np.zeros((0, 0), dtype=np.float32)
    for terms, given, weights in groups:
        row = z_over_heads(np.abs(given @ terms))
        if not rows:
            null = np.zeros((len(weights), len(row)), dtype=np.float32)
        _add_null_map(null, weights, terms, np.isfinite(row))
        rows.append(row)
    observed = np.stack(rows)
    n_groups = np.isfinite(observed).sum(0)
    z = ratio(observed.sum(0, where=np.isfinite(observed)), n_groups)
    null /= np.where(n_groups > 0, n_groups, np.nan).astype(np.float32)
    return map_with_tests(z, null)


def map_with_tests(
    z: Float[np.ndarray, " head"], null: Float[np.ndarray, "resample head"]
) -> HotSpots:
    """A map with its tests, from the same map under every draw."""
    mean, sd, reached = null_summary(null, threshold(z, tolerance=SINGLE_PRECISION))
    pvalue = permutation_pvalue(reached, len(null), exact=False)
    pvalue = np.where(np.isfinite(z), pvalue, np.nan)
    # Each head standardised by its null mean and SD: p of the largest, and its 95 % point.
    usable = np.isfinite(z) & (sd > 0)
    pvalue_max, critical = np.full(z.shape, np.nan), float("nan")
    if usable.any():
        size = (z[usable] - mean[usable]) / sd[usable]
        largest = largest_standardised(null, usable, mean, sd)
        pvalue_max[usable] = family_wise_share(largest, size, tolerance=_STANDARDISED)
        critical = float(np.quantile(largest, 0.95))
    ascending = np.sort(np.ascontiguousarray(null.T), axis=1)
    places = np.round(NULL_QUANTILES * (len(null) - 1)).astype(int)
    return HotSpots(
        z=z,
        null_mean=mean,
        null_sd=sd,
        pvalue=pvalue,
        pvalue_max=pvalue_max,
        qvalue=benjamini_hochberg(pvalue),
        critical=critical,
        null=ascending[:, places].T,
    )


def _add_null_map(
    null: np.ndarray, weights: np.ndarray, terms: np.ndarray, used: np.ndarray
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
        value = torch.matmul(signs[part], columns).abs_()
        value -= value.mean(1, keepdim=True)
        sd = torch.linalg.vector_norm(value, dim=1, keepdim=True) / columns.shape[1] ** 0.5
        value /= sd.clamp_min(torch.finfo(sd.dtype).tiny)  # where heads do not vary, z is 0
        null[part, heads] += value.numpy()


class LocationMap:
    """The mean of the statistic over the groups of a category and both dimensions, with its tests.

    Groups are added one after the other: only the sum of their null values is kept.
    """

    def __init__(self) -> None:
        self._observed: list[np.ndarray] = []
        self._null = np.zeros((0, 0), dtype=np.float32)

    def add(
        self,
        observed: Float[np.ndarray, "dim head"],
        null: Float[np.ndarray, "resample dim head"],
    ) -> None:
        """Add one group: its statistic, and the same under draws of its own."""
        mean = observed.mean(0)
        if not self._null.size:
            self._null = np.zeros((len(null), len(mean)), dtype=np.float32)
        defined = np.isfinite(mean)
        columns = slice(None) if defined.all() else defined
        for values in np.moveaxis(null, 1, 0):
            self._null[:, columns] += values[:, columns] / null.shape[1]
        self._observed.append(mean)

    def tested(self) -> HotSpots:
        """The map; ``z`` is the mean statistic, 1 where the contexts' signs are random."""
        observed = np.stack(self._observed)
        n_groups = np.isfinite(observed).sum(0)
        value = ratio(observed.sum(0, where=np.isfinite(observed)), n_groups)
        return map_with_tests(value, self._null / np.maximum(n_groups, 1))


def dispersion_maps(
    results: Sequence[GroupResult], config: HeadBiasConfig, *, twins: bool
) -> dict[str, HotSpots]:
    """The tested maps of the paper's statistic and of its twin form."""
    n_resamples = config.n_permutations

    def rng(name: str, result: GroupResult) -> np.random.Generator:
        return generator(config.seed, name, result.category, result.group)

    maps = {
        name: hot_spots(
            flipped(terms_of(result.statistic), n_resamples, rng("hot spots", result))
            for result in results
        )
        for name, terms_of in (("relative", relative_terms), ("statistic", paired_terms))
    }
    if twins:
        maps["relative_twin"] = hot_spots(
            exchanged(result, n_resamples, rng("hot spots of twins", result))
            for result in results
            if result.has_twins
        )
    return maps


def flipped(
    terms: Float[np.ndarray, "n dim layer head"], n_resamples: int, rng: np.random.Generator
) -> Exchanged:
    """A group's terms, means over dimensions, under flips of the labels within contexts."""
    n = len(terms)
    return terms.mean(1).reshape(n, -1), np.ones(n), random_signs((n_resamples, n), rng)


def exchanged(result: GroupResult, n_resamples: int, rng: np.random.Generator) -> Exchanged:
    """A group's terms with twins, means over dimensions, under exchange with the twins."""
    terms = result.contrast.dispersion / result.contrast.dispersion_total
    draws = version_draws(result.versions, n_resamples, rng, enumerated=False)
    return terms.mean(1).reshape(len(terms), -1), draws.given, draws.signs


# -- two passes over null values -------------------------------------------------------------------

# A block of draws at a time, which stays in the processor's cache, and in torch, which uses all
# cores: sums over draws are in double precision though the values are in single.


def null_summary(
    null: Float[np.ndarray, "draw test"], threshold: Float[np.ndarray, " test"]
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"], Int[np.ndarray, " test"]]:
    """Mean and SD of every test over draws, and how many draws reach a threshold; NaN none."""
    values, limit = torch.from_numpy(null), torch.from_numpy(threshold)
    # About the first draw: what does not vary has exactly no spread, and squares lose no digits.
    origin = values[0].double()
    total, squares = torch.zeros_like(origin), torch.zeros_like(origin)
    reached = torch.zeros(len(limit), dtype=torch.long)
    for block in torch.split(values, max(1, _BLOCK // max(1, values.shape[1]))):
        wide = block.double()
        reached += (wide >= limit).sum(0)
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
) -> Float[np.ndarray, " draw"]:
    """Largest value of every draw over usable tests, less its mean and over its SD."""
    chosen = slice(None) if usable.all() else torch.from_numpy(np.flatnonzero(usable))
    centre, scale = (torch.from_numpy(of_test[usable]) for of_test in (mean, sd))
    largest = []
    for block in torch.split(torch.from_numpy(null), max(1, _BLOCK // max(1, null.shape[1]))):
        largest.append((block[:, chosen].double() - centre).div_(scale).amax(1))
    return np.asarray(torch.cat(largest).numpy())
