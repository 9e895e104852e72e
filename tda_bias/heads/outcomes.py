"""What a run of heads comes to: of every category, how many heads survive correction."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tda_bias.heads.finding import by_chance, power_line
from tda_bias.heads.result import HeadBias
from tda_bias.heads.tables import of_two_tests
from tda_bias.show.text import counted
from tda_bias.show.verdict import WORDING, Bar, HeadGrid, Outcome
from tda_bias.types import TESTS


def heads_outcomes(result: HeadBias) -> list[Outcome]:
    """An outcome for each category."""
    return [_outcome(result, category) for category in result.categories]


def _outcome(result: HeadBias, category: str) -> Outcome:
    c, found = result.controls_record(category), result.found(category)
    p, correction = _smallest(result, category, found)
    lines = [f"{c.hot_spots_p05} with p < .05, {by_chance(c)}"]
    second = result.by_second_test(category)
    if second is not None:
        of_both = ", not for two tests" if len(second) and found.empty else ""
        lines.append(f"location test: {counted(len(second), 'survives', 'survive')}{of_both}")
    bars: tuple[Bar, ...] = ()
    if c.twins is not None:
        bars = Bar.of("wording", 1 - c.twins.difference_left, WORDING)
        if c.twins.smallest_share < 1 and not c.is_impossible:
            lines.append(
                f"would find {c.twins.smallest_share:.0%} shared by contexts (location test)"
            )
    limits = [] if c.twins is not None else ["without twins: wording is in it"]
    if c.negative_share is not None:
        limits.append("only the named heads were tested")
    return Outcome(
        question="heads",
        name=f"Heads: {category}",
        about=f"attention heads that treat {category} differently after correction",
        p=p,
        correction=correction,
        clusters=c.triples,
        cluster="context",
        found=len(found),
        of=c.tested,
        impossible=c.is_impossible,
        category="" if result.record.settings.get("pairs") else category,
        bars=bars,
        lines=lines,
        limits=limits,
        power=power_line(c),
        grid=_grid(result, category, found),
        items=_items(result, category),
    )


def _smallest(result: HeadBias, category: str, found: pd.DataFrame) -> tuple[float, str]:
    """The smallest corrected p of the ranking, and by what it is corrected.

    Where the second of two tests found a head, it counts for both.
    """
    if len(found) and result.survivors(category=category).empty:
        twice = float(of_two_tests(found["p_max"]).min())
        return twice, f"{TESTS['location']}, family-wise, for two tests"
    least = result.top(None, category=category)[["p_max", "q"]].min()
    by_family = not least["q"] < least["p_max"]
    by = "family-wise" if by_family else "FDR"
    test = TESTS.get(result.rank_by)
    return float(least["p_max" if by_family else "q"]), f"{test}, {by}" if test else by


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
