"""Another model with the same weights in memory: the modules are others, the numbers are not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def with_the_same_weights(hf_model: PreTrainedModel) -> PreTrainedModel:
    """A model that can run, and be hooked, beside the one it was made of.

    Args:
        hf_model: A model without hooks of anybody else's.
    """
    weights = [*hf_model.parameters(), *hf_model.buffers()]
    return copy.deepcopy(hf_model, {id(tensor): tensor for tensor in weights})
