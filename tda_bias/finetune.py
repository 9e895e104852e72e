"""Train some heads and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tda_bias.export import Part, head_slices
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def mask_gradients(
    hf_model: PreTrainedModel,
    heads: Sequence[HeadId],
    *,
    parts: Sequence[Part] = ("q", "k", "v", "o"),
) -> Iterator[list[torch.nn.Parameter]]:
    """Let only some heads learn while the block runs.

    Every other parameter is frozen; within the parameters that hold the heads, gradients outside
    their slices are zero. Weight decay acts without gradients: set it to 0, or it shrinks the other
    heads in the same matrices. Keys and values that heads share (grouped queries) are trained for
    all of them.

    Args:
        hf_model: A plain Hugging Face model.
        heads: The heads to train.
        parts: Which of their projections.

    Yields:
        The parameters to hand to the optimiser.

    Raises:
        InputError: if there is no head, or the model has no such head.
    """
    slices = [one for head in heads for one in head_slices(hf_model, head) if one.part in parts]
    if not slices:
        raise InputError("`heads` and `parts` name nothing to train")
    named = dict(hf_model.named_parameters())
    before = {name: parameter.requires_grad for name, parameter in named.items()}
    masks: dict[str, Tensor] = {}
    for one in slices:
        mask = masks.setdefault(one.parameter, torch.zeros_like(named[one.parameter]))
        one.of(mask).fill_(1.0)
    handles = []
    try:
        for name, parameter in named.items():
            parameter.requires_grad_(name in masks)
            if name in masks:
                mask = masks[name]
                handles.append(parameter.register_hook(lambda gradient, mask=mask: gradient * mask))
        yield [named[name] for name in masks]
    finally:
        for handle in handles:
            handle.remove()
        for name, parameter in named.items():
            parameter.requires_grad_(before[name])
