"""The batched tree against SciPy's and GUDHI's, on real patterns, and how its cost grows.

With the path of StereoSet in TDABIAS_STEREOSET the comparison runs on SmolLM2's patterns of a
sample of the gender texts; the table of growth on random ones.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree

from tda_bias.topology.persistence import (
    _maximum_spanning_tree,
    births_deaths,
    edge_weights,
    ragged_births_deaths,
)

RUNS = 5


def real_patterns(n_triples: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Patterns (text, layers x heads, n, n) of the first texts, and the texts' lengths."""
    from tda_bias.models.load import load_model
    from tda_bias.patterns.capture import PatternBatch, PatternReader
    from tda_bias.patterns.passes import tokenize
    from tda_bias.triples import load_triples

    model = load_model("smollm2-135m", device="cpu")
    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender")[:n_triples]
    tokens = tokenize(model.tokenizer, triples, max_tokens=None)
    kept: list[PatternBatch] = []
    PatternReader(model, batch_size=3 * n_triples).read(tokens, kept.append, shared=False)
    n = max(batch.patterns.shape[-1] for batch in kept)
    widened = [
        torch.nn.functional.pad(b.patterns.flatten(1, 2), (0, n - b.patterns.shape[-1]) * 2)
        for b in kept
    ]
    return torch.cat(widened).float(), torch.cat([batch.length for batch in kept])


def random_patterns(count: int, n: int) -> torch.Tensor:
    """Random causal attention."""
    scores = torch.randn(count, n, n, generator=torch.Generator().manual_seed(0))
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def microseconds(work: Callable[[], object], count: int) -> float:
    """Median time of a call, per matrix, after one call that does not count."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / count * 1e6


def scipy_trees(weights: list[np.ndarray]) -> None:
    """The spanning trees alone; the deaths would come on top."""
    for one in weights:
        minimum_spanning_tree(one)


def on_real_patterns() -> None:
    """Births and deaths of all heads of some texts, by the three routes."""
    patterns, lengths = real_patterns()
    order = lengths.argsort()
    groups = torch.split(order, 8)  # as the capture hands them on: texts of similar length

    def of(chosen: torch.Tensor) -> torch.Tensor:
        n = int(lengths[chosen].max())
        return edge_weights(patterns[chosen, :, :n, :n], attention="causal", combine="max")

    def ours() -> None:
        for chosen in groups:
            ragged_births_deaths(of(chosen), lengths[chosen])

    def tree_alone() -> None:
        for chosen in groups:
            weights = of(chosen).flatten(0, 1)
            each = lengths[chosen].repeat_interleave(patterns.shape[1])
            _maximum_spanning_tree(weights, each)

    sample = [
        patterns[text, head, : lengths[text], : lengths[text]]
        for text in range(len(lengths))
        for head in range(0, patterns.shape[1], 30)
    ]
    lower = [np.tril(one.double().numpy(), -1) for one in sample]
    weights = [-(one + one.T) for one in lower]
    matrices = patterns.shape[0] * patterns.shape[1]
    batched, alone = microseconds(ours, matrices), microseconds(tree_alone, matrices)
    tree = microseconds(lambda: scipy_trees(weights), len(weights))
    few = sample[::5]
    gudhi = microseconds(lambda: [births_deaths(one, backend="gudhi") for one in few], len(few))
    print(f"SmolLM2-135M, {len(lengths)} gender texts of {lengths.float().mean():.1f} tokens")
    print("on average, all heads; median of 5 runs, microseconds per matrix:\n")
    print("| what | µs | batched births and deaths are faster by | batched tree alone by |")
    print("|---|---|---|---|")
    print(f"| batched: births and deaths | {batched:.2f} | | |")
    print(f"| batched: tree alone (births, unsorted) | {alone:.2f} | | |")
    ratios = f"{tree / batched:.0f} | {tree / alone:.0f}"
    print(f"| SciPy `minimum_spanning_tree`: births alone | {tree:.0f} | {ratios} |")
    print(f"| GUDHI: births and deaths | {gudhi:.0f} | {gudhi / batched:.0f} | |")
    print()


def growth() -> None:
    """Cost by number of tokens."""
    print(
        "| tokens | batched, µs | SciPy tree alone, µs | GUDHI, µs | SciPy / ours | GUDHI / ours |"
    )
    print("|---|---|---|---|---|---|")
    for n in (16, 32, 64, 128, 256, 512):
        batch = random_patterns(max(64, 1_000_000 // n**2), n)
        ours = microseconds(lambda batch=batch: births_deaths(batch), len(batch))
        few = batch[: max(2, 20_000 // n**2)]
        lower = [np.tril(one.double().numpy(), -1) for one in few]
        weights = [-(one + one.T) for one in lower]
        tree = microseconds(lambda weights=weights: scipy_trees(weights), len(weights))
        line = f"| {n} | {ours:.1f} | {tree:.0f} |"
        if n <= 128:
            few = few[:20]
            gudhi = microseconds(lambda few=few: births_deaths(few, backend="gudhi"), len(few))
            print(f"{line} {gudhi:.0f} | {tree / ours:.0f} | {gudhi / ours:.0f} |")
        else:
            print(f"{line} not run | {tree / ours:.0f} | |")


def main() -> None:
    """Print both tables."""
    if os.environ.get("TDABIAS_STEREOSET"):
        on_real_patterns()
    else:
        print("real patterns skipped: set TDABIAS_STEREOSET to StereoSet as JSON Lines\n")
    growth()


if __name__ == "__main__":
    main()
