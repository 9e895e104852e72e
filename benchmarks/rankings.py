"""The numbers of docs/results/rankings.md: published rankings with themselves and across sources.

Run with ``python -m benchmarks.rankings``, which prints them; a test holds the page to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from tda_bias.crossref.rankings import TOP, agreement, overlap
from tda_bias.paper.rankings import about_rankings, published_rankings
from tda_bias.show.tables import markdown, paper_table
from tda_bias.stats.correlation import permutations_within, standardised_ranks
from tda_bias.stats.resampling import two_sided_share
from tda_bias.stats.seeds import generator

# Standard errors away from 0 at which a two-sided test at .05 has a power of .8.
_FOUND = float(stats.norm.ppf(0.975) + stats.norm.ppf(0.8))


def reliability(model: str, *, n_draws: int = 9999, seed: int = 0) -> pd.DataFrame:
    """Agreement of a model's published rankings with themselves.

    Returns:
        One row per ranking that its source measured twice or with several seeds: ``name ranking
        with heads ranks variance overlap chance``. ``ranks`` is Spearman's correlation with the
        second measurement, or ``rank_reliability`` from the seeds' standard errors. ``variance`` is
        the share of the variance over heads that these errors leave, which a few extreme heads can
        decide. What a seed does to all heads alike counts as error too.
    """
    published = published_rankings(model, filtered=True)
    rows: list[dict[str, Any]] = []
    for first, second in about_rankings()["halves"]:
        if first in published.scores and second in published.scores:
            x, y = (published.scores[name].to_numpy(float) for name in (first, second))
            measured = {
                "heads": len(x),
                "ranks": float(standardised_ranks(x) @ standardised_ranks(y)),
                **overlap(x, y, min(TOP, len(x))),
            }
            for name, other in ((first, second), (second, first)):
                titles = {"ranking": published.titles[name], "with": published.titles[other]}
                rows.append({"name": name, **titles, **measured})
    for name, errors in published.standard_errors.items():
        values = published.scores[name].to_numpy(float)
        left = 1 - float(np.mean(errors**2)) / float(values.var(ddof=1))
        rows.append(
            {
                "name": name,
                "ranking": published.titles[name],
                "with": "three seeds",
                "heads": len(errors),
                "ranks": rank_reliability(values, errors, n_draws, generator(seed, name)),
                "variance": max(0.0, left),
            }
        )
    columns = ["name", "ranking", "with", "heads", "ranks", "variance", "overlap", "chance"]
    return pd.DataFrame(rows, columns=columns)


def rank_reliability(
    values: Float[np.ndarray, " head"],
    errors: Float[np.ndarray, " head"],
    n_draws: int,
    rng: np.random.Generator,
) -> float:
    """Spearman's correlation expected between two measurements with these standard errors.

    Normal errors are added to the values again and again. With f the share of the variance of the
    ranks that they cause, the values themselves, which hold one such error, have the reliability
    1 - f / (1 - f); 0 where that is negative.
    """
    drawn = values + errors * rng.standard_normal((n_draws, len(values)))
    ranks = stats.rankdata(drawn, axis=1)
    f = float(ranks.var(axis=0).mean() / ranks.var(axis=1).mean())
    return max(0.0, 1 - f / (1 - f))


def across_sources(
    scores: pd.DataFrame,
    first: Sequence[str],
    second: Sequence[str],
    reliabilities: Mapping[str, float],
    *,
    n_resamples: int = 9999,
    seed: int = 0,
) -> dict[str, float]:
    """Mean correlation of the rankings of two sources, and what it could have been.

    ``scores`` are as in ``agreement``. Reliabilities are of ranks, by ranking; pairs with an
    unknown one have no ceiling. The heads of one source are permuted, in all its rankings alike.

    Returns:
        ``mean`` over all pairs, its two-sided ``p``, the smallest mean that would have been
        ``found`` four times out of five, ``pairs``; over the pairs with known reliabilities their
        number ``known``, their mean ``known_mean`` and their mean ``ceiling`` sqrt(r1 r2).
    """
    ranks = {name: standardised_ranks(scores[name].to_numpy(float)) for name in [*first, *second]}
    one = np.mean([ranks[name] for name in first], axis=0)
    other = np.mean([ranks[name] for name in second], axis=0)
    mean = float(one @ other)
    rng = generator(seed, *first, *second)
    places = np.zeros(len(one))
    orders = permutations_within(places, n_resamples, rng, drawn="by shuffling")
    null = one[orders] @ other
    known = [(a, b) for a in first for b in second if a in reliabilities and b in reliabilities]
    return {
        "pairs": len(first) * len(second),
        "mean": mean,
        "p": two_sided_share(null, mean),
        "found": _FOUND * float(null.std()),
        "known": len(known),
        "known_mean": float(np.mean([ranks[a] @ ranks[b] for a, b in known])),
        "ceiling": float(np.mean([np.sqrt(reliabilities[a] * reliabilities[b]) for a, b in known])),
    }


def main() -> None:
    """Print the page's tables and the numbers across sources."""
    published = published_rankings("gpt2")
    reliable = reliability("gpt2")
    tables = (reliable, agreement(published.scores))
    print(*(markdown(paper_table(table)) for table in tables), sep="\n\n")
    mediation, fasp = (
        [name for name in published.titles if name.startswith(start)]
        for start in ("vig_", "fasp_bias")
    )
    known = dict(zip(reliable["name"], reliable["ranks"], strict=True))
    print(across_sources(published.scores, mediation, fasp, known))


if __name__ == "__main__":
    main()
