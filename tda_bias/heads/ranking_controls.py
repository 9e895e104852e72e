"""Controls of a category's ranking: chance, reliability, length, wording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.contrast import DifferenceRows
from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.tables import PUBLISHED, SMALLEST_TESTABLE, Tables, map_columns, reliability
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.stats.resampling import LEVEL, least_pvalue
from tda_bias.store.record import Number, RecordPart
from tda_bias.types import RankBy

# Probability with which the smallest effect is found.
_POWER = 0.8


class TestedMapRecord(RecordPart):
    """Heads below .05 in a map, by every p, how many are expected, and how reliable the map is."""

    p05: int
    expected: float
    p_max05: int
    q05: int
    reliability: Number


class TwinsRecord(RecordPart):
    """Differences about the target, and those of wording."""

    contexts: int
    location: TestedMapRecord
    dispersion: TestedMapRecord
    difference_left: Number
    map_correlation: Number
    smallest_share: Number


class ControlsRecord(RecordPart):
    """Controls of a category's ranking: chance, reliability, length."""

    category: str
    groups: int
    triples: int
    heads: int
    hot_spot_map: str
    hot_spots_p05: int
    hot_spots_expected: float
    hot_spots_p_max05: int
    hot_spots_q05: int
    smallest_testable_group: int
    groups_too_small: int
    group_tests: int
    group_tests_p05: int
    group_tests_expected: float
    groups_p_max05: int
    group_tests_q05: int
    reliability: Number
    null_map_correlation: Number
    length_correlation_0: Number
    length_correlation_1: Number
    location: TestedMapRecord
    twins: TwinsRecord | None = None
    # Where distances need not be of vectors: the mean over heads and groups of the share of their
    # products' eigenvalues that no vectors have.
    negative_share: Number | None = None
    # The smallest p that exchanges of so few texts can give; None in runs made before it was noted.
    smallest_p: float | None = None
    # The evidence that a head needs for a family-wise p of .05; None in runs from before, too.
    critical: Number | None = None

    @property
    def is_impossible(self) -> bool:
        """Tell whether exchanges of so few texts give no p below .05."""
        return self.smallest_p is not None and self.smallest_p >= LEVEL

    @property
    def tested(self) -> int:
        """Heads that have a p in the map; the value of the others is undefined."""
        return round(self.hot_spots_expected / LEVEL)


def controls(
    category: str, results: Sequence[GroupResult], tables: Tables, config: HeadBiasConfig
) -> ControlsRecord:
    """The controls of one category's ranking, from its groups and the tables of the run."""
    heads, groups, maps = (
        frame[frame["category"] == category]
        for frame in (tables.table, tables.groups, tables.category)
    )
    columns = map_columns(config.rank_by, maps)
    p = heads[f"p_{config.pvalue}"]
    smallest = SMALLEST_TESTABLE[config.pvalue]
    testable = p[heads["n"] >= smallest].notna().sum()
    hot_spot = _tested_map(results, maps, columns.tested)
    of_length = [
        spearman_over_items(groups[f"S{dim}_mean_stable"], groups[f"length_statistic_{dim}"])
        for dim in range(2)
    ]
    negative = [result.negative for result in results if result.negative is not None]
    of_vectors = not negative
    twins = None
    if any(result.has_twins for result in results):
        critical = tables.critical[category]["location_twin"]
        twins = TwinsRecord(
            contexts=sum(len(result.versions.twinned) for result in results),
            location=_tested_map(results, maps, "location_twin"),
            dispersion=_tested_map(results, maps, "relative_twin"),
            difference_left=difference_left(results),
            map_correlation=spearman_over_items(maps["z_location"], maps["z_location_twin"]),
            smallest_share=smallest_share(results, maps, critical) if of_vectors else np.nan,
        )
    return ControlsRecord(
        category=category,
        groups=len(groups),
        triples=int(groups["n"].sum()),
        heads=len(config.heads) or len(maps),
        hot_spot_map=columns.tested,
        hot_spots_p05=hot_spot.p05,
        hot_spots_expected=hot_spot.expected,
        hot_spots_p_max05=hot_spot.p_max05,
        hot_spots_q05=hot_spot.q05,
        smallest_testable_group=smallest,
        groups_too_small=int((groups["n"] < smallest).sum()),
        group_tests=int(testable),
        group_tests_p05=int((p < LEVEL).sum()),
        group_tests_expected=LEVEL * float(testable),
        groups_p_max05=int((heads.groupby("group")["p_max"].min() < LEVEL).sum()),
        group_tests_q05=int((heads["q_bh"] < LEVEL).sum()),
        reliability=hot_spot.reliability,
        null_map_correlation=spearman_over_items(
            maps[columns.value], maps[f"z_null_{columns.tested}"]
        ),
        length_correlation_0=of_length[0],
        length_correlation_1=of_length[1],
        location=_tested_map(results, maps, "location"),
        twins=twins,
        negative_share=None if of_vectors else float(np.nanmean(np.stack(negative))),
        smallest_p=smallest_p(results, config.n_permutations),
        critical=tables.critical[category][columns.tested],
    )


