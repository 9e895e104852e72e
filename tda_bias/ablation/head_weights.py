"""The weights of single heads: which slices of which parameters they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from tda_bias.models.attention import attention_part, in_read_stack
from tda_bias.types import HeadId, InputError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

Part = Literal["q", "k", "v", "o"]


@dataclass(frozen=True)
class Slice:
    """A range of one parameter along one axis.

    Attributes:
        parameter: Its name in the state dict.
        part: q, k, v or o.
        axis: 0 for rows, 1 for columns.
        start: First index.
        stop: One past the last.
        shared_with: Other heads of the layer that use the same range (grouped keys and values).
    """

    parameter: str
    part: Part
    axis: int
    start: int
    stop: int
    shared_with: tuple[int, ...] = ()

    def of(self, tensor: Tensor) -> Tensor:
        """The view of a tensor (parameter, gradient, mask) that this is."""
        return tensor.narrow(self.axis, self.start, self.stop - self.start)


def head_slices(hf_model: PreTrainedModel, head: HeadId) -> list[Slice]:
    """Slices of a head's weights: rows of q, k, v with their biases, columns of o.

    The bias of the output projection belongs to no head.

    Args:
        hf_model: A plain Hugging Face model, without hooks.
        head: The head.

    Raises:
        InputError: if the model has no such head, or its attention is laid out in a way not known.
    """
    config = hf_model.config.get_text_config()
    n_heads = int(config.num_attention_heads)
    named = _attention_parameters(hf_model)
    layers = sorted(named)
    if head.layer not in named or not 0 <= head.head < n_heads:
        known = (
            f"layers 0 to {layers[-1]} with heads 0 to {n_heads - 1}" if layers else "none known"
        )
        raise InputError(f"{head} does not exist in a {type(hf_model).__name__}: {known}")
    parameters = named[head.layer]
    slices: list[Slice] = []
    for part, (name, shape) in sorted(parameters.items()):
        linear = isinstance(hf_model.get_submodule(name.rpartition(".")[0]), torch.nn.Linear)
        layout = _Layout(n_heads, _n_groups(config, n_heads), linear)
        slices += _slices(part, name, shape, head.head, layout)
    sizes = {piece.stop - piece.start for piece in slices}
    if {piece.part for piece in slices} != {"q", "k", "v", "o"} or len(sizes) != 1:
        raise InputError(
            f"{type(hf_model).__name__} keeps its attention in parameters this version does not "
            f"know: {', '.join(name for name, _ in parameters.values())}"
        )
    return slices


@dataclass(frozen=True)
class _Layout:
    """Query heads, heads of keys and values, and whether weights stand (output, input)."""

    n_heads: int
    n_groups: int
    linear: bool


def _n_groups(config: Any, n_heads: int) -> int:
    return int(getattr(config, "num_key_value_heads", None) or n_heads)


def _attention_parameters(
    hf_model: PreTrainedModel,
) -> dict[int, dict[str, tuple[str, tuple[int, ...]]]]:
    """By layer and (part, kind): name and shape of the parameters of self-attention."""
    by_layer: dict[int, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for name, parameter in hf_model.named_parameters():
        module, _, kind = name.rpartition(".")
        part = attention_part(module)
        if part is not None and kind in ("weight", "bias") and in_read_stack(name, hf_model):
            by_layer.setdefault(part.layer, {})[f"{part.part} {kind}"] = (
                name,
                tuple(parameter.shape),
            )
    return by_layer


def _slices(key: str, name: str, shape: tuple[int, ...], head: int, at: _Layout) -> list[Slice]:
    part, kind = key.split()
    if part == "o":
        if kind == "bias":
            return []
        axis = 1 if at.linear else 0
        size = shape[axis] // at.n_heads
        return [Slice(name, "o", axis, head * size, (head + 1) * size)]
    if part == "qkv":
        return _joint(name, kind, shape, head, at)
    rows = at.n_heads if part == "q" else at.n_groups
    size = shape[0] // rows
    index = head if part == "q" else head * at.n_groups // at.n_heads
    per = at.n_heads // rows
    shared = tuple(h for h in range(index * per, (index + 1) * per) if h != head) if per > 1 else ()
    label: Part = "q" if part == "q" else ("k" if part == "k" else "v")
    return [Slice(name, label, 0, index * size, (index + 1) * size, shared)]


def _joint(name: str, kind: str, shape: tuple[int, ...], head: int, at: _Layout) -> list[Slice]:
    """GPT-2 keeps all queries, then all keys, then all values; NeoX and BLOOM go head by head."""
    one_by_one = ".c_attn." not in name
    axis = 0 if at.linear or kind == "bias" else 1
    if at.linear != one_by_one or shape[axis] % (3 * at.n_heads):
        return []  # several queries may share keys and values: not known
    size = shape[axis] // (3 * at.n_heads)
    slices = []
    labels: tuple[Part, ...] = ("q", "k", "v")
    for number, label in enumerate(labels):
        start = (3 * head + number if one_by_one else number * at.n_heads + head) * size
        slices.append(Slice(name, label, axis, start, start + size))
    return slices


def export_record(
    hf_model: PreTrainedModel,
    chosen: Sequence[Mapping[str, Any]],
    *,
    model: Mapping[str, Any],
    rule: Mapping[str, Any],
) -> dict[str, Any]:
    """Content of the file that ``tdabias export`` writes.

    Args:
        hf_model: A plain Hugging Face model.
        chosen: Per head ``layer head`` and what is known of it.
        model: The model's part of the run record.
        rule: How the heads were chosen.
    """
    heads = []
    for row in chosen:
        head = HeadId(int(row["layer"]), int(row["head"]))
        slices = [asdict(piece) for piece in head_slices(hf_model, head)]
        heads.append({"name": str(head), **row, "slices": slices})
    about = {key: model.get(key) for key in ("name", "revision", "architecture", "weights")}
    return {"format": "tdabias heads 1", "model": about, "rule": dict(rule), "heads": heads}


def read_export(record: Mapping[str, Any]) -> list[HeadId]:
    """The heads of an exported file.

    Raises:
        InputError: if it is none.
    """
    try:
        if record["format"] != "tdabias heads 1":
            raise KeyError("format")
        return [HeadId(int(row["layer"]), int(row["head"])) for row in record["heads"]]
    except (KeyError, TypeError, ValueError):
        raise InputError("this is no file that `tdabias export` wrote") from None
