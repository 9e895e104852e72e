"""Attention patterns from a Hugging Face model's own eager attention, layer by layer.

For architectures that TransformerLens has no adapter for. Where in a model its patterns appear is
found out by running it once with ``output_attentions``: they are tensors that some module of the
model gives. Hooks on these modules see them one layer at a time, and end the pass at the last.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.models.placement import device_of_inputs
from tda_bias.types import Attention, InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Size of the text that patterns are looked for with: neither is a usual number of heads.
_TEXTS, _TOKENS = 3, 13
# How a module may lay out (text, head, query, key): as it is, or XLNet's way.
_LAYOUTS: dict[str, tuple[int, int, int, int]] = {
    "text head query key": (0, 1, 2, 3),
    "query key text head": (2, 3, 0, 1),
}

Take = Callable[[Float[Tensor, "row head query key"], int], None]


class _EnoughError(Exception):
    """No later layer is needed."""


@dataclass(frozen=True)
class _Place:
    """The place where a layer's pattern appears.

    Attributes:
        module: Name of the module whose output holds it.
        call: Its which call in a pass: layers may share a module.
        index: Where in the output.
        layout: How it is laid out.
    """

    module: str
    call: int
    index: int
    layout: tuple[int, int, int, int]


@dataclass(frozen=True)
class EagerAttention:
    """The places of a model's patterns.

    Attributes:
        body: What is run: the model, or an encoder-decoder's encoder.
        places: For each layer with attention its place, in order.
        attention: The direction of attention.
        n_heads: Heads of a layer.
        asked: Whether modules give patterns only where the model is asked for all of them.
    """

    body: nn.Module
    places: Mapping[int, _Place]
    attention: Attention
    n_heads: int
    asked: bool

    def run(self, ids: Int[Tensor, "row token"], take: Take, **inputs: Any) -> None:
        """Run texts and hand over every layer's pattern, in order; the pass ends at the last.

        Args:
            ids: Token ids.
            take: Called with the patterns of a layer and its number.
            inputs: What else the model takes.
        """
        layers = {(place.module, place.call): layer for layer, place in self.places.items()}
        calls: Counter[str] = Counter()
        last = max(self.places)

        def on_output(name: str, output: Any) -> None:
            layer = layers.get((name, calls[name]))
            calls[name] += 1
            if layer is None:
                return
            place = self.places[layer]
            take(output[place.index].permute(place.layout), layer)
            if layer == last:
                raise _EnoughError

        try:
            with _watched(self.body, {name for name, _ in layers}, on_output):
                self.body(input_ids=ids, **_accepted(self.body, asked=self.asked), **inputs)
        except _EnoughError:
            pass


def body_of(hf_model: PreTrainedModel) -> nn.Module:
    """The part that is run: the model, or an encoder-decoder's encoder."""
    body: nn.Module = hf_model.get_encoder() if hf_model.config.is_encoder_decoder else hf_model
    return body


def eager_attention(hf_model: PreTrainedModel, *, name: str) -> EagerAttention:
    """Find the places of a model's patterns.

    Args:
        hf_model: The model, in evaluation mode, with eager attention.
        name: What it is called in messages.

    Raises:
        InputError: if it does not return attention patterns, or no module gives them.
    """
    body, ids = body_of(hf_model), probe_ids(hf_model)
    returned, seen = _probe(body, ids, asked=True, name=name)
    patterns = {layer: weights for layer, weights in enumerate(returned) if weights is not None}
    refused = f"`model` {name} is a {type(hf_model).__name__}"
    if not patterns:
        raise InputError(f"{refused}, which returns no attention patterns (output_attentions)")
    shapes = {tuple(pattern.shape) for pattern in patterns.values()}
    n_heads = next(iter(shapes))[1]
    if shapes != {(_TEXTS, n_heads, _TOKENS, _TOKENS)}:
        raise InputError(
            f"{refused}, whose attention patterns are not one matrix of all tokens for each of as "
            f"many heads in every layer (shapes {sorted(shapes)})"
        )
    places: dict[int, _Place] = {}
    for layer, pattern in patterns.items():
        free = ((place, value) for place, value in seen if place not in places.values())
        place = next((place for place, value in free if _same(place, value, pattern)), None)
        if place is None:
            raise InputError(f"{refused}; no part of it gives the patterns of its layer {layer}")
        places[layer] = place
    places = _numbered_as_named(places)
    later = max(float(pattern.triu(1).abs().max()) for pattern in patterns.values())
    unasked = {place for place, _ in _probe(body, ids, asked=False, name=name)[1]}
    return EagerAttention(
        body=body,
        places=places,
        attention="bidirectional" if later > 0 else "causal",
        n_heads=n_heads,
        asked=not set(places.values()) <= unasked,
    )


