"""Results to draw that no model made."""

import numpy as np
import pandas as pd

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.items import ExamplePattern
from tda_bias.heads.ranking_controls import ControlsRecord
from tda_bias.heads.result import HeadBias, HeadsRecord
from tda_bias.store.record import HookedModelRecord

WORDS = ("My", "sister", "is", "here", ".", "She", "can", "cook", "well")


def made_up_example(words: tuple[str, ...] = WORDS) -> ExamplePattern:
    """A text and the patterns of 2 layers of 2 heads over it."""
    rng = np.random.default_rng(4)
    weights = np.tril(rng.gamma(0.7, size=(2, 2, 9, 9)))
    patterns = weights / weights.sum(-1, keepdims=True)
    return ExamplePattern("made-up", "sister", " ".join(words), words, "causal", (0, 1), patterns)


def made_up_heads(
    model: str = "made-up", categories: tuple[str, str] = ("gender", "race")
) -> HeadBias:
    """Numbers that no model made: pictures must not change with a library's rounding."""
    rng = np.random.default_rng(5)
    names = dict(zip(categories, (6, 9), strict=True))
    groups = pd.DataFrame(
        [
            {"category": c, "group": f"{c}{i}", "n": 25, "reliability": rng.uniform(0, 0.6)}
            for c, n in names.items()
            for i in range(n)
        ]
    )
    for column in ("metric_mean", "length_statistic_0", "length_statistic_1"):
        groups[column] = rng.normal(size=len(groups))
    for dim in range(2):
        groups[f"S{dim}_mean_stable"] = groups["length_statistic_1"] + rng.normal(size=len(groups))
    layer, head = (axis.ravel() for axis in np.indices((6, 4)))
    maps = []
    for c in names:
        table = pd.DataFrame({"category": c, "layer": layer, "head": head, "unstable": head == 3})
        table["unstable"] &= layer == 2
        for name in ("z_metric", "z_relative"):
            table[name] = rng.normal(size=len(table))
        table["p_max_relative"] = np.where((layer == 4) & (head == 1), 0.01, 0.5)
        table["q_relative"] = np.where((layer == 1) & (head == 0), 0.03, 0.5)
        maps.append(table)
    controls = [
        {"category": c, "groups": n, "reliability": 0.6, "null_map_correlation": 0.8}
        for c, n in names.items()
    ]
    record = HeadsRecord.model_construct(
        model=HookedModelRecord.model_construct(name=model, layers=tuple(range(6))),
        controls=tuple(ControlsRecord.model_construct(**each) for each in controls),
        config=HeadBiasConfig(rank_by="relative"),
    )
    return HeadBias(pd.DataFrame(), pd.DataFrame(), pd.concat(maps), groups, record)
