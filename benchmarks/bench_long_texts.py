"""Paragraphs: births and deaths beside the forward pass.

SmolLM2-135M on random tokens: the bare Hugging Face eager forward pass over some texts of one
length, and their births and deaths and Gram matrices, in turn in one process; medians count.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from benchmarks.load import MACHINES
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts
from tda_bias.models.load import LoadedModel, load_model
from tda_bias.topology.gram import GroupSampler

ROUNDS = 3
N_TEXTS = 4


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
    )


def seconds_of(model: LoadedModel, n_tokens: int) -> tuple[float, float, float]:
    """Bare forward pass, births and deaths, Gram matrices of some texts."""
    contexts = random_contexts(N_TEXTS, 1, n_tokens)
    ids = torch.tensor([context.ids[0] for context in contexts])
    times: list[tuple[float, float, float]] = []
    reader = PatternReader(model, batch_size=N_TEXTS)
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        with torch.inference_mode():
            model.hf_model(input_ids=ids, use_cache=False)
        forward = time.perf_counter() - start
        sampler, topology, gram = sampler_of(model, N_TEXTS, n_tokens), 0.0, 0.0
        for batch in reader.read(contexts):
            start = time.perf_counter()
            sampler.add(batch.patterns, batch.text, batch.length)
            topology += time.perf_counter() - start
        start = time.perf_counter()
        assert all(np.isfinite(deaths[0]).all() for _, deaths in sampler.layers())
        gram += time.perf_counter() - start
        times.append((forward, topology, gram))
    forward, topology, gram = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return forward, topology, gram


def main() -> None:
    """Idle and loaded."""
    model = load_model("smollm2-135m", device="cpu")
    print("| machine | tokens | forward, s per text | births and deaths | ratio | with Gram |")
    print("|---|---|---|---|---|---|")
    for machine, state in MACHINES.items():
        with state():
            for n_tokens in (64, 128, 256, 512):
                forward, topology, gram = seconds_of(model, n_tokens)
                print(
                    f"| {machine} | {n_tokens} | {forward / N_TEXTS:.2f} "
                    f"| {topology / N_TEXTS:.3f} | {topology / forward:.2f} "
                    f"| {(topology + gram) / forward:.2f} |"
                )


if __name__ == "__main__":
    main()
