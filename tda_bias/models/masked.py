"""Log-probabilities of tokens in a gap of a masked model's text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.models.batching import padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined, token_log_probs


def masked_log_probs(
    model: LanguageModel,
    rows: Sequence[Sequence[int]],
    places: Sequence[int],
    tokens: Sequence[Int[np.ndarray, " reading"]],
) -> list[Float[np.ndarray, " reading"]]:
    """Log-probabilities of tokens at one place of each row, in one forward pass.

    Args:
        model: A masked language model.
        rows: Token ids, masks included.
        places: Where each row is read.
        tokens: What is read there.

    Raises:
        InputError: if a row is longer than the model's context, or a log-probability is NaN.
    """
    model.check_length(max(map(len, rows)))
    ids, mask = padded(rows)
    where = torch.tensor([row * ids.shape[1] + place for row, place in enumerate(places)])
    inputs = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}
    sizes = [len(of_row) for of_row in tokens]
    row = np.repeat(np.arange(len(sizes)), sizes)
    values = token_log_probs(
        model.hf_model, inputs, where.to(model.device), row, np.concatenate(tokens)
    )
    refuse_undefined(model, [values])
    return np.split(values, np.cumsum(sizes)[:-1])
