"""Reading preferences against the bare forward pass over the same prompts, side by side.

SmolLM2-135M, 120 occupations, ten templates. The pronouns alone are one token each, so the bare
pass runs the prompts. The full lists have 23 words of several tokens, whose beginnings have to be
run behind every prompt as well: the bare pass over those sequences runs every one of them, padded
in batches; to keep its time bearable it is measured on a sixth of the occupations and multiplied.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from pvf.reading import prompt_ids, score_preferences, word_tokens
from pvf.words import (
    Template,
    WordClasses,
    load_classes,
    load_templates,
    load_words,
)
from tda_bias.models.batching import batches_of_similar_width
from tda_bias.models.load import LanguageModel, load_language_model

RUNS = 3
PART = 6


@torch.inference_mode()
def bare_forward(model: LanguageModel, rows: list[list[int]], batch_size: int = 32) -> None:
    """Logits of the last place of every row: what reading needs at least."""
    for batch in batches_of_similar_width([len(row) for row in rows], batch_size):
        width = max(len(rows[i]) for i in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        for place, i in enumerate(batch):
            ids[place, : len(rows[i])] = torch.tensor(rows[i])
        lengths = torch.tensor([len(rows[i]) for i in batch])
        mask = (torch.arange(width) < lengths[:, None]).long()
        model.hf_model(input_ids=ids, attention_mask=mask, use_cache=False)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sequences(
    model: LanguageModel, words: list[str], templates: list[Template], classes: WordClasses
) -> tuple[list[list[int]], list[list[int]]]:
    """The prompts, and the distinct prompts with the beginning of a word of several tokens."""
    prompts = prompt_ids(model, words, templates)
    tokens = word_tokens(model.tokenizer, classes).tokens
    beginnings = {own[:-1] for own in tokens if len(own) > 1}
    longest = [b for b in beginnings if not any(o != b and o[: len(b)] == b for o in beginnings)]
    return prompts, [[*prompt, *beginning] for prompt in prompts for beginning in sorted(longest)]


def main() -> None:
    model = load_language_model("smollm2-135m", device="cpu")
    words, templates = load_words("occupations"), load_templates("gender")
    part = list(words.words[::PART])
    times: dict[str, list[float]] = {}
    for _ in range(RUNS):
        for name in ("pronouns", "gender"):
            classes = load_classes(name)
            read = seconds(lambda c=classes: score_preferences(model, words, templates, c))
            prompts, _ = sequences(model, list(words.words), templates, classes)
            bare = seconds(lambda rows=prompts: bare_forward(model, rows))
            times.setdefault(f"{name}, read", []).append(read)
            times.setdefault(f"{name}, prompts alone", []).append(bare)
    _, longer = sequences(model, part, templates, load_classes("gender"))
    whole = seconds(lambda: bare_forward(model, longer)) * len(words.words) / len(part)
    middle = {name: statistics.median(values) for name, values in times.items()}
    print("| what | seconds | ratio |")
    print("|---|---|---|")
    for name, value, base in (
        ("bare forward pass over the 1,200 prompts", "pronouns, prompts alone", None),
        ("he and she, read", "pronouns, read", middle["pronouns, prompts alone"]),
        ("full lists, read", "gender, read", whole),
    ):
        ratio = 1.0 if base is None else middle[value] / base
        print(f"| {name} | {middle[value]:.1f} | {ratio:.2f} |")
    print(f"| bare pass over prompts with the beginnings of longer words | {whole:.0f} | 1.00 |")


if __name__ == "__main__":
    main()
