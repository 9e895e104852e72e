"""The location tests of one group, as columns of its table and for the map of its category."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.location_test import (
    LocationTest,
    location_test,
    location_under_exchange,
    location_under_flips,
)
from tda_bias.heads.resampled import random_flips, sign_flips, version_draws
from tda_bias.stats.resampling import benjamini_hochberg, generator

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
