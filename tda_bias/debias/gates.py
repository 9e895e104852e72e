"""One number per head: how much of what it writes gets through, learned, then folded away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.attention import AttentionLayer, attention_layers
from tda_bias.models.hooks import heads_changed
from tda_bias.models.load import LanguageModel
from tda_bias.types import HeadId, InputError


class HeadGates(nn.Module):
    """Scalars on the outputs of heads, 1 in the beginning.

    The model itself is not changed until ``fold`` multiplies each head's columns of the output
    projection by its gate, which is the same function, exactly, also under grouped queries.

    Args:
        model: A model without hooks.
        heads: The heads with a gate; all of them if None.

    Raises:
        InputError: if a head does not exist, or the attention is laid out in a way not known.
    """

    def __init__(self, model: LanguageModel, heads: Sequence[HeadId] | None = None) -> None:
        super().__init__()
        self._layers = {layer.number: layer for layer in attention_layers(model)}
        every = [HeadId(n, h) for n, layer in self._layers.items() for h in range(layer.n_heads)]
        chosen = every if heads is None else sorted(set(heads))
        if not chosen or not set(chosen) <= set(every):
            unknown = next((str(head) for head in chosen if head not in every), "none")
            raise InputError(f"`heads` must be heads of {model.name}; got {unknown}")
        self.heads = tuple(chosen)
        self.values = nn.Parameter(
            torch.ones(len(chosen), dtype=torch.float32, device=model.device)
        )

    @contextmanager
    def attached(self) -> Iterator[None]:
        """The model with its gates, for whatever runs inside; gradients reach the gates."""
        places: dict[int, list[int]] = {}
        for place, head in enumerate(self.heads):
            places.setdefault(head.layer, []).append(place)

        def gated(z: Tensor, layer: AttentionLayer) -> Tensor:
            of_layer = places[layer.number]
            heads = torch.tensor([self.heads[place].head for place in of_layer], device=z.device)
            gain = torch.ones(layer.n_heads, dtype=self.values.dtype, device=z.device)
            gain = gain.index_put((heads,), self.values[of_layer].to(z.device))
            return (z * gain[:, None]).to(z.dtype)  # the gate is not rounded

        with heads_changed([self._layers[number] for number in sorted(places)], gated):
            yield

    def penalty(self) -> Float[Tensor, ""]:
        """Sum of the distances from 1: what an L1 pull toward the unchanged model is made of."""
        return (self.values - 1).abs().sum()

    def by_head(self) -> dict[HeadId, float]:
        """The gate of each head."""
        return dict(zip(self.heads, self.values.detach().tolist(), strict=True))

    @torch.no_grad()
    def fold(self) -> None:
        """Multiply each head's columns of the output projection by its gate, in place.

        Afterwards the gates are not to be attached again: that would apply them twice.
        """
        for head, gate in self.by_head().items():
            columns = self._layers[head.layer].columns(head.head)
            columns.copy_((columns.double() * gate).to(columns))
