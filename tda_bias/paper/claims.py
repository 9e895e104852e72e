"""The head paper's claims in words, each with what a run says.

Source: Varadarajan & Songdechakraiwut, sections 4 and 5.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.heads.result import HeadBias
from tda_bias.show.text import counted, p_text
from tda_bias.stats.correlation import permuted_correlation, spearman_over_items
from tda_bias.stats.resampling import two_sided_share
from tda_bias.stats.seeds import generator
from tda_bias.types import HeadId, RankBy

if TYPE_CHECKING:
    from tda_bias.scores.stereoset_scores import StereoSetScores

_TOP = 10
_BY: RankBy = "metric"
_RESAMPLES = 9999
# Groups without which a correlation over them says nothing.
_FEWEST_GROUPS = 5


def claims(result: HeadBias, said: StereoSetScores | str) -> dict[str, str]:
    """The paper's claims, each with what a run says of it by its metric T.

    Args:
        result: The run.
        said: StereoSet's scores of the same model on the same triples, or why there are none.
    """
    near = "The hot spots of gender and profession lie near each other."
    both = {"gender", "profession"} <= set(result.categories)
    return {
        "The model prefers stereotypes to anti-stereotypes only 52 % of the time.": (
            said if isinstance(said, str) else preference(said)
        ),
        "The mean over groups does not differ from 0 in any category (figure 8).": means(result),
        "The SD over groups is ten times larger (figure 9).": spreads(result),
        "The values of some groups have a large range over heads: a few heads contribute most "
        "(tables 1 to 4).": ranges(result),
        "The more positive the metric of a group, the more negative its representation.": (
            said if isinstance(said, str) else representation(result, said)
        ),
        "Hot spots are larger in gender and race.": largest(result),
        **({near: overlaps(result)} if both else {}),
        "The first and last heads of a layer look larger than those between. (The order of heads "
        "has no meaning in the architecture.)": edge_heads(result),
    }


def preference(said: StereoSetScores) -> str:
    """Stereotype scores by category, with intervals."""
    rows = said.scores[(said.scores["group"] == "all") & (said.scores["scoring"] == "sum")]
    parts = []
    for row in rows.to_dict("records"):
        name = "all together" if row["category"] == "all" else row["category"]
        low, high = row["ss_low"], row["ss_high"]
        sure = f" ({low:.1f} to {high:.1f})" if low == low else ""
        parts.append(f"{name} {row['ss']:.1f} %{sure}")
    return (
        f"{'; '.join(parts)}. By the log-probability of the continuations, mean over groups; 50 % "
        "is no preference. The paper's number is StereoSet's own, from a next-sentence head "
        "trained on top of GPT-2."
    )


def ranges(result: HeadBias) -> str:
    """Of each category the group with the largest range over heads, beside the median group's."""
    parts = []
    for category in result.categories:
        groups = result.groups[result.groups["category"] == category]
        width = groups[f"{_BY}_max"] - groups[f"{_BY}_min"]
        row = groups.to_dict("records")[int(width.to_numpy().argmax())]
        stable = _stable(result, category).groupby("group")["combined_metric"].agg(np.ptp)
        parts.append(
            f"{category} {row[f'{_BY}_min']:+.3f} to {row[f'{_BY}_max']:+.3f} ({row['group']}; "
            f"the median group's range is {width.median():.3f}, {stable.median():.3f} without "
            "unstable heads)"
        )
    return "; ".join(parts) + "."


def representation(result: HeadBias, said: StereoSetScores) -> str:
    """Rank correlation over groups of the mean metric with the stereotype score."""
    scores = said.scores[(said.scores["scoring"] == "sum") & (said.scores["group"] != "all")]
    both = result.groups.merge(scores, on=["category", "group"], validate="one_to_one")
    by_part = [(category, both[both["category"] == category]) for category in result.categories]
    if len(by_part) > 1:
        by_part.append(("all together", both))
    parts, rng = [], generator(0)
    for name, groups in by_part:
        number = counted(len(groups), "group")
        if len(groups) < _FEWEST_GROUPS:
            parts.append(f"{name} undefined over {number}")
            continue
        found = permuted_correlation(
            groups[f"{_BY}_mean"].to_numpy(float),
            groups["ss"].to_numpy(float),
            n_resamples=_RESAMPLES,
            rng=rng,
        )
        parts.append(f"{name} {found.r:+.2f} over {number} (p {p_text(found.p_two_sided())})")
    return (
        "Spearman of a group's mean metric with its stereotype score, the share of triples whose "
        f"stereotype the model prefers: {'; '.join(parts)}. The claim needs them to be positive."
    )


def means(result: HeadBias) -> str:
    """A t-test of each category's group means against 0."""
    parts = []
    for category in result.categories:
        values = result.groups.loc[result.groups["category"] == category, f"{_BY}_mean"]
        test = stats.ttest_1samp(values, 0.0) if len(values) > 1 else None
        p = "undefined" if test is None else f"{test.pvalue:.2g}"
        stable = stable_means(result, category)
        parts.append(
            f"{category} {values.mean():+.3f} (t-test over {counted(len(values), 'group')}, p {p}; "
            f"{stable.mean():+.3f} without unstable heads)"
        )
    return "; ".join(parts) + "."


def spreads(result: HeadBias) -> str:
    """SD over |mean| of each category."""
    table = result.category_summary()
    parts = [
        f"{row['category']} {row['sd']:.3f}, {row['sd'] / abs(row['mean']):.1f} times the mean"
        for row in table.to_dict("records")
    ]
    return "; ".join(parts) + "."


def largest(result: HeadBias) -> str:
    """The largest value of each map, and how many groups it averages."""
    parts = []
    for category in result.categories:
        row = result.top(1, category=category, by=_BY).iloc[0]
        head = HeadId(int(row["layer"]), int(row["head"]))
        n = result.controls(category)["groups"]
        parts.append(f"{category} {row['z']:.2f} ({head}, mean of {counted(n, 'group')})")
    few = (
        " A mean of fewer groups varies more: the largest of religion, with its three groups, says "
        "little."
    )
    return "; ".join(parts) + "." + (few if "religion" in result.categories else "")


def overlaps(result: HeadBias) -> str:
    """Heads that the top ten of two maps share, and the maps' correlation."""
    tops = {
        c: {(r.layer, r.head) for r in result.top(_TOP, category=c, by=_BY).itertuples()}
        for c in result.categories
    }
    n_heads = result.category_map(result.categories[0], by=_BY).size
    parts = []
    for first, second in combinations(result.categories, 2):
        maps = [result.category_map(c, by=_BY).ravel() for c in (first, second)]
        rho = spearman_over_items(*maps)
        parts.append(f"{first} and {second} {len(tops[first] & tops[second])} (Spearman {rho:.2f})")
    expected = _TOP**2 / n_heads
    return (
        f"Shared among the {_TOP} highest heads ({expected:.1f} by chance): {'; '.join(parts)}. "
        "All maps share what few dominating texts give a head under any labels."
    )


def edge_heads(result: HeadBias) -> str:
    """First and last heads against the others of their layers, with heads permuted in layers."""
    parts, rng = [], generator(0)
    for category in result.categories:
        values = result.category_map(category, by=_BY)
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


def stable_means(result: HeadBias, category: str) -> pd.Series[float]:
    """Each group's mean of metric T over the heads whose unrelated texts vary."""
    return _stable(result, category).groupby("group")["combined_metric"].mean()


def _stable(result: HeadBias, category: str) -> pd.DataFrame:
    of_category = result.combined[result.combined["category"] == category]
    return of_category[~of_category["unstable"]]
