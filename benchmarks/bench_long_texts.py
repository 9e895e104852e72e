"""Paragraphs: births and deaths beside the forward pass, on the CPU and on a GPU if there is one.

Random tokens: the bare Hugging Face eager forward pass over some texts of one length, and their
births and deaths and Gram matrices, in turn in one process; medians count. On the CPU that is
SmolLM2-135M. On a GPU these are Llama models of 1 and 7 billion random weights in float32 and
bfloat16: speed does not depend on what the weights are. Births and deaths stay on the device up to
the sorted sets; Gram matrices are computed there once all texts have come.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import numpy as np
import torch

from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts
from tda_bias.models.load import LoadedModel, bridge_model, load_model
from tda_bias.topology.gram import GroupSampler

ROUNDS = 3
# Those of Llama 3.2 1B and Llama 2 7B.
_NAMES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size",
)  # fmt: skip
SIZES = {
    "1 billion": (2048, 8192, 16, 32, 8, 128_256),
    "7 billion": (4096, 11_008, 32, 32, 32, 32_000),
}


def random_contexts(n_texts: int, n_tokens: int) -> list[ContextTexts]:
    """Texts of random tokens that share nothing."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 30_000, (n_texts, n_tokens), generator=generator)
    return [ContextTexts((text,), 0) for text in ids.tolist()]


def random_llama(size: tuple[int, ...], dtype: torch.dtype) -> LoadedModel:
    """A hooked model of this size on the GPU; its tokenizer knows one word, none is used."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    settings: dict[str, Any] = dict(zip(_NAMES, size, strict=True))
    config = LlamaConfig(**settings, max_position_embeddings=1024, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            hf_model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    words = Tokenizer(models.WordLevel({"<s>": 0}, unk_token="<s>"))
    with tempfile.TemporaryDirectory() as folder:
        PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<s>").save_pretrained(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return bridge_model(hf_model, tokenizer, name="random")


def now() -> float:
    """The time when everything that a GPU was asked for is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds_of(model: LoadedModel, n_texts: int, n_tokens: int) -> tuple[float, ...]:
    """Bare forward pass, births and deaths, Gram matrices of some texts."""
    contexts = random_contexts(n_texts, n_tokens)
    ids = torch.tensor([context.ids[0] for context in contexts], device=model.device)
    times: list[tuple[float, float, float]] = []
    reader = PatternReader(model, batch_size=n_texts)
    for _ in range(ROUNDS + 1):
        start = now()
        with torch.inference_mode():
            model.hf_model(input_ids=ids, use_cache=False)
        forward = now() - start
        sampler = GroupSampler(
            np.full(n_texts, n_tokens),
            n_layers=len(model.pattern_hooks),
            attention=model.attention,
        )
        topology = 0.0
        for batch in reader.read(contexts):
            start = now()
            sampler.add(batch.patterns, batch.text, batch.length)
            topology += now() - start
        start = now()
        list(sampler.layers())
        times.append((forward, topology, now() - start))
    return tuple(statistics.median(column) for column in zip(*times[1:], strict=True))


def rows(name: str, model: LoadedModel, n_texts: int, lengths: tuple[int, ...]) -> None:
    """Print a model's rows of the table."""
    for n_tokens in lengths:
        forward, topology, gram = seconds_of(model, n_texts, n_tokens)
        print(
            f"| {name} | {n_tokens} | {forward / n_texts:.3g} | {topology / n_texts:.3g} "
            f"| {topology / forward:.2f} | {(topology + gram) / forward:.2f} |"
        )


def main() -> None:
    print("| model | tokens | forward, s per text | births and deaths | ratio | with Gram |")
    print("|---|---|---|---|---|---|")
    smollm2 = load_model("smollm2-135m", device="cpu")
    rows("SmolLM2-135M, CPU", smollm2, 4, (64, 128, 256, 512))
    if torch.cuda.is_available():
        for name, size in SIZES.items():
            for dtype in (torch.float32, torch.bfloat16):
                model = random_llama(size, dtype)
                rows(f"{name}, {dtype}, GPU", model, 32, (32, 128, 512))
                del model
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
