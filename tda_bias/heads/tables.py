"""Group results to tidy tables: tests of every head, combined values, hot spots; and controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import optimize, stats

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult, split_half_reliability
from tda_bias.heads.group_statistic import DifferenceRows, ratio, unstable_heads
from tda_bias.heads.hot_spots import (
    HotSpots,
    LocationMap,
    dispersion_maps,
    location_tests,
    z_over_heads,
)
from tda_bias.heads.resampled import (
    label_flips,
    label_terms,
    max_z,
    paired_terms,
    paper_pvalue,
    relabellings,
    two_sided,
    version_draws,
)
from tda_bias.stats.correlation import spearman_over_items
from tda_bias.stats.resampling import benjamini_hochberg
from tda_bias.stats.seeds import generator
from tda_bias.store.record import Number, RecordPart
from tda_bias.types import InputError, RankBy, in_order

# Published maps: mean z over groups of |combined|. They rank heads by their noise level.
PUBLISHED: tuple[RankBy, ...] = ("relative", "statistic", "metric")
# Maps whose hot-spot test is made.
TESTED = ("relative", "statistic", "location")
TESTED_TWIN = ("relative_twin", "location_twin")
# With fewer contexts than this no arrangement is rare enough for a two-sided p below .05.
SMALLEST_TESTABLE = {"paired": 6, "label": 4, "paper": 2}
# Why a head has no number where some were named.
NOT_NAMED = "not among the heads that were named"
# Probability with which the smallest effect is found.
_POWER = 0.8


@dataclass(frozen=True)
class Tables:
    """The tables of a run, as in ``HeadBias``.

    ``critical`` is by category and map the evidence that a family-wise p of .05 needs, ``nulls`` by
    ``CATEGORY.MAP`` the ``null`` of ``HotSpots``.
    """

    table: pd.DataFrame
    combined: pd.DataFrame
    category: pd.DataFrame
    groups: pd.DataFrame
    critical: dict[str, dict[str, float]]
    nulls: dict[str, np.ndarray]


def tables(
    results: Sequence[GroupResult], config: HeadBiasConfig, *, model: str, layers: Sequence[int]
) -> Tables:
    """All tables of a run.

    ``layers`` are the model's numbers of its layers with attention: hybrids have others between.
    """
    twins = any(result.has_twins for result in results)
    heads: dict[tuple[str, str], pd.DataFrame] = {}
    combined: dict[tuple[str, str], pd.DataFrame] = {}
    categories: list[pd.DataFrame] = []
    critical: dict[str, dict[str, float]] = {}
    nulls: dict[str, np.ndarray] = {}
    for category in in_order(result.category for result in results):
        members = [result for result in results if result.category == category]
        own_twins = any(result.has_twins for result in members)
        names = ("location", "location_twin")[: 1 + own_twins]
        locations = {name: LocationMap() for name in names}
        for result in members:
            key = category, result.group
            location_pvalues, nulls_of_group = location_tests(result, config)
            heads[key] = head_table(result, config, location_pvalues, twins=twins)
            combined[key] = combined_table(result, twins=twins)
            for table in (heads[key], combined[key]):
                table["layer"] = np.asarray(layers)[table["layer"]]
            if config.heads:
                heads[key].loc[~are_named(heads[key], config.heads), "reason"] = NOT_NAMED
            for name, null in nulls_of_group.items():
                observed = getattr(result.contrast, name)
                by_dim = null.reshape(len(null), len(observed), -1)
                locations[name].add(observed.reshape(len(observed), -1), by_dim)
        maps = {name: location.tested() for name, location in locations.items()}
        maps |= dispersion_maps(members, config, twins=own_twins)
        own = pd.concat([combined[category, result.group] for result in members])
        categories.append(category_table(category, own, maps))
        critical[category] = {name: spots.critical for name, spots in maps.items()}
        nulls |= {f"{category}.{name}": spots.null for name, spots in maps.items()}
    keys = [(result.category, result.group) for result in results]
    rows = zip(results, (heads[key] for key in keys), (combined[key] for key in keys), strict=True)
    made = Tables(
        table=pd.concat([heads[key] for key in keys], ignore_index=True),
        combined=pd.concat([combined[key] for key in keys], ignore_index=True),
        category=pd.concat(categories, ignore_index=True),
        groups=pd.DataFrame([group_row(*of_group) for of_group in rows]),
        critical=critical,
        nulls=nulls,
    )
    for table in (made.table, made.combined, made.category, made.groups):
        table.insert(0, "model", model)
    return made


def are_named(rows: pd.DataFrame, heads: Sequence[str]) -> pd.Series[bool]:
    """Tell which rows, with ``layer`` and ``head``, are of heads named as ``HeadId`` prints."""
    return (rows["layer"].map("L{}".format) + rows["head"].map("H{}".format)).isin(heads)


# -- per group -------------------------------------------------------------------------------------


def head_table(
    result: GroupResult,
    config: HeadBiasConfig,
    locations: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    twins: bool,
) -> pd.DataFrame:
    """One row per dimension, layer and head of a group, with all its p-values."""
    stat = result.statistic
    pvalues = _pvalues(result, config)
    shape = stat.S.shape
    dim, layer, head = (axis.ravel() for axis in np.indices(shape))
    columns: dict[str, Any] = {
        "category": result.category,
        "group": result.group,
        "layer": layer,
        "head": head,
        "dim": dim,
        "n": stat.n,
        "n_steps": result.n_steps[dim],
    }
    for name in ("var_stereotype", "var_anti", "var_unrelated", "S", "relative"):
        columns[name] = getattr(stat, name).ravel()
    columns["unstable"] = unstable_heads(stat.var_unrelated).ravel()
    columns["length_statistic"] = result.length_statistic[dim]
    for name in ("p_paper", "T", "p_paired", "p_label", "p_max", "q_bh"):
        columns[name] = pvalues[name].ravel()
    columns |= _location_columns("location", result, locations)
    if twins:
        columns |= _location_columns("location_twin", result, locations)
        columns["relative_twin"] = result.contrast.relative_twin.ravel()
        columns |= _twin_dispersion_columns(result, config)
    columns["reason"] = stat.reason.ravel()
    return pd.DataFrame(columns)


def _pvalues(result: GroupResult, config: HeadBiasConfig) -> dict[str, np.ndarray]:
    stat, n = result.statistic, result.statistic.n
    rng = generator(config.seed, "heads", result.category, result.group)
    flips, paired = label_flips(n, config.n_permutations, rng), paired_terms(stat)
    labels, texts = relabellings(n, config.n_permutations, rng), label_terms(stat)
    paper = paper_pvalue(stat)
    pvalues = {
        "p_paper": paper,
        "T": (1.0 - paper) * stat.S,
        "p_paired": two_sided(flips, paired),
        "p_label": two_sided(labels, texts),
    }
    # The published p has no draws of its own: its family-wise companion is that of the flips.
    family = (labels, texts) if config.pvalue == "label" else (flips, paired)
    pvalues["p_max"] = max_z(*family)
    pvalues["q_bh"] = benjamini_hochberg(pvalues[f"p_{config.pvalue}"])
    return pvalues


def _location_columns(
    name: str, result: GroupResult, locations: Mapping[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The statistic of a group's heads and its p-values; NaN where it has too few twins."""
    value = getattr(result.contrast, name).ravel()
    undefined = np.full(value.size, np.nan)
    single, family = locations.get(name, (undefined, undefined))
    return {
        name: value if name in locations else undefined,
        f"p_{name}": single,
        f"p_max_{name}": family,
        f"q_{name}": benjamini_hochberg(single),
    }


