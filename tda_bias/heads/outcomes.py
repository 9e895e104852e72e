"""What a run of heads comes to: of every category, how many heads survive correction."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tda_bias.heads.result import HeadBias
from tda_bias.show.verdict import LEVEL, Bar, HeadGrid, Outcome

_HEAD = ["layer", "head"]


def heads_outcomes(result: HeadBias) -> list[Outcome]:
    """An outcome for each category."""
    return [_outcome(result, category) for category in result.categories]


def _outcome(result: HeadBias, category: str) -> Outcome:
    c = result.controls(category)
    tested = _tested(result, category)
    corrected = pd.concat([rows[name] for rows in tested for name in ("p_max", "q")])
    found = surviving(result, category)
    p = float(corrected.min())
    lines = [f"{c['hot_spots_p05']} with p < .05, {c['hot_spots_expected']:.1f} by chance"]
    bars = []
    if (twins := c["twins"]) is not None:
        bars = [Bar("wording", 1 - twins["difference_left"])]
        if twins["smallest_share"] < 1:
            lines.append(f"would find {twins['smallest_share']:.0%} of what is left")
    of_pairs = bool(result.record.settings.get("pairs"))
    return Outcome(
        question="heads",
        name=f"Heads: {category}",
        about=f"attention heads that treat {category} differently after correction",
        p=p,
        clusters=c["groups"],
        found=len(found),
        of=c["heads"],
        impossible=not len(found) and _smallest_possible(result, category) >= LEVEL,
        category="" if of_pairs else category,
        bars=bars,
        lines=lines,
        grid=_grid(result, category, found),
        items=_items(result, category),
    )


def _tested(result: HeadBias, category: str) -> list[pd.DataFrame]:
    """The tests of the ranking and, with twins, of location: whose survivors are found."""
    tested = [result.top(None, category=category)]
    if result.controls(category)["twins"] is not None and result.rank_by != "location":
        by_location = result.top(None, category=category, by="location")
        tested.append(by_location.assign(q=np.nan))  # a finding by its family-wise p alone
    return tested


def surviving(result: HeadBias, category: str) -> pd.DataFrame:
    """Layer and head of what is found: as ``heads_finding`` names them, each once."""
    rows = pd.concat(_tested(result, category))
    kept = rows[(rows["p_max"] < LEVEL) | (rows["q"] < LEVEL)]
    return kept[_HEAD].drop_duplicates().reset_index(drop=True)


def _smallest_possible(result: HeadBias, category: str) -> float:
    """A p that no test of the category can be below, with one twin of each context or none.

    A group of n contexts has 2^n exchanges, two of which are alike: all of them, and none.
    """
    groups = result.groups[result.groups["category"] == category]
    twinned = groups.get("n_twinned")
    contexts = groups["n"] if twinned is None or twinned.isna().all() else twinned
    exchanges = float((contexts.fillna(0) - 1).clip(lower=0).sum())
    return float(max(2.0**-exchanges, 1 / (1 + result.record.config.n_permutations)))


def _grid(result: HeadBias, category: str, found: pd.DataFrame) -> HeadGrid:
    values = result.category_map(category)
    layers = list(result.record.model.layers)
    survives = np.zeros(values.shape, dtype=bool)
    for row in found.to_dict("records"):
        survives[layers.index(row["layer"]), row["head"]] = True
    return HeadGrid(layers, values, survives)


def _items(result: HeadBias, category: str) -> pd.DataFrame:
    """The compared texts, with their twins."""
    table = result.items.items
    own = table[table["category"] == category]
    names = {
        "group": "target",
        "stereotype": "stereotype",
        "anti_stereotype": "anti-stereotype",
        "twin_stereotype": "twin, stereotype",
        "twin_anti_stereotype": "twin, anti-stereotype",
    }
    return own[list(names)].rename(columns=names).reset_index(drop=True)
