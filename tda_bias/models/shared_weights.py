"""Another model with the same weights in memory: the modules are others, the numbers are not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from tda_bias.models.placement import WRAPPED, is_spread

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tda_bias.models.language_model import LanguageModel

# Matrices of larger models are worth sharing between threads.
_MOST_PARAMETERS = 1_000_000_000
# Each copy's passes take memory of their own.
_MOST_COPIES = 8


def with_the_same_weights(hf_model: PreTrainedModel) -> PreTrainedModel:
    """A model that can run, and be hooked, beside the one it was made of.

    Args:
        hf_model: A model without hooks of anybody else's.
    """
    weights = [*hf_model.parameters(), *hf_model.buffers()]
    return copy.deepcopy(hf_model, {id(tensor): tensor for tensor in weights})


def is_unhooked(hf_model: PreTrainedModel) -> bool:
    """Whether a model is as its class has it, so that a copy of its modules does the same."""
    if is_spread(hf_model):
        return False
    return not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or hasattr(module, WRAPPED)  # by TransformerLens
        for module in hf_model.modules()
    )


def copies_at_a_time(model: LanguageModel, most: int) -> int:
    """How many copies of a model are worth running at a time, with as many threads each.

    A small model on a processor runs short texts faster so than with all threads in each pass.

    Args:
        model: The model.
        most: At most so many.
    """
    small = model.device.type == "cpu" and model.n_parameters <= _MOST_PARAMETERS
    return max(1, min(torch.get_num_threads(), most, _MOST_COPIES)) if small else 1