def chance_level(controls: Mapping[str, Any], by: RankBy, tested: str) -> float | None:
    """What the largest head of a map reaches by chance in one of twenty draws, where it is known.

    It is known of the map that the run ranks by, whose ``controls`` are given. A published map has
    no such value: each head has one of its own.
    """
    if by in PUBLISHED or controls["hot_spot_map"] != tested:
        return None
    critical = controls["critical"]
    return critical if critical is not None and np.isfinite(critical) else None


def smallest_p(results: Sequence[GroupResult], n_permutations: int) -> float:
    """The smallest p of a map over groups: one over all exchanges that differ, or over draws.

    Exchanging all pairs of a group changes nothing that is tested, so that n pairs give 2^(n - 1);
    of contexts with more versions any may stand for the triple.
    """
    sets = [
        [len(members) for members in result.versions.members]
        for result in results
        if result.has_twins
    ] or [[2] * result.statistic.n for result in results]
    exchanges = sum(np.log2(sizes).sum() - (max(sizes) == 2) for sizes in sets)
    return float(max(2.0**-exchanges, least_pvalue(n_permutations)))


def _tested_map(results: Sequence[GroupResult], maps: pd.DataFrame, name: str) -> TestedMapRecord:
    return TestedMapRecord(
        p05=int((maps[f"p_{name}"] < LEVEL).sum()),
        expected=LEVEL * float(maps[f"p_{name}"].notna().sum()),
        p_max05=int((maps[f"p_max_{name}"] < LEVEL).sum()),
        q05=int((maps[f"q_{name}"] < LEVEL).sum()),
        # S has the numerator of ``relative``, whose halves are known.
        reliability=reliability(results, "relative" if name == "statistic" else name),
    )


def difference_left(results: Sequence[GroupResult]) -> float:
    """Share of the squared difference that does not go when twins are subtracted.

    |triple minus twin|^2 over |triple|^2 + |twin|^2, both means over a triple's twins, then over
    contexts, heads and dimensions: 0 where all is wording, 1 where they have nothing in common.
    """
    left, whole = 0.0, 0.0
    for result in results:
        stored = result.contrast.rows()
        rows = DifferenceRows(stored.values.astype(float), stored.signature)
        for members in result.versions.members:
            triple, twins = rows.of(members[:1]), rows.of(members[1:])
            contrast = triple.minus(twins).squares().mean(0)
            total = triple.squares()[0] + twins.squares().mean(0)
            scale = np.where(total > 0, total, 1.0)
            left += float((contrast / scale).sum())
            whole += float((total / scale).sum())
    return left / whole if whole else float("nan")


def smallest_share(results: Sequence[GroupResult], maps: pd.DataFrame, critical: float) -> float:
    """The share in common with which the median head survives family-wise four times out of five.

    The share of a context's squared difference that all contexts have in common; the rest is taken
    as normal and independent. What the mean of n contexts has of all squares, over what it has not,
    is then noncentral F. Its degrees of freedom follow from the spread of the map under exchange.
    What is needed grows with the share, because exchange moves contexts that are alike more.

    Returns:
        1 where no share is enough, NaN where no head's values vary under exchange.
    """
    sizes = [len(result.versions.twinned) for result in results if result.has_twins]
    n, spread = float(np.mean(sizes)), maps["sd_null_location_twin"]
    variance = float(spread[spread > 0].median()) ** 2
    if not np.isfinite(critical * variance):
        return float("nan")
    alike = 2 * (1 - 1 / n)  # variance of the statistic of a group whose contexts are all alike
    freedom = alike / variance

    def lacking(share: float) -> float:
        varies = (1 - share**2) * variance + share**2 * alike / len(sizes)
        needed = 1 + critical * np.sqrt(varies)
        if needed >= n:
            return -_POWER
        odds, common = (n - 1) * needed / (n - needed), freedom * n * share / (1 - share)
        return float(stats.ncf.sf(odds, freedom, freedom * (n - 1), common)) - _POWER

    largest = 0.99
    return float(optimize.brentq(lacking, 0.0, largest)) if lacking(largest) > 0 else 1.0
