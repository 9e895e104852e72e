"""Heads changed while a model runs: one way, for ablation, edits and gates.

What a head writes is its part of the input of its layer's output projection (``AttentionLayer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.attention import AttentionLayer
from tda_bias.models.batching import batches_of_similar_width, padded
from tda_bias.models.eager import body_of
from tda_bias.models.language_model import LanguageModel
from tda_bias.types import HeadId, InputError

# From what heads write and their layer to what is to stand in its place.
Change = Callable[[Float[Tensor, "row token head d"], AttentionLayer], Tensor]


def require_heads(
    model: LanguageModel, layers: Iterable[AttentionLayer], heads: Iterable[HeadId]
) -> None:
    """Refuse heads that a model does not have.

    Raises:
        InputError: naming the first.
    """
    there = {layer.number: layer.n_heads for layer in layers}
    for head in heads:
        if not 0 <= head.head < there.get(head.layer, 0):
            raise InputError(
                f"{head} does not exist: `model` {model.name} has layers {min(there)} to "
                f"{max(there)} with heads 0 to {max(there.values()) - 1}"
            )


@contextmanager
def heads_changed(layers: Iterable[AttentionLayer], change: Change) -> Iterator[None]:
    """Change what heads write, for whatever runs inside.

    Args:
        layers: Those that are changed.
        change: Gets what the heads of a layer write, ``(row, token, head, d)``, and the layer;
            returns what is written instead and leaves its argument as it is.
    """

    def on_input(layer: AttentionLayer) -> Callable[..., tuple[Any, ...]]:
        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            changed = change(layer.by_head(arguments[0]), layer)
            return (changed.flatten(-2), *arguments[1:])

        return hook

    with ExitStack() as stack:
        for layer in layers:
            handle = layer.projection.register_forward_pre_hook(on_input(layer))
            stack.callback(handle.remove)
        yield


class _EnoughError(Exception):
    """No later layer is needed."""


@contextmanager
def stopped_before(module: nn.Module) -> Iterator[None]:
    """End the forward pass that runs inside before it reaches a module."""

    def stop(*_: Any) -> None:
        raise _EnoughError

    handle = module.register_forward_pre_hook(stop)
    try:
        yield
    except _EnoughError:
        pass
    finally:
        handle.remove()


def head_means(
    model: LanguageModel,
    layers: Sequence[AttentionLayer],
    texts: Sequence[Sequence[int]],
    *,
    batch_size: int,
) -> Float[Tensor, "layer head d"]:
    """Mean of what every head writes, over all places of texts.

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
    total: dict[int, Tensor] = {}
    for batch in batches_of_similar_width([len(ids) for ids in texts], batch_size):
        ids, mask = (part.to(model.device) for part in padded([texts[i] for i in batch]))
        real = mask.bool()

        def add(z: Tensor, layer: AttentionLayer, real: Tensor = real) -> Tensor:
            of_batch = z[real].double().sum(0).cpu()
            before = total.get(layer.number)
            total[layer.number] = of_batch if before is None else before + of_batch
            return z

        # Hooks run in the order in which they were put there: the last layer is added first.
        last = layers[-1].projection
        with heads_changed(layers, add), torch.inference_mode(), stopped_before(last):
            body(input_ids=ids, attention_mask=mask)
    n = sum(map(len, texts))
    return torch.stack([total[layer.number] / n for layer in layers])
