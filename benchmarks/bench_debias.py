"""A step of training gates on all heads against the bare forward pass over the same texts.

SmolLM2-135M, batches of twelve gender triples with their twins and four neutral passages, as
``tdabias debias`` trains; and the memory of either at its peak, each in a process of its own.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

import torch

from tda_bias.debias.corpus import Retention, neutral_text
from tda_bias.debias.learners import learner, undone
from tda_bias.debias.loss import huber
from tda_bias.debias.texts import TwinTexts
from tda_bias.models.attention import attention_layers
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import HeadId

RUNS = 3
ITEMS, PASSAGES = list(range(12)), list(range(4))


def prepared() -> tuple[LanguageModel, TwinTexts, Retention]:
    model = load_language_model("smollm2-135m", device="cpu")
    triples = load_triples(os.environ["TDABIAS_STEREOSET"], category="gender", limit=2)
    twins = make_twins(triples)
    kept = [triple for triple in triples if twins.of(triple)]
    texts = TwinTexts(model, kept, [twins.of(triple) for triple in kept])
    neutral = neutral_text(model, n_learn=len(PASSAGES), n_watch=1)
    return model, texts, Retention(model, neutral.learn.ids)


def forward(texts: TwinTexts, retention: Retention) -> None:
    with torch.no_grad():
        texts.means(ITEMS).gaps()
        retention.next_token_loss(PASSAGES)


def step(texts: TwinTexts, retention: Retention, optimiser: torch.optim.Optimizer) -> None:
    loss = huber(texts.means(ITEMS).gaps()).mean() + retention.divergence(PASSAGES)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def measure(kind: str) -> None:
    """Print seconds of both, alternating, or the peak memory of one."""
    model, texts, retention = prepared()
    heads = [HeadId(layer.number, h) for layer in attention_layers(model) for h in range(9)]
    times: dict[str, list[float]] = {"forward": [], "step": []}
    with undone(learner("gates", model, heads)) as own:
        optimiser = torch.optim.Adam(own.parameters(), lr=0.03)
        for _ in range(RUNS if kind == "both" else 1):
            for name in times if kind == "both" else [kind]:
                start = time.process_time()
                with own.running():
                    if name == "forward":
                        forward(texts, retention)
                    else:
                        step(texts, retention, optimiser)
                times[name].append(time.process_time() - start)
    if kind == "both":
        print(*(statistics.median(own) for own in times.values()))
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    found = {}
    for kind in ("both", "forward", "step"):
        command = [sys.executable, "-m", "benchmarks.bench_debias", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[kind] = [float(value) for value in done.stdout.split()]
    bare, trained = found["both"]
    (memory,), (more,) = found["forward"], found["step"]
    print("| forward, s | step, s | ratio | forward, GB | step, GB | ratio |")
    print("|---|---|---|---|---|---|")
    print(f"| {bare:.1f} | {trained:.1f} | {trained / bare:.2f} ", end="")
    print(f"| {memory:.2f} | {more:.2f} | {more / memory:.2f} |")


if __name__ == "__main__":
    main()
