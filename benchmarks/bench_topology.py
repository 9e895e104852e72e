"""Births and deaths against SciPy's spanning tree and GUDHI, by number of tokens.

Everything runs in turn, round by round; medians count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree

from tda_bias.topology.persistence import births_deaths, edge_weights, padded_births_deaths
from tests.support.gudhi_sets import gudhi_sets

ROUNDS = 5
Work = Callable[[], object]


def random_patterns(count: int, n: int) -> torch.Tensor:
    """Random causal attention."""
    scores = torch.randn(count, n, n, generator=torch.Generator().manual_seed(0))
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def microseconds(works: Mapping[str, tuple[Work, int]]) -> dict[str, float]:
    """Median time per matrix of what is called, for so many matrices; after a round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS + 1):
        for name, (work, _count) in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {
        name: statistics.median(times[name][1:]) / count * 1e6
        for name, (_work, count) in works.items()
    }


def by_torch(patterns: torch.Tensor) -> object:
    """Births and deaths as accelerators compute them."""
    weights = edge_weights(patterns.unsqueeze(1), "causal")
    return padded_births_deaths(weights, torch.full((len(patterns),), patterns.shape[-1]))


def scipy_trees(patterns: torch.Tensor) -> tuple[Work, int]:
    """The spanning trees alone, of symmetric matrices that lie ready; deaths would come on top."""
    lower = [np.tril(one.double().numpy(), -1) for one in patterns]
    weights = [-(one + one.T) for one in lower]
    return lambda: [minimum_spanning_tree(one) for one in weights], len(weights)


def main() -> None:
    """Print the cost by number of tokens."""
    print("Random causal patterns; microseconds per matrix:\n")
    print(
        "| tokens | compiled | torch | SciPy: tree alone | GUDHI | SciPy / compiled "
        "| GUDHI / compiled |"
    )
    print("|---|---|---|---|---|---|---|")
    for n in (18, 32, 64, 128, 256, 512):
        batch = random_patterns(max(32, 1_000_000 // n**2), n)
        works = {
            "compiled": (partial(births_deaths, batch), len(batch)),
            "torch": (partial(by_torch, batch), len(batch)),
            "scipy": scipy_trees(batch[: max(4, 20_000 // n**2)]),
        }
        if n <= 128:
            few = batch[: max(2, 5_000 // n**2)]
            works["gudhi"] = (partial(gudhi_sets, few.numpy()), len(few))
        spent = microseconds(works)
        gudhi = f"{spent['gudhi']:.0f}" if n <= 128 else "not run"
        ratio = f"{spent['gudhi'] / spent['compiled']:.0f}" if n <= 128 else ""
        print(
            f"| {n} | {spent['compiled']:.2f} | {spent['torch']:.1f} | {spent['scipy']:.0f} "
            f"| {gudhi} | {spent['scipy'] / spent['compiled']:.0f} | {ratio} |"
        )


if __name__ == "__main__":
    main()