def _twin_dispersion_columns(result: GroupResult, config: HeadBiasConfig) -> dict[str, np.ndarray]:
    """The test of the dispersion of triples minus twins, by exchange of the two."""
    names = ("p_dispersion_twin", "p_max_dispersion_twin", "q_dispersion_twin")
    if not result.has_twins:
        return dict.fromkeys(names, np.full(result.contrast.relative_twin.size, np.nan))
    rng = generator(config.seed, "twins", result.category, result.group)
    draws = version_draws(result.versions, config.n_permutations, rng)
    terms = result.contrast.dispersion / result.contrast.dispersion_total
    single, family = two_sided(draws, terms).ravel(), max_z(draws, terms).ravel()
    return dict(zip(names, (single, family, benjamini_hochberg(single)), strict=True))


def combined_table(result: GroupResult, *, twins: bool) -> pd.DataFrame:
    """One row per layer and head of a group: means over the two dimensions and their z over heads.

    Source: Varadarajan & Songdechakraiwut, section 3 (whose text averages the metrics while its
    formula prints S; both are given).
    """
    stat, contrast = result.statistic, result.contrast
    values = {
        "relative": stat.relative.mean(0),
        "statistic": stat.S.mean(0),
        "metric": ((1.0 - paper_pvalue(stat)) * stat.S).mean(0),
        "location": contrast.location.mean(0),
    }
    if twins:
        values["relative_twin"] = contrast.relative_twin.mean(0)
        values["location_twin"] = contrast.location_twin.mean(0)
    layer, head = (axis.ravel() for axis in np.indices(values["statistic"].shape))
    columns: dict[str, Any] = {
        "category": result.category,
        "group": result.group,
        "layer": layer,
        "head": head,
    }
    for name, value in values.items():
        columns[f"combined_{name}"] = value.ravel()
    for name in (*PUBLISHED, *(["relative_twin"] if twins else [])):
        columns[f"z_{name}"] = z_over_heads(np.abs(values[name].ravel()))
    columns["unstable"] = unstable_heads(stat.var_unrelated).any(0).ravel()
    return pd.DataFrame(columns)


