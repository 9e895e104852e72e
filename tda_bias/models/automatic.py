"""Choice of a model's device and of the class it is loaded as."""

from __future__ import annotations

import os
from typing import Any, Literal

import torch

from tda_bias.types import InputError

Head = Literal["language", "as_trained"]


def device_of(device: str) -> torch.device:
    """The device that is asked for; ``auto`` is a GPU, each process's own, or the CPU.

    Raises:
        InputError: if there is none of that name.
    """
    if device == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        # Launchers number the processes of a machine.
        return torch.device(
            "cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
        )
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError):
        place = None
    if place is None or place.type == "meta":  # which holds no values
        raise InputError(
            f"`device` must be auto, cpu, cuda, cuda:N and mps and present; got {device!r}"
        )
    return place


def auto_class(config: Any, head: Head) -> Any:
    """The Auto class with the head the model was trained with."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForQuestionAnswering,
        AutoModelForSeq2SeqLM,
    )

    named = (config.architectures or [""])[0]
    if head == "as_trained" and named.endswith("ForQuestionAnswering"):
        return AutoModelForQuestionAnswering
    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    kind = type(config)
    causal, masked = kind in MODEL_FOR_CAUSAL_LM_MAPPING, kind in MODEL_FOR_MASKED_LM_MAPPING
    if masked and (not causal or not named.endswith(("CausalLM", "LMHeadModel"))):
        return AutoModelForMaskedLM
    return AutoModelForCausalLM
