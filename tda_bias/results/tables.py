"""Group results to tidy tables: the tests of every head, the combined values, the hot spots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.config import HeadBiasConfig
from tda_bias.inference.hot_spots import HotSpots, hot_spots, z_over_heads
from tda_bias.inference.paper import paper_pvalue
from tda_bias.inference.resampled import (
    label_terms,
    max_z,
    paired_terms,
    relabellings,
    sign_flips,
    two_sided,
)
from tda_bias.resampling import benjamini_hochberg, generator, spearman_over_items
from tda_bias.statistic.controls import split_half_reliability
from tda_bias.statistic.group_result import GroupResult
from tda_bias.statistic.group_statistic import GroupStatistic, unstable_heads
from tda_bias.types import CATEGORIES, RankBy

# The combined value of a head in a group, by the name it is ranked by.
MAPS: tuple[RankBy, ...] = ("relative", "statistic", "metric")


# With fewer contexts than this no arrangement is rare enough for a two-sided p below .05.
SMALLEST_TESTABLE = {"paired": 6, "label": 4, "paper": 2}


TESTED_MAPS: tuple[RankBy, ...] = ("relative", "statistic")


# -- per group -------------------------------------------------------------------------------------


def head_table(result: GroupResult, config: HeadBiasConfig, *, model: str) -> pd.DataFrame:
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
    columns["reason"] = stat.reason.ravel()
    return pd.DataFrame(columns)


def _pvalues(result: GroupResult, config: HeadBiasConfig) -> dict[str, np.ndarray]:
    stat, n = result.statistic, result.statistic.n
    rng = generator(config.seed, "heads", result.category, result.group)
    flips, paired = sign_flips(n, config.n_resamples, rng), paired_terms(stat)
    labels, texts = relabellings(n, config.n_resamples, rng), label_terms(stat)
    paper = paper_pvalue(stat)
    found = {
        "p_paper": paper.pvalue,
        "T": paper.T,
        "p_paired": two_sided(flips, paired).pvalue,
        "p_label": two_sided(labels, texts).pvalue,
    }
    # The published p has no draws of its own: its family-wise companion is that of the flips.
    family = (labels, texts) if config.pvalue == "label" else (flips, paired)
    found["p_max"] = max_z(*family).pvalue
    found["q_bh"] = benjamini_hochberg(found[f"p_{config.pvalue}"])
    return found


def combined_values(stat: GroupStatistic) -> dict[RankBy, Float[np.ndarray, "layer head"]]:
    """The mean over the two dimensions of S, of ``relative`` and of the paper's metric T.

    Source: Varadarajan & Songdechakraiwut, section 3 (whose text averages the metrics while its
    formula prints S; both are given).
    """
    return {
        "relative": stat.relative.mean(0),
        "statistic": stat.S.mean(0),
        "metric": paper_pvalue(stat).T.mean(0),
    }


def combined_table(result: GroupResult, *, model: str) -> pd.DataFrame:
    """One row per layer and head of a group: combined values and their z-scores over heads."""
    values = combined_values(result.statistic)
    layer, head = (axis.ravel() for axis in np.indices(values["statistic"].shape))
    columns: dict[str, Any] = {
        "model": model,
        "category": result.category,
        "group": result.group,
        "layer": layer,
        "head": head,
    }
    for name in MAPS:
        columns[f"combined_{name}"] = values[name].ravel()
    for name in MAPS:
        columns[f"z_{name}"] = z_over_heads(np.abs(values[name].ravel()))
    columns["unstable"] = unstable_heads(result.statistic.var_unrelated).any(0).ravel()
    return pd.DataFrame(columns)


def group_row(result: GroupResult, heads: pd.DataFrame, combined: pd.DataFrame) -> dict[str, Any]:
    """One line per group: means over heads, the published tables' columns, and the controls."""
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
    row["reliability"] = split_half_reliability(_combined_halves(result))
    return row


def _combined_halves(result: GroupResult) -> Float[np.ndarray, "split half head"]:
    halves = result.halves.astype(float)
    return np.asarray(np.abs(halves.mean(2)).reshape(*halves.shape[:2], -1))


# -- per category ----------------------------------------------------------------------------------


def category_table(
    category: str,
    results: Sequence[GroupResult],
    combined: pd.DataFrame,
    config: HeadBiasConfig,
    *,
    model: str,
) -> pd.DataFrame:
    """One row per head: its maps over the groups of a category and the hot-spot tests.

    Args:
        category: The category.
        results: Its groups.
        combined: Rows of ``combined_table`` of these groups.
        config: Number of resamples and seed.
        model: Name for the first column.
    """
    grouped = combined[combined["category"] == category].groupby(["layer", "head"], sort=True)
    table = grouped.agg(
        **{f"z_{name}": (f"z_{name}", "mean") for name in MAPS},
        n_groups=("z_relative", "count"),
        n_unstable=("unstable", "sum"),
    ).reset_index()
    table["unstable"] = table["n_unstable"] > 0
    for name in TESTED_MAPS:
        found = _hot_spots(results, name, config)
        table[f"z_null_{name}"] = found.null_mean
        table[f"p_{name}"] = found.pvalue
        table[f"p_max_{name}"] = found.pvalue_max
        table[f"q_{name}"] = found.qvalue
    table.insert(0, "category", category)
    table.insert(0, "model", model)
    return table