def probe_ids(hf_model: PreTrainedModel) -> Int[Tensor, "row token"]:
    """Make up token ids that a model is tried with."""
    rows = int(hf_model.get_input_embeddings().num_embeddings)
    ids = (torch.arange(_TEXTS * _TOKENS).reshape(_TEXTS, _TOKENS) + 5) % rows
    return ids.to(device_of_inputs(hf_model))


def returned_patterns(hf_model: PreTrainedModel) -> list[Tensor]:
    """Run a model on ``probe_ids`` and list the patterns it returns, layer by layer.

    Returns:
        ``(row, head, query, key)`` of every layer that has one; nothing where the model returns
        none or cannot be run so.
    """
    body, ids = body_of(hf_model), probe_ids(hf_model)
    try:
        with torch.inference_mode():
            output = body(
                input_ids=ids, attention_mask=torch.ones_like(ids), **_accepted(body, asked=True)
            )
    except Exception:  # what cannot be run this way cannot be compared with anything
        return []
    returned = getattr(output, "attentions", None) or ()
    return [pattern for pattern in returned if isinstance(pattern, Tensor)]


def _numbered_as_named(places: dict[int, _Place]) -> dict[int, _Place]:
    """Number layers as their modules' names do: hybrids return patterns of some layers alone."""
    numbers = [re.search(r"\.(\d+)\b", f".{place.module}") for place in places.values()]
    named = [int(number[1]) for number in numbers if number is not None]
    if len(named) < len(places) or any(a >= b for a, b in pairwise(named)):
        return places
    return dict(zip(named, places.values(), strict=True))


def _probe(
    body: nn.Module, ids: Int[Tensor, "row token"], *, asked: bool, name: str
) -> tuple[tuple[Tensor | None, ...], list[tuple[_Place, Tensor]]]:
    """The patterns that a model returns, and everything of such a shape that its modules give."""
    seen: list[tuple[_Place, Tensor]] = []
    calls: Counter[str] = Counter()

    def on_output(module: str, output: Any) -> None:
        values = output if isinstance(output, tuple | list) else ()
        for index, value in enumerate(values):
            for layout in _LAYOUTS.values():
                if isinstance(value, Tensor) and value.ndim == 4:
                    shape = value.permute(layout).shape
                    if (shape[0], *shape[2:]) == (_TEXTS, _TOKENS, _TOKENS):
                        seen.append((_Place(module, calls[module], index, layout), value))
        calls[module] += 1

    every = {module for module, _ in body.named_modules() if module}
    try:
        with torch.inference_mode(), _watched(body, every, on_output):
            mask = torch.ones_like(ids)
            output = body(input_ids=ids, attention_mask=mask, **_accepted(body, asked=asked))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:150]
        raise InputError(
            f"`model` {name} ({type(body).__name__}) cannot be run for its attention patterns "
            f"({reason})"
        ) from error
    return tuple(getattr(output, "attentions", None) or ()), seen


def _same(place: _Place, value: Tensor, pattern: Tensor) -> bool:
    turned = value.permute(place.layout)
    return turned.shape == pattern.shape and bool(torch.equal(turned, pattern))


def _accepted(body: nn.Module, *, asked: bool) -> dict[str, Any]:
    """Of what makes a pass cheap, what a model takes."""
    parameters = inspect.signature(body.forward).parameters
    given: dict[str, Any] = {"use_cache": False} if "use_cache" in parameters else {}
    if asked:
        given["output_attentions"] = True
    return given


@contextmanager
def _watched(
    body: nn.Module, names: set[str], on_output: Callable[[str, Any], None]
) -> Iterator[None]:
    """Call ``on_output`` with the name and output of each of some modules."""

    def hook_of(name: str) -> Callable[..., None]:
        return lambda module, arguments, output: on_output(name, output)

    handles = [
        module.register_forward_hook(hook_of(name))
        for name, module in body.named_modules()
        if name in names
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
