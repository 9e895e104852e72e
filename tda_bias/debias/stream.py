"""The residual stream below the lowest trained layer, computed once for every text."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tda_bias.models.attention import attention_layers
from tda_bias.models.load import LanguageModel
from tda_bias.models.token_trees import Grid


class LowerLayers:
    """Runs a causal model from its lowest trained layer on; what comes before is remembered.

    What a layer hands on at a token depends on tokens of its text alone, so texts are kept one by
    one, whatever batch they were in.

    Args:
        model: The model; its layers below ``first`` must not change any more.
        first: Number of the lowest layer that changes; at 0 nothing is remembered.
    """

    def __init__(self, model: LanguageModel, first: int) -> None:
        layers = attention_layers(model)
        self._hf_model: Any = model.hf_model
        self._below = [layer.block for layer in layers if layer.number < first]
        self._texts: dict[Hashable, Tensor] = {}
        self._tuple = False

    @contextmanager
    def skipped(
        self,
        texts: Sequence[Hashable],
        n_tokens: Sequence[int],
        grid: Grid,
        inputs: Mapping[str, Any],
    ) -> Iterator[None]:
        """The model without its lower layers, for one forward pass of the same inputs.

        Args:
            texts: Names of the texts; equal names stand for equal tokens.
            n_tokens: Tokens of each.
            grid: Where they stand.
            inputs: Of the forward pass.
        """
        if not self._below:
            yield
            return
        if any(text not in self._texts for text in texts):
            self._remember(texts, n_tokens, grid, inputs)
        kept = [self._texts[text] for text in texts]
        hidden = kept[0].new_zeros(grid.n_rows, grid.width, kept[0].shape[-1])
        for states, row, column in zip(kept, grid.row, grid.column, strict=True):
            hidden[row, column : column + len(states)] = states
        output = (hidden,) if self._tuple else hidden
        for block in self._below:
            vars(block)["forward"] = lambda *_, **__: output
        try:
            yield
        finally:
            for block in self._below:
                del vars(block)["forward"]

    def _remember(
        self,
        texts: Sequence[Hashable],
        n_tokens: Sequence[int],
        grid: Grid,
        inputs: Mapping[str, Any],
    ) -> None:
        def stop(_: nn.Module, __: Any, output: Any) -> None:
            self._tuple = isinstance(output, tuple)
            hidden = output[0] if self._tuple else output
            for text, n, row, column in zip(texts, n_tokens, grid.row, grid.column, strict=True):
                self._texts[text] = hidden[row, column : column + n].clone()
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
