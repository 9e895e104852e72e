"""Removing many sets of heads in one go against the whole model run anew for each.

SmolLM2-135M, ten gender triples; single heads of several layers, a set of ten heads and random sets
of the same layers, as ``tdabias ablate`` removes them.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

from tda_bias.behaviour.ablation import Ablator
from tda_bias.behaviour.random_sets import random_sets
from tda_bias.behaviour.removal_plan import layers_run, removal_plan
from tda_bias.models.load import load_language_model
from tda_bias.triples import load_triples
from tda_bias.types import HeadId

RUNS = 3
CHOSEN = [HeadId(layer, layer % 9) for layer in (5, 8, 11, 15, 17, 18, 20, 22, 24, 28)]


def main() -> None:
    model = load_language_model("smollm2-135m", device="cpu")
    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender", limit=1)
    ablator = Ablator(model, triples)
    drawn = random_sets(CHOSEN, 9, 5, rng=np.random.default_rng(0))
    sets = [(), *((head,) for head in CHOSEN), tuple(CHOSEN), *drawn]
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(RUNS):
        for share in (True, False):
            start = time.perf_counter()
            ablator.without(sets, share=share)
            times[share].append(time.perf_counter() - start)
    fast, slow = (statistics.median(times[share]) for share in (True, False))
    layers = layers_run(removal_plan(sets), ablator.n_layers) / (len(sets) * ablator.n_layers)
    print("| networks | each anew, s | in one go, s | ratio | layers run |")
    print("|---|---|---|---|---|")
    print(f"| {len(sets)} | {slow:.1f} | {fast:.1f} | {fast / slow:.2f} | {layers:.2f} |")


if __name__ == "__main__":
    main()
