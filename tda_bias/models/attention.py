"""Places of a model's attention heads: the layers, and the projection of each layer's heads.

By the names that Hugging Face gives the parts of a model. The bridge that hooks a model wraps its
parts and keeps those names inside its own, so hooked models are found the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.load import LanguageModel
from tda_bias.models.placement import WRAPPED
from tda_bias.types import InputError

_LAYER = re.compile(
    r"^(?P<path>.*?\b(?:layers|layer|h|blocks|block)\.(?P<layer>\d+))\.(?:layer\.0\.)?"
    r"(?P<module>[A-Za-z_]*[aA]tt[a-z_]*)\.(?:self\.)?(?P<part>[a-z_.]+)$"
)
# Names of the projections of queries, keys, values and outputs, alone or together.
PARTS = {
    "q_proj": "q", "query": "q", "q_lin": "q", "q": "q",
    "k_proj": "k", "key": "k", "k_lin": "k", "k": "k",
    "v_proj": "v", "value": "v", "v_lin": "v", "v": "v",
    "o_proj": "o", "out_proj": "o", "output.dense": "o", "out_lin": "o", "c_proj": "o",
    "dense": "o", "o": "o", "c_attn": "qkv", "query_key_value": "qkv",
}  # fmt: skip


@dataclass(frozen=True)
class AttentionPart:
    """One projection of one attention layer.

    Attributes:
        layer: Its number.
        part: q, k, v, o or qkv.
        path: Name of the layer, as a part of the model.
        name: Name of the projection.
    """

    layer: int
    part: str
    path: str
    name: str


def attention_part(name: str) -> AttentionPart | None:
    """Recognise a module of a model as a projection of self-attention.

    Args:
        name: As ``named_modules`` gives it.
    """
    match = _LAYER.match(name)
    if match is None or match["part"] not in PARTS or _is_cross(match["module"]):
        return None
    return AttentionPart(int(match["layer"]), PARTS[match["part"]], match["path"], name)


def _is_cross(module: str) -> bool:
    return "cross" in module or "encoder_attn" in module or "EncDec" in module


def in_read_stack(name: str, hf_model: Any) -> bool:
    """Tell whether a part belongs to the layers that are read: of two stacks the encoder."""
    return not hf_model.config.is_encoder_decoder or "decoder." not in name


@dataclass(frozen=True)
class AttentionLayer:
    """A layer of a model and the projection that its heads write through.

    Attributes:
        number: Of the layer, from 0.
        block: The whole layer, which hands on the residual stream.
        projection: A linear map of the heads' outputs, head by head along its input.
        n_heads: Heads of the layer.
    """

    number: int
    block: nn.Module
    projection: nn.Module
    n_heads: int

    def by_head(self, z: Float[Tensor, "row token width"]) -> Float[Tensor, "row token head d"]:
        """The projection's input, head by head; a view."""
        return z.view(*z.shape[:-1], self.n_heads, -1)

    def columns(self, head: int) -> Tensor:
        """The view of the projection's weights that a head writes through."""
        weight: Tensor = self.projection.get_parameter("weight")
        # GPT-2's Conv1D keeps weights the other way round.
        axis = 1 if isinstance(self.projection, nn.Linear) else 0
        size = weight.shape[axis] // self.n_heads
        return weight.narrow(axis, head * size, size)

    def written(self, z: Float[Tensor, "... head d"]) -> Float[Tensor, "... head model"]:
        """Contribution of each head's part of the projection's input to its output."""
        weight: Tensor = self.projection.get_parameter("weight")
        if isinstance(self.projection, nn.Linear):
            weight = weight.T
        by_head = weight.reshape(self.n_heads, -1, weight.shape[-1])
        return torch.einsum("...hd,hdm->...hm", z, by_head.to(z))


def attention_layers(model: LanguageModel) -> list[AttentionLayer]:
    """The layers with attention, in order; an encoder-decoder's are those of its encoder.

    Raises:
        InputError: if they are laid out in a way that is not known.
    """
    modules = dict(model.hf_model.named_modules(remove_duplicate=False))
    projections: dict[int, nn.Module] = {}
    blocks: dict[int, nn.Module] = {}
    for name, module in modules.items():
        plain = name.replace(f"{WRAPPED}.", "").removesuffix(f".{WRAPPED}")
        part = attention_part(plain)
        if part is None or part.part != "o" or not in_read_stack(plain, model.hf_model):
            continue
        if getattr(module, "weight", None) is None or hasattr(module, WRAPPED):
            continue
        projections.setdefault(part.layer, module)
        blocks.setdefault(part.layer, modules[part.path])
    n_heads = int(model.hf_model.config.get_text_config().num_attention_heads)
    if not projections or any(_width(p) % n_heads for p in projections.values()):
        raise InputError(
            f"`model` {model.name} ({model.architecture}) keeps its attention in parts this "
            "version does not know, so its heads cannot be removed"
        )
    return [
        AttentionLayer(number, blocks[number], projections[number], n_heads)
        for number in sorted(projections)
    ]


def _width(projection: nn.Module) -> int:
    """Size of a linear map's input; GPT-2's Conv1D keeps weights the other way round."""
    weight: Tensor = projection.weight  # type: ignore[assignment]
    return int(weight.shape[1] if isinstance(projection, nn.Linear) else weight.shape[0])


def writes_to_the_stream(model: LanguageModel, layers: list[AttentionLayer]) -> bool:
    """Tell whether the output of heads is added to the residual stream as it is, and read there.

    It is not where a layer normalises its output or its sum (BERT, BART, Gemma 2, OLMo 2), and not
    in an encoder, whose end a decoder reads.
    """
    if model.kind != "causal" or not getattr(model.hf_model.config, "do_layer_norm_before", True):
        return False
    norms = [name for name, _ in layers[0].block.named_children() if re.match(r"ln|.*norm", name)]
    return len(norms) <= 2 and not all(name.startswith("post") for name in norms)
