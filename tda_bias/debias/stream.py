"""The residual stream below the lowest trained layer, computed once for every text."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tda_bias.models.attention import attention_layers
from tda_bias.models.load import LanguageModel


class LowerLayers:
    """Runs a causal model from its lowest trained layer on; what comes before is remembered.

    What a layer hands on at a token depends on earlier tokens of its row alone, so rows are kept
    one by one, whatever batch they were in.

    Args:
        model: The model; its layers below ``first`` must not change any more.
        first: Number of the lowest layer that changes; at 0 nothing is remembered.
    """

    def __init__(self, model: LanguageModel, first: int) -> None:
        layers = attention_layers(model)
        self._hf_model: Any = model.hf_model
        self._below = [layer.block for layer in layers if layer.number < first]
        self._rows: dict[Hashable, Tensor] = {}
        self._tuple = False

    @contextmanager
    def skipped(
        self, rows: Sequence[Hashable], n_tokens: Sequence[int], inputs: Mapping[str, Any]
    ) -> Iterator[None]:
        """The model without its lower layers, for one forward pass of the same inputs.

        Args:
            rows: Names of the rows; equal names stand for equal tokens.
            n_tokens: Real tokens of each.
            inputs: Of the forward pass.
        """
        if not self._below:
            yield
            return
        if any(row not in self._rows for row in rows):
            self._remember(rows, n_tokens, inputs)
        width = inputs["input_ids"].shape[1]
        kept = [self._rows[row] for row in rows]
        hidden = kept[0].new_zeros(len(rows), width, kept[0].shape[-1])
        for index, states in enumerate(kept):
            hidden[index, : len(states)] = states
        output = (hidden,) if self._tuple else hidden
        for block in self._below:
            vars(block)["forward"] = lambda *_, **__: output
        try:
            yield
        finally:
            for block in self._below:
                del vars(block)["forward"]

    def _remember(
        self, rows: Sequence[Hashable], n_tokens: Sequence[int], inputs: Mapping[str, Any]
    ) -> None:
        def stop(_: nn.Module, __: Any, output: Any) -> None:
            self._tuple = isinstance(output, tuple)
            hidden = output[0] if self._tuple else output
            for index, (row, n) in enumerate(zip(rows, n_tokens, strict=True)):
                self._rows[row] = hidden[index, :n].clone()
            raise _EnoughError

        handle = self._below[-1].register_forward_hook(stop)
        try:
            with torch.no_grad():
                self._hf_model(**inputs)
        except _EnoughError:
            pass
        finally:
            handle.remove()


class _EnoughError(Exception):
    """Nothing behind this is needed."""
