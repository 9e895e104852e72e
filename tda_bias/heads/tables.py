"""Group results to tidy tables: the tests of every head, the combined values, the hot spots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult, split_half_reliability
from tda_bias.heads.group_statistic import GroupStatistic, unstable_heads
from tda_bias.heads.hot_spots import GroupTerms, HotSpots, hot_spots, z_over_heads
from tda_bias.heads.location import (
    LocationMap,
    LocationTest,
    location_columns,
    location_tests,
)
from tda_bias.heads.record import PUBLISHED
from tda_bias.heads.resampled import (
    label_terms,
    max_z,
    paired_terms,
    paper_pvalue,
    random_flips,
    relabellings,
    sign_flips,
    two_sided,
    version_draws,
)
from tda_bias.stats.resampling import benjamini_hochberg, generator
from tda_bias.types import in_order

# Combined values of a head in a group; those with twins are there where the run had twins.
COMBINED = (*PUBLISHED, "location")
COMBINED_TWIN = ("relative_twin", "location_twin")
# Maps whose hot-spot test is made.
TESTED = ("relative", "statistic", "location", "signed_relative")
TESTED_TWIN = ("relative_twin", "location_twin", "signed_relative_twin")


@dataclass(frozen=True)
class Tables:
    """The tables of a run.

    Attributes:
        table: One row per group, layer, head and dimension.
        combined: One row per group, layer and head.
        category: One row per category, layer and head.
        groups: One row per group.
        critical: By category and map, the evidence that a family-wise p of .05 needs.
        nulls: By ``CATEGORY.MAP``, ``(quantile, head)`` values under exchange; see ``HotSpots``.
    """

    table: pd.DataFrame
    combined: pd.DataFrame
    category: pd.DataFrame
    groups: pd.DataFrame
    critical: dict[str, dict[str, float]]
    nulls: dict[str, np.ndarray]


def tables(results: Sequence[GroupResult], config: HeadBiasConfig, *, model: str) -> Tables:
    """All tables of a run.

    Args:
        results: The groups.
        config: Number of resamples, seed, which p-value.
        model: Name for the first column.
    """
    twins = any(result.has_twins for result in results)
    heads: dict[tuple[str, str], pd.DataFrame] = {}
    combined: dict[tuple[str, str], pd.DataFrame] = {}
    categories: list[pd.DataFrame] = []
    critical: dict[str, dict[str, float]] = {}
    nulls: dict[str, np.ndarray] = {}
    for category in in_order(result.category for result in results):
        members = [result for result in results if result.category == category]
        locations = {name: LocationMap() for name in ("location", "location_twin")[: 1 + twins]}
        for result in members:
            key = category, result.group
            tests, for_maps = location_tests(result, config)
            heads[key] = head_table(result, config, tests, model=model, twins=twins)
            combined[key] = combined_table(result, model=model, twins=twins)
            for name, values in for_maps.items():
                locations[name].add(*values)
        maps = {name: location.tested() for name, location in locations.items()}
        maps |= _dispersion_maps(members, config, twins=twins)
        own = pd.concat([combined[category, result.group] for result in members])
        categories.append(category_table(category, own, maps, model=model, twins=twins))
        critical[category] = {name: spots.critical for name, spots in maps.items()}
        nulls |= {f"{category}.{name}": spots.null for name, spots in maps.items()}
    keys = [(result.category, result.group) for result in results]
    rows = [
        group_row(result, heads[key], combined[key])
        for key, result in zip(keys, results, strict=True)
    ]
    return Tables(
        table=pd.concat([heads[key] for key in keys], ignore_index=True),
        combined=pd.concat([combined[key] for key in keys], ignore_index=True),
        category=pd.concat(categories, ignore_index=True),
        groups=pd.DataFrame(rows),
        critical=critical,
        nulls=nulls,
    )


# -- per group -------------------------------------------------------------------------------------


def head_table(
    result: GroupResult,
    config: HeadBiasConfig,
    locations: Mapping[str, LocationTest],
    *,
    model: str,
    twins: bool,
) -> pd.DataFrame:
    """One row per dimension, layer and head of a group, with all its p-values."""
    stat = result.statistic
    pvalues = _pvalues(result, config)
    shape = stat.S.shape
    dim, layer, head = (axis.ravel() for axis in np.indices(shape))
    columns: dict[str, Any] = {
        "model": model,
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
    columns |= location_columns("location", result.contrast.location, locations)
    if twins:
        columns["n_twinned"] = len(result.versions.twinned)
        columns |= location_columns("location_twin", result.contrast.location_twin, locations)
        columns["relative_twin"] = result.contrast.relative_twin.ravel()
        columns |= _twin_dispersion_columns(result, config)
    columns["reason"] = stat.reason.ravel()
    return pd.DataFrame(columns)


def _pvalues(result: GroupResult, config: HeadBiasConfig) -> dict[str, np.ndarray]:
    stat, n = result.statistic, result.statistic.n
    rng = generator(config.seed, "heads", result.category, result.group)
    flips, paired = sign_flips(n, config.n_resamples, rng), paired_terms(stat)
    labels, texts = relabellings(n, config.n_resamples, rng), label_terms(stat)
    paper = paper_pvalue(stat)
    pvalues = {
        "p_paper": paper.pvalue,
        "T": paper.T,
        "p_paired": two_sided(flips, paired).pvalue,
        "p_label": two_sided(labels, texts).pvalue,
    }
    # The published p has no draws of its own: its family-wise companion is that of the flips.
    family = (labels, texts) if config.pvalue == "label" else (flips, paired)
    pvalues["p_max"] = max_z(*family).pvalue
    pvalues["q_bh"] = benjamini_hochberg(pvalues[f"p_{config.pvalue}"])
    return pvalues


def _twin_dispersion_columns(result: GroupResult, config: HeadBiasConfig) -> dict[str, np.ndarray]:
    """The test of the dispersion of triples minus twins, by exchange of the two."""
    names = ("p_dispersion_twin", "p_max_dispersion_twin", "q_dispersion_twin")
    if not result.has_twins:
        return dict.fromkeys(names, np.full(result.contrast.relative_twin.size, np.nan))
    rng = generator(config.seed, "twins", result.category, result.group)
    draws = version_draws(result.versions, config.n_resamples, rng)
    terms = result.contrast.dispersion / result.contrast.dispersion_total
    single = two_sided(draws, terms).pvalue.ravel()
    family = max_z(draws, terms).pvalue.ravel()
    return dict(zip(names, (single, family, benjamini_hochberg(single)), strict=True))


def combined_values(
    result: GroupResult, *, twins: bool
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Means over the two dimensions: S, ``relative``, the paper's metric T, location.

    Source: Varadarajan & Songdechakraiwut, section 3 (whose text averages the metrics while its
    formula prints S; both are given).
    """
    stat, contrast = result.statistic, result.contrast
    values = {
        "relative": stat.relative.mean(0),
        "statistic": stat.S.mean(0),
        "metric": paper_pvalue(stat).T.mean(0),
        "location": contrast.location.mean(0),
    }
    if twins:
        values["relative_twin"] = contrast.relative_twin.mean(0)
        values["location_twin"] = contrast.location_twin.mean(0)
    return values


