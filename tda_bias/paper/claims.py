"""Claims of the head paper as numbers of a run.

Source: Varadarajan & Songdechakraiwut, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.heads.result import HeadBias
from tda_bias.paper.published import stable_means
from tda_bias.runs.text import counted
from tda_bias.stats.resampling import spearman_over_items, two_sided_share
from tda_bias.types import HeadId, RankBy

_TOP = 10
_RESAMPLES = 9999


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper and what the run says to it.

    Attributes:
        paper: The claim.
        here: The numbers of this run.
    """

    paper: str
    here: str


def claims(result: HeadBias, *, by: RankBy = "metric", seed: int = 0) -> list[Claim]:
    """The paper's claims about its figures, each with the numbers that bear on it.

    Args:
        result: A run, of all four categories where possible.
        by: Which map.
        seed: Of the permutations.
    """
    rng = np.random.default_rng(seed)
    checked = [
        Claim(
            "The mean over groups does not differ from 0 in any category (figure 8).",
            means(result, by),
        ),
        Claim("The SD over groups is ten times larger (figure 9).", spreads(result, by)),
        Claim("Hot spots are larger in gender and race.", largest(result, by)),
    ]
    if {"gender", "profession"} <= set(result.categories):
        checked.append(
            Claim(
                "The hot spots of gender and profession lie near each other.",
                overlaps(result, by),
            )
        )
    checked.append(
        Claim(
            "The first and last heads of a layer look larger than those between. (The order of "
            "heads has no meaning in the architecture.)",
            edge_heads(result, by, rng),
        )
    )
    return checked


def means(result: HeadBias, by: RankBy) -> str:
    """A t-test of each category's group means against 0."""
    parts = []
    for category in result.categories:
        values = result.groups.loc[result.groups["category"] == category, f"{by}_mean"]
        test = stats.ttest_1samp(values, 0.0) if len(values) > 1 else None
        p = "undefined" if test is None else f"{test.pvalue:.2g}"
        stable = stable_means(result, category, by=by)
        parts.append(
            f"{category} {values.mean():+.3f} (t-test over {counted(len(values), 'group')}, p {p}; "
            f"{stable.mean():+.3f} without unstable heads)"
        )
    return "; ".join(parts) + "."


def spreads(result: HeadBias, by: RankBy) -> str:
    """SD over |mean| of each category."""
    table = result.category_summary(by=by)
    parts = [
        f"{row['category']} {row['sd']:.3f}, {row['sd'] / abs(row['mean']):.1f} times the mean"
        for row in table.to_dict("records")
    ]
    return "; ".join(parts) + "."


def largest(result: HeadBias, by: RankBy) -> str:
    """The largest value of each map, and how many groups it averages."""
    parts = []
    for category in result.categories:
        row = result.top(1, category=category, by=by).iloc[0]
        head = HeadId(int(row["layer"]), int(row["head"]))
        n = result.controls(category)["groups"]
        parts.append(f"{category} {row['z']:.2f} ({head}, mean of {counted(n, 'group')})")
    few = (
        " A mean of fewer groups varies more: the largest of religion, with its three groups, says "
        "little."
    )
    return "; ".join(parts) + "." + (few if "religion" in result.categories else "")


def overlaps(result: HeadBias, by: RankBy) -> str:
    """Heads that the top ten of two maps share, and the maps' correlation."""
    tops = {
        c: {(r.layer, r.head) for r in result.top(_TOP, category=c, by=by).itertuples()}
        for c in result.categories
    }
    n_heads = result.category_map(result.categories[0], by=by).size
    parts = []
    for first, second in combinations(result.categories, 2):
        maps = [result.category_map(c, by=by).ravel() for c in (first, second)]
        rho = spearman_over_items(*maps)
        parts.append(f"{first} and {second} {len(tops[first] & tops[second])} (Spearman {rho:.2f})")
    expected = _TOP**2 / n_heads
    return (
        f"Shared among the {_TOP} highest heads ({expected:.1f} by chance): {'; '.join(parts)}. "
        "All maps share what few dominating texts give a head under any labels."
    )


def edge_heads(result: HeadBias, by: RankBy, rng: np.random.Generator) -> str:
    """First and last heads against the others of their layers, with heads permuted in layers."""
    parts = []
    for category in result.categories:
        values = result.category_map(category, by=by)
        if values.shape[1] < 3:
            return "undefined: fewer than three heads in a layer."
        difference, p = edge_difference(values, rng)
        parts.append(f"{category} {difference:+.3f} (p {p:.2g})")
    return f"Difference of mean z, heads permuted within layers: {'; '.join(parts)}."


def edge_difference(
    values: Float[np.ndarray, "layer head"], rng: np.random.Generator
) -> tuple[float, float]:
    """Mean of the outer two heads minus that of the others, and a two-sided permutation p."""
    values = np.where(np.isfinite(values), values, np.nanmean(values))
    edge = _edge(values)
    order = np.argsort(rng.random((_RESAMPLES, *values.shape)), axis=2)
    null = _edge(np.take_along_axis(np.broadcast_to(values, order.shape), order, axis=2))
    return float(edge), two_sided_share(null, float(edge))


def _edge(values: np.ndarray) -> np.ndarray:
    outer = values[..., [0, -1]].mean((-2, -1))
    return np.asarray(outer - values[..., 1:-1].mean((-2, -1)))


def counts_of_tests(result: HeadBias) -> pd.DataFrame:
    """Per category, tests with p < .05 under each p-value, against 5 % of the tests."""
    rows = []
    for category in result.categories:
        tests = result.table[result.table["category"] == category]
        row = {"category": category, "tests": len(tests), "expected": round(0.05 * len(tests))}
        for name in ("paper", "paired", "label"):
            row[f"{name}, p < .05"] = int((tests[f"p_{name}"] < 0.05).sum())
        row["unstable rows"] = int(tests["unstable"].sum())
        row["survivors (relative map)"] = len(result.survivors(category=category, by="relative"))
        rows.append(row)
    return pd.DataFrame(rows)
