"""Group results to tidy tables: tests of every head, combined values, hot spots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult, split_half_reliability
from tda_bias.heads.group_statistic import ratio, unstable_heads
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
from tda_bias.stats.resampling import LEVEL, benjamini_hochberg
from tda_bias.stats.seeds import generator
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


def survives(p_max: np.ndarray, q: np.ndarray) -> Bool[np.ndarray, "..."]:
    """Tell which heads survive correction: family-wise p or q below .05."""
    return (p_max < LEVEL) | (q < LEVEL)


def surviving(rows: pd.DataFrame, tested: str) -> Bool[np.ndarray, " row"]:
    """Tell the same of the rows of a category in a tested map."""
    return survives(rows[f"p_max_{tested}"].to_numpy(), rows[f"q_{tested}"].to_numpy())


def of_two_tests(p_max: pd.Series[float]) -> pd.Series[float]:
    """Family-wise p-values of the second of two tests, corrected for both (Bonferroni)."""
    return (2 * p_max).clip(upper=1.0)


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
