"""Asking underspecified questions against the bare forward pass over the same texts, side by side.

SmolLM2-135M, 20 and 20 first names, four templates, 20 occupations, cloze: 256,000 distinct texts.
Both sides are measured on a part of the pairs and multiplied; the bare pass runs every text by
itself, padded in batches. ``--whole`` asks every question once more, without the bare pass.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time

from benchmarks.bench_pvf import bare_forward
from tda_bias.models.load import LanguageModel, load_language_model
from unqover.asking import ContinuationAsker, Instance, ask_questions
from unqover.classes import load_class
from unqover.config import DesignConfig
from unqover.questions import Design, sampled_design

RUNS = 3
PART, BARE_PART = 8, 2


def part_of(design: Design, n_pairs: int) -> Design:
    """Some pairs, spread over all."""
    chosen = slice(None, None, len(design.first) // n_pairs)
    return dataclasses.replace(
        design, first=design.first[chosen][:n_pairs], second=design.second[chosen][:n_pairs]
    )


def texts(model: LanguageModel, design: Design) -> list[list[int]]:
    """Token ids of every distinct text."""
    asker = ContinuationAsker(model, 1, "cloze", {})
    instances = []
    for i, j in zip(design.first, design.second, strict=True):
        both = design.subjects[i], design.subjects[j]
        for template in design.templates:
            instances += [
                Instance(template, own, both, design.attributes) for own in (both, both[::-1])
            ]
    return [
        list(ids) for ids in {tuple(text.ids) for one in instances for text in asker.texts(one)}
    ]


def main() -> None:
    model = load_language_model("smollm2-135m", device="cpu")
    design = sampled_design(load_class("gender"), DesignConfig(subjects=20, attributes=20))
    asked, bare = part_of(design, PART), part_of(design, BARE_PART)
    rows = texts(model, bare)
    # The trial of sharing is made once per run, however long that is.
    ask_questions(model, part_of(design, 1))
    times: dict[str, list[float]] = {"ask": [], "bare": []}
    for _ in range(RUNS):
        start = time.perf_counter()
        ask_questions(model, asked)
        times["ask"].append((time.perf_counter() - start) * len(design.first) / PART)
        start = time.perf_counter()
        bare_forward(model, rows)
        times["bare"].append((time.perf_counter() - start) * len(design.first) / BARE_PART)
    middle = {name: statistics.median(values) for name, values in times.items()}
    n_texts = len(rows) * len(design.first) // BARE_PART
    print("| what | seconds | ratio |")
    print("|---|---|---|")
    ratios = [a / b for a, b in zip(times["ask"], times["bare"], strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"| bare forward pass over {n_texts:,} distinct texts | {middle['bare']:.0f} | 1 |")
    ratio = f"{middle['ask'] / middle['bare']:.2f} ({spread})"
    print(f"| all questions: {design.n_questions:,} | {middle['ask']:.0f} | {ratio} |")
    if "--whole" in sys.argv:
        start = time.perf_counter()
        ask_questions(model, design)
        print(f"All of them in one run: {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
