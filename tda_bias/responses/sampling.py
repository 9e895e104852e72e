"""Responses: sampled from the model itself, with a seed of its own for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tda_bias.models.language_model import LanguageModel
from tda_bias.stats.seeds import generator


def response_seed(seed: int, prompt: str, person: str, number: int) -> int:
    """The seed of one response: that of a run, for a prompt, a person and the response's number.

    Examples:
        >>> first, second = (response_seed(0, "letter", "Mary", number) for number in (0, 1))
        >>> first == second
        False
    """
    return int(generator(seed, "respond", prompt, person, str(number)).integers(2**53))


def responses(
    model: LanguageModel,
    rows: Sequence[Sequence[int]],
    *,
    n_tokens: int,
    seeds: Sequence[int] | None,
    batch_size: int = 32,
) -> list[list[int]]:
    """Token ids of a response to every prompt, with the end token where it came.

    They are drawn from the model's own distribution: at temperature 1, from all of the vocabulary,
    without penalties, whatever the model's settings of generation are. A response depends on its
    seed and its prompt, not on the others of its batch (but for rounding).

    Args:
        model: A causal language model.
        rows: Token ids of the prompts, all of one length.
        n_tokens: Tokens of a response at most.
        seeds: Of the responses; the likeliest tokens if None.
        batch_size: Responses per pass.
    """
    ends = end_tokens(model)
    found: list[list[int]] = []
    with _own_distribution(model, ends, n_tokens) as settings:
        for first in range(0, len(rows), batch_size):
            batch = torch.tensor(list(rows[first : first + batch_size]), device=model.device)
            processors = []
            if seeds is not None:
                own = seeds[first : first + batch_size]
                uniform = np.stack([np.random.default_rng(s).random(n_tokens) for s in own])
                processors = [_Drawn(uniform, batch.shape[1])]
            hf_model: Any = model.hf_model
            with torch.inference_mode():
                written = hf_model.generate(
                    input_ids=batch,
                    attention_mask=torch.ones_like(batch),
                    generation_config=settings,
                    logits_processor=processors,
                )
            found += [_ended(row, ends) for row in written[:, batch.shape[1] :].tolist()]
    return found


def end_tokens(model: LanguageModel) -> list[int]:
    """Tokens that end a response: those of the model's settings and the tokenizer's."""
    named = getattr(model.hf_model.generation_config, "eos_token_id", None)
    several = named if isinstance(named, list) else [named]
    return sorted({int(t) for t in (*several, model.tokenizer.eos_token_id) if t is not None})


def _ended(tokens: list[int], ends: Sequence[int]) -> list[int]:
    place = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: place + 1]


@contextmanager
def _own_distribution(model: LanguageModel, ends: list[int], n_tokens: int) -> Iterator[Any]:
    """Settings of generation that change nothing, also not where they leave a value open."""
    from transformers import GenerationConfig

    hf_model: Any = model.hf_model
    before = hf_model.generation_config
    settings = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=n_tokens,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
    )
    hf_model.generation_config = settings
    try:
        yield settings
    finally:
        hf_model.generation_config = before


class _Drawn:
    """Leaves one token of each row: the one that its random number falls on.

    The number is in [0, 1); it falls on the token in whose part of the cumulative distribution it
    lies, which is a draw from that distribution.
    """

    def __init__(self, uniform: Float[np.ndarray, "row step"], n_prompt: int) -> None:
        self._uniform = uniform
        self._n_prompt = n_prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step = input_ids.shape[1] - self._n_prompt
        drawn = torch.from_numpy(self._uniform[:, step]).to(scores.device)
        total = torch.softmax(scores.double(), -1).cumsum(-1)
        token = torch.searchsorted(total, drawn[:, None] * total[:, -1:], right=True)
        token = token.clamp(max=scores.shape[-1] - 1)
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, token, 0.0)
