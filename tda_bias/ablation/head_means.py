"""What heads write on average, which takes their place where they are removed by a mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.attention import AttentionLayer
from tda_bias.models.batching import batches_of_similar_width, padded
from tda_bias.models.eager import body_of
from tda_bias.models.load import LanguageModel


def head_means(
    model: LanguageModel,
    layers: Sequence[AttentionLayer],
    texts: Sequence[Sequence[int]],
    *,
    batch_size: int,
) -> Float[Tensor, "layer head d"]:
    """Mean output of every head over all places of texts, before the output projection.

    Args:
        model: The model; of an encoder-decoder, its encoder reads the texts.
        layers: Its layers with attention.
        texts: Token ids.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if a text does not fit.
    """
    model.check_length(max(map(len, texts)))
    body = body_of(model.hf_model)
    total: list[Tensor | None] = [None] * len(layers)
    for batch in batches_of_similar_width([len(ids) for ids in texts], batch_size):
        ids, mask = (part.to(model.device) for part in padded([texts[i] for i in batch]))
        for index, z in enumerate(_head_outputs(body, layers, ids, mask)):
            of_batch = z[mask.bool()].double().sum(0).cpu()
            before = total[index]
            total[index] = of_batch if before is None else before + of_batch
    n = sum(map(len, texts))
    means = torch.stack([summed / n for summed in total if summed is not None])
    return means.view(len(means), layers[0].n_heads, -1)


class _EnoughError(Exception):
    """No later layer is needed."""


def _head_outputs(
    body: nn.Module, layers: Sequence[AttentionLayer], ids: Tensor, mask: Tensor
) -> list[Float[Tensor, "row token width"]]:
    """The input of every layer's output projection."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        seen.append(arguments[0])
        if len(seen) == len(layers):
            raise _EnoughError

    handles = [layer.projection.register_forward_pre_hook(keep) for layer in layers]
    try:
        with torch.inference_mode():
            body(input_ids=ids, attention_mask=mask)
    except _EnoughError:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return seen
