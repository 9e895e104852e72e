"""Controls of a category's ranking: chance, reliability, length, wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult, split_half_reliability
from tda_bias.heads.hot_spots import z_over_heads
from tda_bias.heads.record import map_columns
from tda_bias.heads.tables import Tables, combined_halves
from tda_bias.stats.resampling import spearman_over_items

# With fewer contexts than this no arrangement is rare enough for a two-sided p below .05.
SMALLEST_TESTABLE = {"paired": 6, "label": 4, "paper": 2}


def controls(
    category: str, results: Sequence[GroupResult], tables: Tables, config: HeadBiasConfig
) -> dict[str, Any]:
    """The controls of one category's ranking.

    Args:
        category: The category.
        results: Its groups.
        tables: The tables of the run.
        config: Which ranking and which p-value.
    """
    heads, groups, maps = (
        frame[frame["category"] == category]
        for frame in (tables.table, tables.groups, tables.category)
    )
    columns = map_columns(config.rank_by, maps.columns)
    tested = columns.tested
    p = heads[f"p_{config.pvalue}"]
    smallest = SMALLEST_TESTABLE[config.pvalue]
    testable = p[heads["n"] >= smallest].notna().sum()
    stated = {
        "category": category,
        "groups": len(groups),
        "triples": int(groups["n"].sum()),
        "heads": len(maps),
        "unstable_heads": int(maps["unstable"].sum()),
        "hot_spot_map": tested,
        **{f"hot_spots_{name}": value for name, value in _counts(maps, tested).items()},
        "pvalue": config.pvalue,
        "smallest_testable_group": smallest,
        "groups_too_small": int((groups["n"] < smallest).sum()),
        "group_tests": int(testable),
        "group_tests_p05": int((p < 0.05).sum()),
        "group_tests_expected": 0.05 * float(testable),
        "group_tests_p_max05": int((heads["p_max"] < 0.05).sum()),
        "groups_p_max05": int((heads.groupby("group")["p_max"].min() < 0.05).sum()),
        "group_tests_q05": int((heads["q_bh"] < 0.05).sum()),
        "reliability": reliability(results, _halved(tested)),
        "null_map_correlation": spearman_over_items(
            maps[columns.value].to_numpy(float), maps[f"z_null_{tested}"].to_numpy(float)
        ),
        "length_correlation_0": _length_correlation(groups, 0),
        "length_correlation_1": _length_correlation(groups, 1),
        "location": _counts(maps, "location") | {"reliability": reliability(results, "location")},
    }
    if "p_location_twin" in maps:
        stated["twins"] = _twin_controls(results, maps, tables.critical[category])
    return stated


def _counts(maps: pd.DataFrame, tested: str) -> dict[str, Any]:
    """Heads below .05 in a map, by every p, and how many are expected by chance."""
    return {
        "p05": int((maps[f"p_{tested}"] < 0.05).sum()),
        "expected": 0.05 * float(maps[f"p_{tested}"].notna().sum()),
        "p_max05": int((maps[f"p_max_{tested}"] < 0.05).sum()),
        "q05": int((maps[f"q_{tested}"] < 0.05).sum()),
    }


def _twin_controls(
    results: Sequence[GroupResult], maps: pd.DataFrame, critical: Mapping[str, float]
) -> dict[str, Any]:
    """Controls of the twins: differences about the target, and those of wording."""
    without = maps["z_location"].to_numpy(float)
    beyond = maps["z_location_twin"].to_numpy(float)
    return {
        "contexts": int(sum(len(result.versions.twinned) for result in results)),
        "twins": int(sum(result.versions.n_twins.sum() for result in results)),
        "location": _counts(maps, "location_twin")
        | {"reliability": reliability(results, "location_twin")},
        "dispersion": _counts(maps, "relative_twin")
        | {"reliability": reliability(results, "relative_twin")},
        "difference_left": difference_left(results),
        "map_correlation": spearman_over_items(without, beyond),
        "smallest_share": _smallest_share(results, maps, critical["location_twin"]),
    }


def difference_left(results: Sequence[GroupResult]) -> float:
    """Share of the squared difference that does not go when twins are subtracted.

    |triple minus twin|^2 over |triple|^2 + |twin|^2, means over contexts, heads and dimensions: 0
    where everything is wording, 1 where triple and twin have nothing in common.
    """
    left, whole = 0.0, 0.0
    for result in results:
        factor = result.contrast.factor.astype(float)
        factor = factor.reshape(*factor.shape[:2], -1)
        for members in result.versions.members:
            triple, twins = factor[members[0]], factor[members[1:]]
            contrast = ((triple - twins.mean(0)) ** 2).sum(0)
            total = (triple**2).sum(0) + (twins**2).sum(1).mean(0)
            scale = np.where(total > 0, total, 1.0)
            left += float((contrast / scale).sum())
            whole += float((total / scale).sum())
    return left / whole if whole else float("nan")


def _smallest_share(results: Sequence[GroupResult], maps: pd.DataFrame, critical: float) -> float:
    """The share in common with which the median head would have survived family-wise.

    The share of a context's squared difference that all contexts have in common: with a common part
    of share rho, the statistic is 1 + (n - 1) rho on average. NaN where no head's values vary under
    exchange.
    """
    needed = maps["z_null_location_twin"] + critical * maps["sd_null_location_twin"]
    n = float(np.mean([len(r.versions.twinned) for r in results if r.has_twins]))
    return float(np.minimum(1.0, (float(needed.median()) - 1.0) / (n - 1.0)))


def _length_correlation(groups: pd.DataFrame, dim: int) -> float:
    statistic = groups[f"S{dim}_mean_stable"].to_numpy(float)
    return spearman_over_items(statistic, groups[f"length_statistic_{dim}"].to_numpy(float))


def _halved(tested: str) -> str:
    """The statistic whose halves tell how reliable a map is: S has the numerator of relative."""
    return "relative" if tested == "statistic" else tested


def reliability(results: Sequence[GroupResult], name: str) -> float:
    """Split-half reliability of a category's map of a statistic, over random halves of contexts.

    Returns:
        NaN where no group has the statistic, or the map does not vary.
    """
    with_halves = [result for result in results if name in result.halves]
    if not with_halves:
        return float("nan")
    maps: Float[np.ndarray, "group split half head"] = np.stack(
        [z_over_heads(combined_halves(result, name)) for result in with_halves]
    )
    defined = np.isfinite(maps)
    total = np.where(defined, maps, 0.0).sum(0)
    mean = np.full(total.shape, np.nan)
    np.divide(total, defined.sum(0), out=mean, where=defined.any(0))
    return split_half_reliability(mean)
