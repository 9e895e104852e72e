"""First-order estimates, for every head, of what removing it changes: one backward pass per batch.

A head's output is moved a small step toward what would replace it; the slope times the whole way is
the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.models.attention import AttentionLayer, writes_to_the_stream
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import logits_at
from tda_bias.models.scoring import TreePass
from tda_bias.scores.likelihood import TripleReadings

# Weight of each part of a text in the log-odds: stereotype, anti-stereotype, unrelated, context.
_SIGN = np.array([1.0, -1.0, 0.0, 0.0])


@dataclass(frozen=True)
class FirstOrder:
    """First-order estimates for every head; NaN for layers without attention.

    Attributes:
        effect: Change of the mean log-odds on removal, nats (attribution patching).
        beta: Change of the mean beta, the log-odds of triples minus that of their twins, over
            triples that have twins; NaN where none has.
        importance: Mean size of the change in the loss of all texts if the head's output were
            gated off, per item (Michel et al. 2019).
        direct: The part of ``effect`` that goes straight to the output, past all later layers, to
            first order (the direct effect in the sense of Vig et al. 2020). NaN where heads do not
            write to the residual stream as they are: behind a normalisation, or in an encoder that
            a decoder reads.
    """

    effect: Float[np.ndarray, "layer head"]
    beta: Float[np.ndarray, "layer head"]
    importance: Float[np.ndarray, "layer head"]
    direct: Float[np.ndarray, "layer head"]


def first_order(
    model: LanguageModel,
    layers: Sequence[AttentionLayer],
    readings: TripleReadings,
    rows: Iterable[Float[np.ndarray, "3 row layer head"]],
) -> FirstOrder:
    """Estimates for every head.

    Args:
        model: The model.
        layers: Its layers with attention.
        readings: What is read.
        rows: The ``slopes`` of each of its passes.
    """
    n_texts = len(readings.part)
    total = np.zeros((3, n_texts, len(layers), layers[0].n_heads))
    for make, of_pass in zip(readings.passes, rows, strict=True):
        for place, tree in enumerate(make().tree):
            total[:, tree] += of_pass[:, place]
    triples, twins = total[:, : readings.n_triples], total[0, readings.n_triples :]
    effect, loss, direct = triples
    if not writes_to_the_stream(model, list(layers)):
        direct = np.full_like(direct, np.nan)
    return FirstOrder(
        effect=_by_number(effect.mean(0), layers),
        beta=_by_number(_beta(effect, twins, readings.twin_of), layers),
        importance=_by_number(np.abs(loss).mean(0), layers),
        direct=_by_number(direct.mean(0), layers),
    )


def _beta(
    effect: Float[np.ndarray, "triple layer head"],
    twins: Float[np.ndarray, "twin layer head"],
    twin_of: Int[np.ndarray, " twin"],
) -> Float[np.ndarray, "layer head"]:
    """Effect on triples minus the mean effect on their twins, over triples with twins."""
    number = np.bincount(twin_of, minlength=len(effect))
    if not number.any():
        return np.full(effect.shape[1:], np.nan)
    weight = np.where(number > 0, 1.0, 0.0)
    total = np.tensordot(weight, effect, 1) - np.tensordot(1 / number[twin_of], twins, 1)
    return np.asarray(total / weight.sum())


def _by_number(
    values: Float[np.ndarray, "position head"], layers: Sequence[AttentionLayer]
) -> Float[np.ndarray, "layer head"]:
    table = np.full((layers[-1].number + 1, values.shape[1]), np.nan)
    table[[layer.number for layer in layers]] = values
    return table


def slopes(
    model: LanguageModel,
    layers: Sequence[AttentionLayer],
    readings: TripleReadings,
    replacement: Float[Tensor, "layer head d"] | None,
    tree_pass: TreePass,
) -> Float[np.ndarray, "3 row layer head"]:
    """First-order effects on the log-odds and the loss of one pass, and the former's direct part.

    Args:
        model: The model.
        layers: Its layers with attention.
        readings: What is read.
        replacement: What replaces a head's output; None for nothing.
        tree_pass: The pass.
    """
    part = np.concatenate(
        [
            readings.part[text][which]
            for text, which in zip(tree_pass.tree, tree_pass.readings, strict=True)
        ]
    )
    with torch.enable_grad(), only_activations(model.hf_model), _watched(layers) as seen:
        logits = logits_at(model.hf_model, tree_pass.inputs, tree_pass.places, gradients=True)
        device = logits.device
        values = torch.log_softmax(logits, -1)[
            torch.from_numpy(tree_pass.place).to(device),
            torch.from_numpy(tree_pass.token).to(device),
        ]
    sign = torch.from_numpy(_SIGN[part]).to(values)
    *odds, final = torch.autograd.grad(
        (sign * values).sum(), [*seen.heads, seen.last], retain_graph=True
    )
    loss = torch.autograd.grad(-values.sum(), seen.heads)
    estimates = torch.zeros(
        3, len(tree_pass.tree), len(layers), layers[0].n_heads, dtype=torch.float64
    )
    for index, layer in enumerate(layers):
        z, slope = (layer.by_head(x).detach() for x in (seen.heads[index], odds[index]))
        new = torch.zeros((), device=z.device)
        if replacement is not None:
            new = replacement[index].to(z)
        change = new - z
        estimates[0, :, index] = (change * slope).double().sum((1, 3)).cpu()
        estimates[1, :, index] = (z * layer.by_head(loss[index])).double().sum((1, 3)).cpu()
        written = layer.written(change).detach()
        if written.shape[1] == final.shape[1]:
            estimates[2, :, index] = (written * final[:, :, None]).double().sum((1, 3)).cpu()
    return estimates.numpy()


@dataclass
class _Seen:
    """Activations of a pass: every projection's input, and the last layer's output."""

    heads: list[Tensor]
    last: Tensor


@contextmanager
def _watched(layers: Sequence[AttentionLayer]) -> Iterator[_Seen]:
    """Let gradients begin at the first layer's input, and keep what they are taken of."""
    seen = _Seen([torch.empty(0)] * len(layers), torch.empty(0))

    def begin(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (arguments[0].detach().requires_grad_(), *arguments[1:])

    def end(_: nn.Module, __: Any, output: Any) -> None:
        seen.last = output[0] if isinstance(output, tuple) else output

    with ExitStack() as stack:
        stack.callback(layers[0].block.register_forward_pre_hook(begin).remove)
        stack.callback(layers[-1].block.register_forward_hook(end).remove)
        for index, layer in enumerate(layers):

            def keep(_: nn.Module, arguments: tuple[Tensor, ...], index: int = index) -> None:
                seen.heads[index] = arguments[0]

            stack.callback(layer.projection.register_forward_pre_hook(keep).remove)
        yield seen


@contextmanager
def only_activations(hf_model: Any) -> Iterator[None]:
    """No gradients of parameters, which would cost memory and are not wanted."""
    frozen = [p for p in hf_model.parameters() if p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
