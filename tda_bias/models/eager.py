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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.models.language_model import device_of_inputs
from tda_bias.types import Attention, InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Number and size of the texts that patterns are looked for with, neither a usual number of heads;
# and the part of one that padding is tried after.
_TEXTS, _TOKENS, _SHORT = 3, 13, 8
# How a module may lay out (text, head, query, key): as it is, or XLNet's way.
_LAYOUTS = ((0, 1, 2, 3), (2, 3, 0, 1))

Take = Callable[[Float[Tensor, "row head query key"], int], None]


class EnoughError(Exception):
    """Ends a forward pass: nothing after this is needed."""


@dataclass(frozen=True)
class _Place:
    """The place of a layer's pattern."""

    module: str  # name of the module whose output holds it
    call: int  # number of that module's call in a pass: layers may share a module
    index: int  # place in that output
    layout: tuple[int, int, int, int]  # order of its axes, one of _LAYOUTS


@dataclass(frozen=True)
class EagerAttention:
    """The places of a model's patterns, by layers with attention, in order."""

    body: nn.Module  # what is run: the model, or an encoder-decoder's encoder
    places: Mapping[int, _Place]
    attention: Attention
    n_heads: int
    # Whether modules give patterns only where the model is asked for all of them.
    asked: bool
    # Whether texts of different lengths can be run together: convolutions (ConvBERT), pooling and
    # neighbours' embeddings (MobileBERT) see what is after a text.
    takes_padding: bool = True

    def run(self, ids: Int[Tensor, "row token"], take: Take, **inputs: Any) -> None:
        """Run texts and hand over every layer's pattern, in order; the pass ends at the last.

        ``take`` is called with the patterns of a layer and its number.
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
                raise EnoughError

        with suppress(EnoughError), _watched(self.body, {name for name, _ in layers}, on_output):
            self.body(input_ids=ids, **_accepted(self.body, asked=self.asked), **inputs)


def allowed_difference(dtype: torch.dtype) -> float:
    """The difference that two ways to read the same patterns may have."""
    return 1e-4 if dtype.itemsize >= 4 else 5e-2


def body_of(hf_model: PreTrainedModel) -> nn.Module:
    """The part that is run: the model, or an encoder-decoder's encoder."""
    body: nn.Module = hf_model.get_encoder() if hf_model.config.is_encoder_decoder else hf_model
    return body


def probe_ids(hf_model: PreTrainedModel) -> Int[Tensor, "row token"]:
    """Make up token ids that a model is tried with."""
    embeddings = hf_model.get_input_embeddings()
    rows = len(getattr(embeddings, "weight", embeddings))  # Perceiver's are a bare parameter
    ids = (torch.arange(_TEXTS * _TOKENS).reshape(_TEXTS, _TOKENS) + 5) % rows
    return ids.to(device_of_inputs(hf_model))


def own_patterns(
    hf_model: PreTrainedModel, *, name: str
) -> tuple[dict[int, Tensor], list[tuple[_Place, Tensor]]]:
    """The patterns of ``probe_ids`` that a model itself returns, and what its modules give.

    Raises:
        InputError: if it returns none, or others than one matrix of all tokens for each head.
    """
    patterns, seen = _probe(body_of(hf_model), probe_ids(hf_model), asked=True, name=name)
    refused = f"`model` {name} is a {type(hf_model).__name__}"
    if not patterns:
        raise InputError(f"{refused}, which returns no attention patterns (output_attentions)")
    shapes = {tuple(pattern.shape) for pattern in patterns.values()}
    if shapes != {(_TEXTS, next(iter(shapes))[1], _TOKENS, _TOKENS)}:
        raise InputError(
            f"{refused}, whose attention is linear, in windows or over pooled tokens: its patterns "
            "are not one matrix of all tokens for each of as many heads in every layer (shapes "
            f"{sorted(shapes)})"
        )
    return patterns, seen


def direction_of(patterns: Mapping[int, Tensor]) -> Attention:
    """The direction of the attention that patterns show."""
    later = max(float(pattern.triu(1).abs().max()) for pattern in patterns.values())
    return "bidirectional" if later > 0 else "causal"