def _hot_spots(results: Sequence[GroupResult], name: RankBy, config: HeadBiasConfig) -> HotSpots:
    terms = []
    for result in results:
        stat = result.statistic
        if name == "relative":
            total = stat.q_stereotype.mean(0) + stat.q_anti.mean(0)
            scale = np.where(np.isfinite(stat.relative), stat.n * total, np.nan)
            shares = (stat.q_anti - stat.q_stereotype) / scale
        else:
            shares = paired_terms(stat)
        terms.append(shares.mean(1).reshape(stat.n, -1))
    rngs = [generator(config.seed, "hot spots", r.category, r.group) for r in results]
    return hot_spots(terms, n_resamples=config.n_resamples, rngs=rngs)


def controls(
    heads: pd.DataFrame,
    groups: pd.DataFrame,
    category: pd.DataFrame,
    results: Sequence[GroupResult],
    config: HeadBiasConfig,
) -> dict[str, Any]:
    """What must be read beside a category's ranking: chance, reliability, length."""
    tested = tested_map(config.rank_by)
    p = heads[f"p_{config.pvalue}"]
    hot = category[f"p_{tested}"].notna().sum()
    smallest = SMALLEST_TESTABLE[config.pvalue]
    testable = p[heads["n"] >= smallest].notna().sum()
    return {
        "category": str(category["category"].iloc[0]),
        "groups": len(groups),
        "triples": int(groups["n"].sum()),
        "heads": len(category),
        "unstable_heads": int(category["unstable"].sum()),
        "hot_spot_map": tested,
        "hot_spots_p05": int((category[f"p_{tested}"] < 0.05).sum()),
        "hot_spots_expected": 0.05 * float(hot),
        "hot_spots_p_max05": int((category[f"p_max_{tested}"] < 0.05).sum()),
        "hot_spots_q05": int((category[f"q_{tested}"] < 0.05).sum()),
        "pvalue": config.pvalue,
        "smallest_testable_group": smallest,
        "groups_too_small": int((groups["n"] < smallest).sum()),
        "group_tests": int(testable),
        "group_tests_p05": int((p < 0.05).sum()),
        "group_tests_expected": 0.05 * float(testable),
        "group_tests_p_max05": int((heads["p_max"] < 0.05).sum()),
        "groups_p_max05": int((heads.groupby("group")["p_max"].min() < 0.05).sum()),
        "group_tests_q05": int((heads["q_bh"] < 0.05).sum()),
        "reliability": _category_reliability(results),
        "null_map_correlation": spearman_over_items(
            category[f"z_{tested}"].to_numpy(float), category[f"z_null_{tested}"].to_numpy(float)
        ),
        "reliability_group_mean": float(groups["reliability"].mean()),
        "length_correlation_0": _length_correlation(groups, 0),
        "length_correlation_1": _length_correlation(groups, 1),
    }


def _length_correlation(groups: pd.DataFrame, dim: int) -> float:
    statistic = groups[f"S{dim}_mean_stable"].to_numpy(float)
    return spearman_over_items(statistic, groups[f"length_statistic_{dim}"].to_numpy(float))


def _category_reliability(results: Sequence[GroupResult]) -> float:
    """Reliability of the category's map of |combined relative|: halves of every group at once."""
    maps = np.stack([z_over_heads(_combined_halves(result)) for result in results])
    defined = np.isfinite(maps)
    total = np.where(defined, maps, 0.0).sum(0)
    mean = np.full(total.shape, np.nan)
    np.divide(total, defined.sum(0), out=mean, where=defined.any(0))
    return split_half_reliability(mean)


def tested_map(rank_by: RankBy) -> RankBy:
    """The map whose hot-spot test stands beside a ranking: T's p cannot be recomputed cheaply."""
    return "relative" if rank_by == "relative" else "statistic"


def ranked(category: pd.DataFrame, rank_by: RankBy) -> pd.DataFrame:
    """Heads of one category in descending order of a map, unstable ones after all others."""
    order = ["unstable", f"z_{rank_by}"]
    return category.sort_values(order, ascending=[True, False], kind="stable")


def in_order(categories: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Categories in their usual order."""
    return [c for c in CATEGORIES if c in categories]
