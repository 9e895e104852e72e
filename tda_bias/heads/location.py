"""Tests of location: do stereotype and anti-stereotype texts differ alike in every context?

The statistic |sum_i D_i|^2 / sum_i |D_i|^2 is recomputed with the signs of the contexts'
differences drawn at random: exchanging the two labels within a context, or a triple with its twin.
With several twins a context's difference is that of one version minus the mean of the others, and
the draw says which; the denominator then moves too.

Large values speak against the null hypothesis in any direction of the difference, so the p-values
are two-sided by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.group_statistic import Versions
from tda_bias.heads.hot_spots import HotSpots, largest_standardised, map_with_tests, null_summary
from tda_bias.heads.resampled import (
    ResampledTest,
    VersionDraws,
    random_flips,
    sign_flips,
    version_draws,
)
from tda_bias.stats.resampling import benjamini_hochberg, generator, permutation_pvalue

# Null values held at once in single precision; beyond, draws are worked off in blocks.
_BLOCK_VALUES = 1_000_000
# Null values are in single precision: closer ones are ties.
_TIE = 1e-5


def location_under_flips(
    signs: Float[np.ndarray, "resample unit"],
    rows: Float[np.ndarray, "unit rank test"],
) -> Float[np.ndarray, "resample test"]:
    """The statistic of differences whose signs are flipped.

    Through the Gram matrix a flip costs n^2 / 2, however long the differences are.

    Args:
        signs: Of +1 and -1.
        rows: Differences in any orthonormal coordinates (``Contrast.factor``).

    Returns:
        Single precision; NaN where nothing differs.
    """
    columns = torch.from_numpy(np.ascontiguousarray(np.moveaxis(rows, 2, 0))).double()
    gram = columns @ columns.mT  # test, unit, unit
    squares = gram.diagonal(dim1=1, dim2=2).sum(1)
    first, second = np.triu_indices(rows.shape[0], 1)
    pairs = (2 * gram[:, first, second] / squares[:, None]).T.float()
    flips = torch.from_numpy(np.ascontiguousarray(signs.T, dtype=np.float32))
    null = torch.empty(len(signs), rows.shape[2])
    step = max(1, _BLOCK_VALUES // max(1, len(first)))
    for start in range(0, len(signs), step):
        block = flips[:, start : start + step]
        products = block[first] * block[second]
        torch.matmul(products.mT, pairs, out=null[start : start + step])
    return np.asarray((null + 1.0).clamp_(min=0.0).numpy())


def location_under_exchange(
    draws: VersionDraws, rows: Float[np.ndarray, "version rank test"]
) -> Float[np.ndarray, "resample test"]:
    """The statistic with any version of a context in the place of the triple.

    Args:
        draws: From ``version_draws``.
        rows: Differences of all versions in any orthonormal coordinates (``Contrast.factor``).

    Returns:
        Single precision; NaN where nothing differs.
    """
    versions = draws.versions
    if (versions.n_twins[versions.twinned] == 1).all():
        return location_under_flips(1.0 - 2.0 * draws.member, version_contrasts(versions, rows))
    n_versions, rank, tests = rows.shape
    flat = torch.from_numpy(np.ascontiguousarray(rows).reshape(n_versions, -1)).float()
    squares = torch.from_numpy((versions.contrasts(rows) ** 2).sum(1)).float()
    chosen = _one_hot(draws)
    null = np.empty((len(draws), tests), dtype=np.float32)
    step = max(1, _BLOCK_VALUES // (rank * tests))
    for start in range(0, len(draws), step):
        part = slice(start, start + step)
        total = torch.from_numpy(draws.signs[part]).float() @ flat
        numerator = total.view(-1, rank, tests).square_().sum(1)
        null[part] = (numerator / (torch.from_numpy(chosen[part]) @ squares)).numpy()
    return null


def version_contrasts(
    versions: Versions, rows: Float[np.ndarray, "version rank test"]
) -> Float[np.ndarray, "twinned rank test"]:
    """Triple minus the mean of its twins, for every context that has one."""
    return np.stack([rows[m[0]] - rows[m[1:]].mean(0) for m in versions.members])


def _one_hot(draws: VersionDraws) -> Float[np.ndarray, "resample version"]:
    """1 where a version stands for the triple."""
    chosen = np.zeros(draws.signs.shape, dtype=np.float32)
    for place, members in enumerate(draws.versions.members):
        np.put_along_axis(chosen, members[draws.member[:, place], None], 1.0, axis=1)
    return chosen


# -- one group -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocationTest:
    """p-values of one group's location.

    Attributes:
        single: Of every test alone.
        family: Of the largest standardised value of all tests together.
    """

    single: ResampledTest
    family: ResampledTest


def location_test(
    observed: Float[np.ndarray, " test"],
    null: Float[np.ndarray, "resample test"],
    *,
    exact: bool,
) -> LocationTest:
    """p-values of a statistic among its values under exchange; ties count.

    Args:
        observed: The statistic; where it is NaN, so are its p-values.
        null: The statistic under every draw.
        exact: Whether these are all arrangements there are.
    """
    threshold = observed - _TIE * np.maximum(1.0, observed)
    mean, sd, reached = null_summary(null, threshold)
    single = permutation_pvalue(reached, len(null), exact)
    usable = np.isfinite(observed) & (sd > 0)
    family = np.full(observed.shape, np.nan)
    if usable.any():
        largest = largest_standardised(null, usable, mean, sd)
        size = (threshold[usable] - mean[usable]) / sd[usable]
        count = len(null) - np.searchsorted(np.sort(largest), size)
        family[usable] = permutation_pvalue(count, len(null), exact)
    return LocationTest(
        single=ResampledTest(np.where(np.isfinite(observed), single, np.nan), exact),
        family=ResampledTest(family, exact),
    )


# The statistic ``(dim, head)`` and its values under draws of the group ``(resample, dim, head)``.
ForMap = tuple[np.ndarray, np.ndarray]


def location_tests(
    result: GroupResult, config: HeadBiasConfig
) -> tuple[dict[str, LocationTest], dict[str, ForMap]]:
    """Location of one group: its tests, and what it adds to the category's maps."""
    contrast, shape = result.contrast, result.contrast.location.shape
    rows = contrast.factor.reshape(*contrast.factor.shape[:2], -1)
    n, n_resamples = result.versions.n, config.n_resamples
    rng = partial(generator, config.seed, result.category, result.group)

    def null(name: str, *, enumerated: bool) -> tuple[np.ndarray, bool]:
        if name == "location":
            if enumerated:
                flips = sign_flips(n, n_resamples, rng("location"))
                return location_under_flips(flips.signs, rows[:n]), flips.exact
            signs = random_flips(n, n_resamples, rng("locations"))
            return location_under_flips(signs, rows[:n]), False
        draws = version_draws(
            result.versions, n_resamples, rng("location of twins"), enumerated=enumerated
        )
        return location_under_exchange(draws, rows), draws.exact

    tests, for_maps = {}, {}
    for name in ("location", "location_twin")[: 1 + result.has_twins]:
        observed = getattr(contrast, name)
        values, exact = null(name, enumerated=True)
        tests[name] = location_test(observed.ravel(), values, exact=exact)
        if exact:  # the category's null needs as many draws of every group
            values, _ = null(name, enumerated=False)
        for_maps[name] = observed.reshape(shape[0], -1), values.reshape(len(values), shape[0], -1)
    return tests, for_maps


def location_columns(
    name: str, value: np.ndarray, tests: Mapping[str, LocationTest]
) -> dict[str, np.ndarray]:
    """The statistic of a group's heads and its p-values; NaN where it has too few twins."""
    if name not in tests:  # fewer than two contexts of this group have a twin
        undefined = np.full(value.size, np.nan)
        names = (name, f"p_{name}", f"p_max_{name}", f"q_{name}")
        return dict.fromkeys(names, undefined)
    single = tests[name].single.pvalue
    return {
        name: value.ravel(),
        f"p_{name}": single,
        f"p_max_{name}": tests[name].family.pvalue,
        f"q_{name}": benjamini_hochberg(single),
    }


# -- a category ------------------------------------------------------------------------------------


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
        """Add one group: its statistic, and the statistic under draws of its own."""
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
        defined = np.isfinite(observed)
        n_groups = defined.sum(0)
        undefined = np.full(observed.shape[1], np.nan)
        total = np.where(defined, observed, 0.0).sum(0)
        value = np.divide(total, n_groups, out=undefined, where=n_groups > 0)
        return map_with_tests(value, self._null / np.maximum(n_groups, 1), n_groups)
