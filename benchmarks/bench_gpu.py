"""The cost of births and deaths on a GPU: forward pass, topology, and both together.

Llama models of 1 and 7 billion random weights in float32 and bfloat16, random tokens: speed does
not depend on what the weights are. Births and deaths stay on the device up to the sorted sets; Gram
matrices are computed there once all texts have come. Without a GPU this says so in one line;
``--try`` runs a tiny model on the CPU instead, to see that it works.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.bench_long_texts import random_contexts, sampler_of
from tda_bias.heads.patterns import PatternReader
from tda_bias.models.load import LoadedModel, bridge_model

ROUNDS = 3
N_TEXTS = 32
# Those of Llama 3.2 1B and Llama 2 7B.
SIZES: dict[str, dict[str, int]] = {
    "1 billion": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
    },
    "7 billion": {
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32_000,
    },
}
TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50_000,
}


def random_llama(
    settings: dict[str, int], dtype: torch.dtype, device: torch.device, name: str
) -> LoadedModel:
    """A hooked model of this size; its tokenizer knows one word, none is used."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    config = LlamaConfig(**settings, max_position_embeddings=1024, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            hf_model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    words = Tokenizer(models.WordLevel({"<s>": 0}, unk_token="<s>"))
    with tempfile.TemporaryDirectory() as folder:
        PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<s>").save_pretrained(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return bridge_model(hf_model, tokenizer, name=name)


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Median over rounds, after one that does not count."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def row(model: LoadedModel, n_tokens: int, device: torch.device) -> tuple[float, float, float]:
    """Bare forward pass, topology alone, and everything up to the Gram matrices."""
    contexts = random_contexts(N_TEXTS, 1, n_tokens)
    ids = torch.tensor([context.ids[0] for context in contexts], device=device)
    reader = PatternReader(model, batch_size=N_TEXTS)
    # The first batch only: its patterns are kept on the device.
    batch = next(iter(reader.read(contexts)))

    def forward() -> None:
        with torch.inference_mode():
            model.hf_model(input_ids=ids, use_cache=False)

    def topology() -> None:
        sampler = sampler_of(model, len(batch.text), n_tokens)
        sampler.add(batch.patterns, batch.text.argsort(), batch.length)
        list(sampler.layers())

    def everything() -> None:
        sampler = sampler_of(model, N_TEXTS, n_tokens)
        for part in reader.read(contexts):
            sampler.add(part.patterns, part.text, part.length)
        list(sampler.layers())

    share = N_TEXTS / len(batch.text)
    return seconds(forward, device), seconds(topology, device) * share, seconds(everything, device)


def table(sizes: dict[str, dict[str, int]], lengths: tuple[int, ...], device: torch.device) -> None:
    """All models; each is gone before the next comes."""
    print(f"{N_TEXTS} texts, median of {ROUNDS} runs, seconds:\n")
    print("| weights | type | tokens | forward | topology | ratio | everything |")
    print("|---|---|---|---|---|---|---|")
    for name, settings in sizes.items():
        for dtype in (torch.float32, torch.bfloat16):
            model = random_llama(settings, dtype, device, f"random-{name.replace(' ', '-')}")
            for n_tokens in lengths:
                forward, topology, everything = row(model, n_tokens, device)
                print(
                    f"| {name} | {str(dtype).removeprefix('torch.')} | {n_tokens} | {forward:.3f} "
                    f"| {topology:.3f} | {topology / forward:.2f} | {everything:.3f} |"
                )
            del model
            if device.type == "cuda":
                torch.cuda.empty_cache()


def main() -> None:
    """Print the table, or why there is none."""
    if "--try" in sys.argv[1:]:
        table({"tiny": TINY}, (16, 48), torch.device("cpu"))
    elif torch.cuda.is_available():
        print(torch.cuda.get_device_name(), end="; ")
        table(SIZES, (32, 128, 512), torch.device("cuda"))
    else:
        print("skipped: this machine has no CUDA device (`--try` runs a tiny model on the CPU)")


if __name__ == "__main__":
    main()
