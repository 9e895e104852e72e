"""Logits and log-probabilities at the places that are read, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.models.hooks import in_single_precision, stopped_before
from tda_bias.models.language_model import LanguageModel
from tda_bias.types import InputError

# Logits that are handled at once: few enough for a processor's cache, which is several times faster
# than going through all of them again and again; many enough to keep an accelerator busy.
_TILE = {"cpu": 1 << 20}
_TILE_ELSEWHERE = 1 << 26

# Whether a model's logits are what its output embeddings give, and nothing is done to them.
_LINEAR: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def logits_at(
    hf_model: Any,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " place"],
    *,
    gradients: bool = False,
) -> Float[Tensor, "place vocabulary"]:
    """Logits at chosen places, in the precision in which the model computes.

    Those of other places are not computed, but for models that compute logits in another way than
    by their output embeddings, place by place. ``places`` are indices into the batch's (row, token)
    places, row by row; ``inputs`` are on their device. ``gradients`` keeps what a backward pass
    needs.
    """
    with torch.inference_mode(not gradients), _only(hf_model, inputs, places) as only:
        logits: Tensor = hf_model(**inputs).logits
        return logits[0] if only else logits.flatten(0, 1)[places]


def log_probs_with_gradients(
    hf_model: Any,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " place"],
    place: Int[np.ndarray, " reading"],
    token: Int[np.ndarray, " reading"],
) -> Float[Tensor, " reading"]:
    """The same as ``token_log_probs``, with what a backward pass needs."""
    logits = logits_at(hf_model, inputs, places, gradients=True)
    values, readings, first = [], [], 0
    for part in in_tiles(logits):
        inside = np.flatnonzero((place >= first) & (place < first + len(part)))
        rows, columns = (
            torch.from_numpy(index[inside]).to(logits.device) for index in (place - first, token)
        )
        values.append(torch.log_softmax(part, -1)[rows, columns])
        readings.append(inside)
        first += len(part)
    order = np.argsort(np.concatenate(readings))
    return torch.cat(values)[torch.from_numpy(order).to(logits.device)]


def in_tiles(logits: Float[Tensor, "*row vocabulary"], dim: int = 0) -> Iterator[Tensor]:
    """Logits in parts of a few rows, in single precision at least; ``dim`` is what is cut."""
    tile = _TILE.get(logits.device.type, _TILE_ELSEWHERE)
    of_a_row = logits.numel() // max(1, logits.shape[dim])
    for part in torch.split(logits, max(1, tile // max(1, of_a_row)), dim=dim):
        yield part.float() if part.dtype.itemsize < 4 else part


def token_log_probs(
    hf_model: Any,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " place"],
    place: Int[np.ndarray, " reading"],
    token: Int[np.ndarray, " reading"],
) -> Float[np.ndarray, " reading"]:
    """Log-probabilities of tokens, each at one of the ``places`` of ``logits_at``.

    Where a model's logits are a linear map of its hidden states, a part of the vocabulary is
    computed at a time: the logits of all of it never exist.
    """
    if not is_linear(hf_model, inputs, places):
        logits = logits_at(hf_model, inputs, places)
        normaliser = torch.cat([torch.logsumexp(part, dim=-1) for part in in_tiles(logits)])
        which = torch.from_numpy(place).to(logits.device)
        chosen = logits[which, torch.from_numpy(token).to(logits.device)]
        return np.asarray((chosen.to(normaliser) - normaliser[which]).double().cpu().numpy())
    head = hf_model.get_output_embeddings()
    with torch.inference_mode():
        with stopped_before(head) as hidden:
            hf_model(**inputs)
        return _by_tiles(head, hidden.pop().flatten(0, 1)[places], place, token)


def is_linear(hf_model: Any, inputs: Mapping[str, Any], places: Tensor) -> bool:
    """Tell whether logits are what the output embeddings' weights give, tried once on one place.

    Weights that lie elsewhere (``device_map``) come when the module runs, and only then.
    """
    head = hf_model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.weight.device.type == "meta":
        return False
    if hf_model not in _LINEAR:
        seen: list[Tensor] = []
        with (
            head.register_forward_hook(lambda _, __, output: seen.append(output)),
            torch.inference_mode(),
            _only(hf_model, inputs, places[:1]) as only,
        ):
            logits = hf_model(**inputs).logits
        _LINEAR[hf_model] = bool(only) and torch.equal(seen[0], logits)
    return _LINEAR[hf_model]


@contextmanager
def tempered(model: LanguageModel, temperature: float) -> Iterator[None]:
    """Divide a causal model's logits by a temperature, whatever reads them inside."""
    hf_model: Any = model.hf_model
    head = hf_model.get_output_embeddings()
    place = torch.zeros(1, dtype=torch.long, device=model.device)
    inputs = {"input_ids": place[None], "attention_mask": torch.ones_like(place[None])}

    def divide_logits(_: nn.Module, __: Any, output: Any) -> Any:
        output.logits = output.logits / temperature
        return output

    def divide_input(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (arguments[0] / temperature, *arguments[1:])

    if not is_linear(hf_model, inputs, place):
        with hf_model.register_forward_hook(divide_logits):
            yield
        return
    bias = None if head.bias is None else head.bias.detach().clone()
    try:
        if bias is not None:
            head.bias.data.div_(temperature)
        with head.register_forward_pre_hook(divide_input):
            yield
    finally:
        if bias is not None:
            head.bias.data.copy_(bias)


def _by_tiles(
    head: nn.Linear,
    hidden: Float[Tensor, "place width"],
    place: Int[np.ndarray, " reading"],
    token: Int[np.ndarray, " reading"],
) -> Float[np.ndarray, " reading"]:
    rows = torch.from_numpy(place).to(hidden.device)
    columns = torch.from_numpy(token).to(hidden.device)
    size = max(256, _TILE.get(hidden.device.type, _TILE_ELSEWHERE) // len(hidden))
    normaliser: Tensor | None = None
    chosen = torch.empty(len(token), dtype=torch.float32, device=hidden.device)
    if hidden.dtype.itemsize > 4:
        chosen = chosen.to(hidden.dtype)
    for first in range(0, head.out_features, size):
        part = slice(first, first + size)
        bias = None if head.bias is None else head.bias[part]
        logits = in_single_precision(head.weight[part], bias, hidden).to(chosen.dtype)
        inside = torch.from_numpy(np.flatnonzero((token >= first) & (token < first + size)))
        inside = inside.to(hidden.device)
        chosen[inside] = logits[rows[inside], columns[inside] - first]
        of_tile = torch.logsumexp(logits, dim=-1)
        normaliser = of_tile if normaliser is None else torch.logaddexp(normaliser, of_tile)
    assert normaliser is not None  # every vocabulary has a word
    return np.asarray((chosen - normaliser[rows]).double().cpu().numpy())


def refuse_undefined(model: LanguageModel, values: Iterable[Float[np.ndarray, " reading"]]) -> None:
    """Refuse log-probabilities that are NaN, which broken weights and half precision give."""
    undefined = total = 0
    for array in values:
        undefined += int(np.isnan(array).sum())
        total += array.size
    if undefined:
        advice = "its weights are broken" if model.dtype.itemsize > 2 else "run it in float32"
        raise InputError(
            f"`model` {model.name} gives NaN for {undefined} of {total} log-probabilities: {advice}"
        )


@contextmanager
def _only(hf_model: Any, inputs: Mapping[str, Any], places: Tensor) -> Iterator[list[bool]]:
    """Let the output embeddings see chosen places only, as one row.

    Yields:
        A list that is empty until they have: MobileBERT's are not called, ProphetNet's see several
        predictions of each place, and FSMT's are those of the input.
    """
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    shape = inputs[name].shape
    chosen: list[bool] = []

    def choose(_: torch.nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        hidden, *rest = arguments
        if hidden.ndim != 3 or hidden.shape[:2] != shape:
            return None
        chosen.append(True)
        return (hidden.flatten(0, 1)[places].unsqueeze(0), *rest)

    with hf_model.get_output_embeddings().register_forward_pre_hook(choose):
        yield chosen