def eager_attention(hf_model: PreTrainedModel, *, name: str) -> EagerAttention:
    """Find the places of a model's patterns: in evaluation mode, with eager attention."""
    body, ids = body_of(hf_model), probe_ids(hf_model)
    patterns, seen = own_patterns(hf_model, name=name)
    places: dict[int, _Place] = {}
    for layer, pattern in patterns.items():
        alike = (
            place
            for place, value in seen
            if place not in places.values() and torch.equal(value.permute(place.layout), pattern)
        )
        place = next(alike, None)
        if place is None:
            raise InputError(
                f"`model` {name} is a {type(hf_model).__name__}; no part of it gives the patterns "
                f"of its layer {layer}"
            )
        places[layer] = place
    # Numbered as modules' names do: hybrids return patterns of some layers alone.
    found = [re.search(r"\.(\d+)\b", f".{place.module}") for place in places.values()]
    named = [int(number[1]) for number in found if number is not None]
    if len(named) == len(places) and all(a < b for a, b in pairwise(named)):
        places = dict(zip(named, places.values(), strict=True))
    unasked = {place for place, _ in _probe(body, ids, asked=False, name=name)[1]}
    eager = EagerAttention(
        body=body,
        places=places,
        attention=direction_of(patterns),
        n_heads=next(iter(patterns.values())).shape[1],
        asked=not set(places.values()) <= unasked,
    )
    return replace(eager, takes_padding=_takes_padding(eager, ids))


def _takes_padding(eager: EagerAttention, ids: Int[Tensor, "row token"]) -> bool:
    """Tell whether padding after a text leaves its patterns as they are."""

    def patterns(n: int) -> list[Tensor]:
        shown: list[Tensor] = []
        mask = torch.ones_like(ids[:1, :n])
        mask[:, _SHORT:] = 0
        with torch.inference_mode():
            eager.run(
                ids[:1, :n],
                lambda pattern, _: shown.append(pattern[..., :_SHORT, :_SHORT].clone()),
                attention_mask=mask,
            )
        return shown

    pairs = zip(patterns(_SHORT), patterns(_TOKENS), strict=True)
    allowed = allowed_difference(next(eager.body.parameters()).dtype)
    return all(float((a - b).abs().max()) <= allowed for a, b in pairs)


def _probe(
    body: nn.Module, ids: Int[Tensor, "row token"], *, asked: bool, name: str
) -> tuple[dict[int, Tensor], list[tuple[_Place, Tensor]]]:
    """The patterns that a model returns, and everything of such a shape that its modules give."""
    seen: list[tuple[_Place, Tensor]] = []
    calls: Counter[str] = Counter()

    def on_output(module: str, output: Any) -> None:
        for index, value in enumerate(output if isinstance(output, tuple | list) else ()):
            for layout in _LAYOUTS:
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
    except Exception as error:  # of a model that is run in a way it is not made for, of any kind
        reason = (str(error) or type(error).__name__).splitlines()[0][:150]
        raise InputError(
            f"`model` {name} ({type(body).__name__}) cannot be run for its attention patterns "
            f"({reason})"
        ) from error
    returned = enumerate(getattr(output, "attentions", None) or ())
    return {layer: value for layer, value in returned if isinstance(value, Tensor)}, seen


def _accepted(body: nn.Module, *, asked: bool) -> dict[str, bool]:
    """Of what makes a pass cheap, what a model takes; and what asks for patterns."""
    parameters = inspect.signature(body.forward).parameters
    given = {"use_cache": False} if "use_cache" in parameters else {}
    return given | ({"output_attentions": True} if asked else {})


@contextmanager
def _watched(
    body: nn.Module, names: set[str], on_output: Callable[[str, Any], None]
) -> Iterator[None]:
    """Call ``on_output`` with the name and output of each of some modules."""
    with ExitStack() as stack:
        for name, module in body.named_modules():
            if name in names:
                tell = partial(lambda name, _module, _given, output: on_output(name, output), name)
                stack.enter_context(module.register_forward_hook(tell))
        yield
