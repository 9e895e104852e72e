"""Agreement of rankings of heads: over all heads, within layers, and at the top.

Heads of a layer resemble each other, so that two rankings may agree about a few layers and about no
head; see docs/method/inference.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import stats

from tda_bias.stats.correlation import permuted_correlation
from tda_bias.stats.seeds import generator

TOP = 10


def agreement(
    scores: pd.DataFrame,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    top: int = TOP,
    n_resamples: int = 9999,
    seed: int = 0,
) -> pd.DataFrame:
    """Agreement of rankings of the same heads, beside what chance gives.

    ``scores`` has the columns ``layer head`` and one per ranking; all ``pairs`` of them are
    compared if None.

    Returns:
        One row per pair: ``first second heads spearman p p_within_layers by_layers significant
        power_80 overlap chance p_overlap``. p is of the size of the correlation over permutations
        of all heads; ``p_within_layers`` exchanges heads of the same layer only, so that two
        rankings that agree about layers and not about heads get no small one: it is of the distance
        from ``by_layers``, what the means of layers alone give. ``significant`` is the distance
        with p < .05, ``power_80`` the one that is found four times out of five. ``overlap`` is the
        number of heads among the first ``top`` of both, ``chance`` its mean for random rankings,
        ``p_overlap`` their share with as many or more.
    """
    names = [name for name in scores.columns if name not in ("layer", "head")]
    rows = []
    for first, second in pairs if pairs is not None else combinations(names, 2):
        both = scores[["layer", first, second]].dropna()
        layer = both["layer"].to_numpy()
        x, y = both[first].to_numpy(float), both[second].to_numpy(float)
        rng = generator(seed, first, second)
        rows.append(
            {
                "first": first,
                "second": second,
                "heads": len(both),
                **_correlation(x, y, layer, n_resamples, rng),
                **overlap(x, y, min(top, len(both))),
            }
        )
    return pd.DataFrame(rows)


def _correlation(
    x: Float[np.ndarray, " head"],
    y: Float[np.ndarray, " head"],
    layer: Int[np.ndarray, " head"],
    n_resamples: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    draws: dict[str, Any] = {"n_resamples": n_resamples, "rng": rng, "drawn": "by shuffling"}
    everywhere = permuted_correlation(y, x, **draws)
    within_layers = permuted_correlation(y, x, layer, **draws)
    return {
        "spearman": everywhere.r,
        "p": everywhere.p_two_sided(),
        "p_within_layers": within_layers.p_two_sided(),
        "by_layers": within_layers.expected,
        **within_layers.power(),
    }


def overlap(
    x: Float[np.ndarray, " head"], y: Float[np.ndarray, " head"], top: int
) -> dict[str, float]:
    """Heads among the first of both rankings, beside what two random ones share."""
    chosen = [set(np.argsort(-values, kind="stable")[:top].tolist()) for values in (x, y)]
    shared = len(chosen[0] & chosen[1])
    return {
        "overlap": shared,
        "chance": top**2 / len(x),
        "p_overlap": float(stats.hypergeom.sf(shared - 1, len(x), top, top)),
    }
