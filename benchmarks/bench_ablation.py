"""Removing one head: starting at its layer against running the whole pass again.

SmolLM2-135M, the gender triples of one group; each row removes one head. A pass has 30 layers, of
which L - l are run, and the output over the vocabulary, which is run either way.
"""

from __future__ import annotations

import os
import statistics
import time

from tda_bias.behaviour.ablation import Ablator
from tda_bias.models.load import load_model
from tda_bias.triples import load_triples
from tda_bias.types import HeadId

RUNS = 3
LAYERS = (0, 7, 15, 22, 29)


def main() -> None:
    model = load_model("smollm2-135m", device="cpu")
    source = os.environ["TDABIAS_STEREOSET"]
    triples = load_triples(source, category="gender", groups=["sister"])
    ablator = Ablator(model, triples)
    one = next(iter(ablator._reader.passes(ablator._trees, packed=ablator.packed)))
    with ablator._residuals() as residual:
        ablator._reader.run(one)
    print("| layer of the head | whole pass, s | from its layer, s | ratio | layers left |")
    print("|---|---|---|---|---|")
    for layer in LAYERS:
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(RUNS):
            for restart in (True, False):
                start = time.perf_counter()
                with ablator.removed([HeadId(layer, 0)]):
                    if restart:
                        with ablator._from(layer, residual[layer]):
                            ablator._reader.run(one)
                    else:
                        ablator._reader.run(one)
                times[restart].append(time.perf_counter() - start)
        fast, slow = (statistics.median(times[restart]) for restart in (True, False))
        left = (ablator.n_layers - layer) / ablator.n_layers
        print(f"| {layer} | {slow:.2f} | {fast:.2f} | {fast / slow:.2f} | {left:.2f} |")


if __name__ == "__main__":
    main()