def group_row(result: GroupResult, heads: pd.DataFrame, combined: pd.DataFrame) -> dict[str, Any]:
    """One line per group: means over heads, the published tables' columns, and the controls."""
    row: dict[str, Any] = {
        "category": result.category,
        "group": result.group,
        "n": result.statistic.n,
        "tokens_min": result.n_tokens.min(),
        "tokens_mean": result.n_tokens.mean(),
        "tokens_max": result.n_tokens.max(),
    }
    for name in ("metric", "statistic", "relative"):
        column = combined[f"combined_{name}"]
        row |= {f"{name}_mean": column.mean(), f"{name}_min": column.min()}
        row[f"{name}_max"] = column.max()
    for dim in range(2):  # of a summary of one dimension the second is undefined
        stable = heads[(heads["dim"] == dim) & ~heads["unstable"]]
        row[f"S{dim}_mean_stable"] = stable["S"].mean()
        row[f"length_statistic_{dim}"] = dict(enumerate(result.length_statistic)).get(dim, np.nan)
    twins = "relative_twin" in heads
    row["reliability"] = split_half_reliability(combined_halves(result, "relative"))
    row["reliability_location"] = reliability([result], "location_twin" if twins else "location")
    if twins:
        row["n_twinned"] = len(result.versions.twinned)
    return row


def combined_halves(result: GroupResult, name: str) -> Float[np.ndarray, "split half head"]:
    """|mean over dimensions| of a statistic in random halves of the contexts."""
    halves = result.halves[name].astype(float)
    return np.asarray(np.abs(halves.mean(2)).reshape(*halves.shape[:2], -1))


# -- per category ----------------------------------------------------------------------------------


def category_table(
    category: str, combined: pd.DataFrame, maps: Mapping[str, HotSpots]
) -> pd.DataFrame:
    """One row per head: its maps over the groups of a category and the hot-spot tests."""
    twins = "relative_twin" in maps
    grouped = combined.groupby(["layer", "head"], sort=True)
    table = grouped.agg(
        **{f"z_{name}": (f"z_{name}", "mean") for name in PUBLISHED},
        unstable=("unstable", "any"),
    ).reset_index()
    for name in (*TESTED, *(TESTED_TWIN if twins else ())):
        spots = maps[name]
        if f"z_{name}" not in table:
            table[f"z_{name}"] = spots.z
        table[f"z_null_{name}"] = spots.null_mean
        table[f"sd_null_{name}"] = spots.null_sd
        table[f"evidence_{name}"] = spots.evidence
        table[f"p_{name}"] = spots.pvalue
        table[f"p_max_{name}"] = spots.pvalue_max
        table[f"q_{name}"] = spots.qvalue
    table.insert(0, "category", category)
    return table


class MapColumns(NamedTuple):
    """The columns of a map.

    ``value``, of the category's table, ranks; the columns of the test that is reported with it end
    in ``tested``; ``combined``, of the table per group, is each head's value.
    """

    value: str
    tested: str
    combined: str


def map_columns(rank_by: RankBy, maps: pd.DataFrame) -> MapColumns:
    """The columns of a ranking in the rows of a category.

    ``evidence`` and ``location`` are those of triples minus twins where the rows have such. The p
    of the paper's metric cannot be recomputed cheaply: that of the statistic is reported with it.

    Raises:
        InputError: if there is no such ranking.
    """
    if rank_by not in get_args(RankBy):
        raise InputError(f"`by` must be one of {', '.join(get_args(RankBy))}; got {rank_by!r}")
    # Where another category alone has twins, their columns are there without a value.
    twins = [maps[name] for name in ("p_relative_twin", "p_location_twin") if name in maps]
    twin = "_twin" if any(column.notna().any() for column in twins) else ""
    if rank_by in ("evidence", "location"):
        tested = f"{'relative' if rank_by == 'evidence' else 'location'}{twin}"
        return MapColumns(f"evidence_{tested}", tested, f"combined_{tested}")
    tested = "statistic" if rank_by == "metric" else rank_by
    return MapColumns(f"z_{rank_by}", tested, f"combined_{rank_by}")


# -- controls of a category's ranking: chance, reliability, length, wording ------------------------


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
        group_tests_p05=int((p < 0.05).sum()),
        group_tests_expected=0.05 * float(testable),
        groups_p_max05=int((heads.groupby("group")["p_max"].min() < 0.05).sum()),
        group_tests_q05=int((heads["q_bh"] < 0.05).sum()),
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
    )


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
    return float(max(2.0**-exchanges, 1 / (1 + n_permutations)))


def _tested_map(results: Sequence[GroupResult], maps: pd.DataFrame, name: str) -> TestedMapRecord:
    return TestedMapRecord(
        p05=int((maps[f"p_{name}"] < 0.05).sum()),
        expected=0.05 * float(maps[f"p_{name}"].notna().sum()),
        p_max05=int((maps[f"p_max_{name}"] < 0.05).sum()),
        q05=int((maps[f"q_{name}"] < 0.05).sum()),
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


def reliability(results: Sequence[GroupResult], name: str) -> float:
    """Split-half reliability of a map over groups; NaN where none has it or it does not vary."""
    with_halves = [result for result in results if name in result.halves]
    if not with_halves:
        return float("nan")
    maps: Float[np.ndarray, "group split half head"] = np.stack(
        [z_over_heads(combined_halves(result, name)) for result in with_halves]
    )
    defined = np.isfinite(maps)
    mean = ratio(maps.sum(0, where=defined), defined.sum(0))
    return split_half_reliability(mean)
