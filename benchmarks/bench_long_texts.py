"""Paragraphs: births and deaths beside the forward pass, and the memory of a group.

SmolLM2-135M on random tokens. Time: the bare Hugging Face eager forward pass over some texts of one
length, and their births and deaths and Gram matrices, in turn in one process; medians count.
Memory: a group of 25 triples in a process of its own, the highest above what the process held with
the model loaded and run once.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from benchmarks.load import MACHINES
from tda_bias.heads.group_result import N_SPLITS, layer_numbers, random_halves
from tda_bias.heads.group_statistic import GroupLayout
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts
from tda_bias.models.load import LoadedModel, load_model
from tda_bias.progress import Stopwatch
from tda_bias.topology.gram import GroupSampler
from tda_bias.topology.persistence import n_deaths

ROUNDS = 3
N_TRIPLES = 25
STAGES = ("forward", "births and deaths", "Gram", "statistic")


def random_contexts(n_contexts: int, n_texts: int, n_tokens: int) -> list[ContextTexts]:
    """Contexts of random tokens whose texts share nothing."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 40_000, (n_contexts, n_texts, n_tokens), generator=generator)
    return [ContextTexts(tuple(texts), 0) for texts in ids.tolist()]


def sampler_of(model: LoadedModel, n_texts: int, n_tokens: int) -> GroupSampler:
    """For texts of one length."""
    return GroupSampler(
        np.full(n_texts, n_tokens),
        n_layers=len(model.pattern_hooks),
        attention=model.attention,
        combine="max",
        backend="mst",
        distance="steps",
    )


def seconds_of(model: LoadedModel, n_tokens: int, n_texts: int = 4) -> tuple[float, float, float]:
    """Bare forward pass, births and deaths, Gram matrices of some texts."""
    contexts = random_contexts(n_texts, 1, n_tokens)
    ids = torch.tensor([context.ids[0] for context in contexts])
    times: list[tuple[float, float, float]] = []
    reader = PatternReader(model, batch_size=n_texts)
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        with torch.inference_mode():
            model.hf_model(input_ids=ids, use_cache=False)
        forward = time.perf_counter() - start
        sampler, topology, gram = sampler_of(model, n_texts, n_tokens), 0.0, 0.0
        for batch in reader.read(contexts):
            start = time.perf_counter()
            sampler.add(batch.patterns, batch.text, batch.length)
            topology += time.perf_counter() - start
        start = time.perf_counter()
        assert all(np.isfinite(layer.gram[1]).all() for layer in sampler.layers())
        gram += time.perf_counter() - start
        times.append((forward, topology, gram))
    forward, topology, gram = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return forward, topology, gram


def time_table() -> None:
    """Idle and loaded."""
    model = load_model("smollm2-135m", device="cpu")
    print("| machine | tokens | forward, s per text | births and deaths | ratio | with Gram |")
    print("|---|---|---|---|---|---|")
    for machine, state in MACHINES.items():
        with state():
            for n_tokens in (64, 128, 256, 512):
                forward, topology, gram = seconds_of(model, n_tokens)
                print(
                    f"| {machine} | {n_tokens} | {forward / 4:.2f} | {topology / 4:.3f} "
                    f"| {topology / forward:.2f} | {(topology + gram) / forward:.2f} |"
                )
    print()


def resident_bytes() -> int:
    """Memory of this process; Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """The largest resident memory while the block runs, looked at a hundred times a second."""
    peak, stop = [resident_bytes()], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def group_of(n_tokens: int, n_triples: int) -> dict[str, float]:
    """Everything that is computed of a group but its tests: seconds and memory."""
    model = load_model("smollm2-135m", device="cpu")
    reader = PatternReader(model, batch_size=32)
    list(reader.read(random_contexts(1, 1, 8)))
    before = resident_bytes()
    layout = GroupLayout(n_triples, n_triples)
    halves = random_halves(n_triples, N_SPLITS, np.random.default_rng(0))
    sampler = sampler_of(model, layout.n_texts, n_tokens)
    clock = Stopwatch()
    with peak_bytes() as peak:
        contexts = random_contexts(n_triples, 3, n_tokens)
        for batch in clock.each("forward", reader.read(contexts)):
            place = batch.text % 3 * n_triples + batch.text // 3
            with clock.stage("births and deaths"):
                sampler.add(batch.patterns, place, batch.length)
            del batch
        for layers in clock.each("Gram", sampler.layers()):
            with clock.stage("statistic"):
                for gram, sums in zip(layers.gram, layers.sums, strict=True):
                    layer_numbers(gram.numpy(), sums.numpy(), layout, halves)
    return {"peak, MB": (peak[0] - before) / 1e6, "model, MB": before / 1e6, **clock.seconds}


def memory_table() -> None:
    """Each row from a process of its own."""
    print(f"{N_TRIPLES} triples:\n")
    print("| tokens | step functions would be, MB | peak above the model, MB | model, MB |")
    print("|---|---|---|---|")
    for n_tokens in (128, 256, 512):
        command = [sys.executable, "-m", "benchmarks.bench_long_texts", str(n_tokens)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        steps = 4 * 270 * 3 * N_TRIPLES * n_deaths(n_tokens) / 1e6
        print(
            f"| {n_tokens} | {steps:,.0f} | {found['peak, MB']:,.0f} | {found['model, MB']:,.0f} |"
        )
        spent = ", ".join(f"{name} {found[name]:.1f}" for name in STAGES)
        print(f"seconds at {n_tokens} tokens: {spent}", file=sys.stderr)
    print()


def main() -> None:
    """Print both tables."""
    time_table()
    memory_table()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(group_of(int(sys.argv[1]), N_TRIPLES)))
    else:
        main()