def combined_table(result: GroupResult, *, model: str, twins: bool) -> pd.DataFrame:
    """One row per layer and head of a group: combined values and their z-scores over heads."""
    values = combined_values(result, twins=twins)
    layer, head = (axis.ravel() for axis in np.indices(values["statistic"].shape))
    columns: dict[str, Any] = {
        "model": model,
        "category": result.category,
        "group": result.group,
        "layer": layer,
        "head": head,
    }
    for name, value in values.items():
        columns[f"combined_{name}"] = value.ravel()
    for name in (*PUBLISHED, *(["relative_twin"] if twins else [])):
        columns[f"z_{name}"] = z_over_heads(np.abs(values[name].ravel()))
    columns["unstable"] = unstable_heads(result.statistic.var_unrelated).any(0).ravel()
    return pd.DataFrame(columns)


def group_row(result: GroupResult, heads: pd.DataFrame, combined: pd.DataFrame) -> dict[str, Any]:
    """One line per group: means over heads, the published tables' columns, and the controls.

    Args:
        result: The group.
        heads: Its ``head_table``.
        combined: Its ``combined_table``.
    """
    row: dict[str, Any] = {
        "model": heads["model"].iloc[0],
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
    for dim in range(2):
        stable = heads[(heads["dim"] == dim) & ~heads["unstable"]]
        row[f"S{dim}_mean_stable"] = stable["S"].mean()
        row[f"length_statistic_{dim}"] = result.length_statistic[dim]
    row["reliability"] = split_half_reliability(combined_halves(result, "relative"))
    if "relative_twin" in heads:
        row["n_twinned"] = len(result.versions.twinned)
    return row


def combined_halves(result: GroupResult, name: str) -> Float[np.ndarray, "split half head"]:
    """|mean over dimensions| of a statistic in random halves of the contexts."""
    halves = result.halves[name].astype(float)
    return np.asarray(np.abs(halves.mean(2)).reshape(*halves.shape[:2], -1))


# -- per category ----------------------------------------------------------------------------------


def category_table(
    category: str,
    combined: pd.DataFrame,
    maps: Mapping[str, HotSpots],
    *,
    model: str,
    twins: bool,
) -> pd.DataFrame:
    """One row per head: its maps over the groups of a category and the hot-spot tests.

    Args:
        category: The category.
        combined: Rows of ``combined_table`` of its groups.
        maps: Tested maps by name.
        model: Name for the first column.
        twins: Whether the run had twins.
    """
    names = (*PUBLISHED, *(["relative_twin"] if twins else []))
    grouped = combined.groupby(["layer", "head"], sort=True)
    table = grouped.agg(
        **{f"z_{name}": (f"z_{name}", "mean") for name in names},
        n_groups=("z_relative", "count"),
        n_unstable=("unstable", "sum"),
    ).reset_index()
    table["unstable"] = table["n_unstable"] > 0
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
    table.insert(0, "model", model)
    return table


def _dispersion_maps(
    results: Sequence[GroupResult], config: HeadBiasConfig, *, twins: bool
) -> dict[str, HotSpots]:
    """The tested maps of the paper's statistic, absolute and signed, and of its twin form."""
    relative = list(_flipped(results, config, [relative_shares(r) for r in results]))
    statistic = list(_flipped(results, config, [paired_terms(r.statistic) for r in results]))
    maps = {
        "relative": hot_spots(relative),
        "statistic": hot_spots(statistic),
        "signed_relative": hot_spots(relative, direction="same"),
    }
    if twins:
        exchanged = list(_exchanged(results, config))
        maps["relative_twin"] = hot_spots(exchanged)
        maps["signed_relative_twin"] = hot_spots(exchanged, direction="same")
    return maps


def relative_shares(result: GroupResult) -> Float[np.ndarray, "n dim layer head"]:
    """Each context's share of ``relative``, whose sum over contexts is that value."""
    stat: GroupStatistic = result.statistic
    total = stat.q_stereotype.mean(0) + stat.q_anti.mean(0)
    scale = np.where(np.isfinite(stat.relative), stat.n * total, np.nan)
    return np.asarray((stat.q_anti - stat.q_stereotype) / scale)


def _flipped(
    results: Sequence[GroupResult], config: HeadBiasConfig, shares: Sequence[np.ndarray]
) -> Iterator[GroupTerms]:
    for result, share in zip(results, shares, strict=True):
        n = result.statistic.n

        def draw(result: GroupResult = result, n: int = n) -> np.ndarray:
            rng = generator(config.seed, "hot spots", result.category, result.group)
            return random_flips(n, config.n_resamples, rng)

        yield GroupTerms(share.mean(1).reshape(n, -1), np.ones(n), draw)


def _exchanged(results: Sequence[GroupResult], config: HeadBiasConfig) -> Iterator[GroupTerms]:
    for result in results:
        if not result.has_twins:
            continue
        shares = result.contrast.dispersion / result.contrast.dispersion_total

        def draw(result: GroupResult = result) -> np.ndarray:
            rng = generator(config.seed, "hot spots of twins", result.category, result.group)
            return version_draws(result.versions, config.n_resamples, rng, enumerated=False).signs

        terms = shares.mean(1).reshape(len(shares), -1)
        yield GroupTerms(terms, result.versions.given, draw)
