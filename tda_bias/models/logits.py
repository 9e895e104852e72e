"""Logits at the places that are read, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.load import LanguageModel
from tda_bias.types import InputError

_CACHED_ROWS = 16


def logits_at(
    hf_model: Any,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " place"],
    *,
    gradients: bool = False,
) -> Float[Tensor, "place vocabulary"]:
    """Logits at chosen places only; those of all others are never computed.

    Args:
        hf_model: A language model with output embeddings.
        inputs: What goes into it, on the device of ``places``.
        places: Indices into the batch's (row, token) places, row by row.
        gradients: Keep what a backward pass needs.

    Returns:
        In single precision at least.
    """
    with torch.inference_mode(not gradients), _only(hf_model.get_output_embeddings(), places):
        logits: Tensor = hf_model(**inputs).logits[0]
    return logits.float() if logits.dtype.itemsize < 4 else logits


def log_probs(
    logits: Float[Tensor, "row vocabulary"],
    row: Int[np.ndarray, " reading"],
    token: Int[np.ndarray, " reading"],
) -> Float[np.ndarray, " reading"]:
    """Log-probabilities of tokens in the distributions that rows of logits stand for."""
    # A few rows at a time stay in the processor's cache: several times faster on a CPU.
    parts = torch.split(logits, _CACHED_ROWS)
    normaliser = torch.cat([torch.logsumexp(part, dim=-1) for part in parts])
    which = torch.from_numpy(row).to(logits.device)
    chosen = logits[which, torch.from_numpy(token).to(logits.device)]
    return np.asarray((chosen - normaliser[which]).double().cpu().numpy())


def refuse_undefined(model: LanguageModel, values: Iterable[Float[np.ndarray, " reading"]]) -> None:
    """Refuse log-probabilities that are NaN, which broken weights and half precision give.

    Raises:
        InputError: with how many of them are.
    """
    undefined = total = 0
    for own in values:
        undefined += int(np.isnan(own).sum())
        total += own.size
    if undefined:
        advice = "its weights are broken" if model.dtype.itemsize > 2 else "run it in float32"
        raise InputError(
            f"`model` {model.name} gives NaN for {undefined} of {total} log-probabilities: {advice}"
        )


@contextmanager
def _only(head: torch.nn.Module, places: Tensor) -> Iterator[None]:
    """Let the output embeddings see chosen places only, as one row."""

    def choose(_: torch.nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *rest = arguments
        return (hidden.flatten(0, 1)[places].unsqueeze(0), *rest)

    handle = head.register_forward_pre_hook(choose)
    try:
        yield
    finally:
        handle.remove()
