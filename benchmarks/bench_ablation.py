"""Removing many sets of heads: what is shared, and in half precision.

SmolLM2-135M, twenty gender triples; the whole network, single heads of several layers, ten heads
together and random sets of the same layers, as ``tdabias ablate`` removes them. The ways to do it
are run in turn.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np
import torch

from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.head_weights import random_sets
from tda_bias.models.load import load_language_model
from tda_bias.triples import load_triples
from tda_bias.types import HeadId

RUNS = 3
LAYERS = (5, 8, 11, 15, 17, 18, 20, 22, 24, 28)
CHOSEN = [HeadId(layer, layer % 9) for layer in LAYERS]
OTHERS = [HeadId(layer, (layer + by) % 9) for by in (3, 5) for layer in LAYERS]


def main() -> None:
    model = load_language_model("smollm2-135m", device="cpu")
    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender", limit=2)
    exact, rounded = (
        Ablator(model, triples, precision=precision) for precision in ("float32", "bfloat16")
    )
    threads = torch.get_num_threads()
    drawn = random_sets(CHOSEN, 9, 20, rng=np.random.default_rng(0))
    sets = [(), *((head,) for head in (*CHOSEN, *OTHERS)), tuple(CHOSEN), *drawn]
    ways = {
        "every network anew": (exact, False),
        "what networks share once": (exact, True),
        "the same in bfloat16": (rounded, True),
    }
    for ablator in (exact, rounded):
        ablator.without([()])
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, (ablator, share) in ways.items():
            start = time.perf_counter()
            for own in [sets] if share else [[heads] for heads in sets]:
                ablator.without(own)
            times[name].append(time.perf_counter() - start)
    print(f"{len(sets)} networks, {len(exact.readings.passes)} batches, {threads} threads\n")
    first = statistics.median(times[next(iter(ways))])
    print("| way | seconds (min to max) | ratio |")
    print("|---|---|---|")
    for name, took in times.items():
        median = statistics.median(took)
        between = f"{min(took):.1f} to {max(took):.1f}"
        print(f"| {name} | {median:.1f} ({between}) | {median / first:.2f} |")


if __name__ == "__main__":
    main()
