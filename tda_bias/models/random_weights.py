"""The same network without what it has learnt."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from tda_bias.models.load import LanguageModel, LoadedModel, hook_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def untrained(model: LanguageModel, *, seed: int = 0, bound: float = 0.1) -> LanguageModel:
    """The same architecture with every parameter drawn uniformly from [-bound, bound].

    What such a network says of words is set by its tokenizer and the number of words, not by text.
    """
    hf_model = copy.deepcopy(model.hf_model)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    with torch.no_grad():
        for parameter in hf_model.parameters():
            drawn = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(drawn * bound)
    return LanguageModel(hf_model, model.tokenizer, f"{model.name}, random weights")


def initialised(model: LoadedModel, *, seed: int = 0) -> LoadedModel:
    """The same architecture and tokenizer with the random weights that training begins with.

    What the attention of such a network shows is set by the texts' tokens and their places, not by
    anything learnt.

    Args:
        model: A hooked model; it is left as it is.
        seed: Fixes the weights.
    """
    config = copy.deepcopy(model.hf_model.config)

    def made() -> PreTrainedModel:
        torch.manual_seed(seed)
        hf_model = type(model.hf_model)(copy.deepcopy(config))
        return hf_model.to(device=model.device, dtype=model.dtype)

    name = f"{model.name}, random weights"
    with torch.random.fork_rng(devices=[]):
        return hook_model(made(), model.tokenizer, name=name, again=made)
