"""Places of a model's attention heads: the layers, and the projection of each layer's heads.

By the names that Hugging Face gives the parts of a model. The bridge that hooks a model wraps its
parts and keeps those names inside its own, so hooked models are found the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.models.language_model import WRAPPED
from tda_bias.models.load import LanguageModel
from tda_bias.types import InputError

_LAYER = re.compile(
    r"^(?P<path>.*?\b(?:layers|layer|h|blocks|block)\.(?P<layer>\d+))\."
    r"(?:layer\.0\.|shared_transf(?:ormer)?\.)?"
    # Hybrids call attention and what stands in its place alike; the former's parts are q_proj, ...
    r"(?P<module>[A-Za-z_]*[aA]tt[a-z_]*|(?:mixer|temporal_block)(?=\.[qkvo]_proj$))"
    r"\.(?:(?:self|attn|attention)\.)?(?P<part>[A-Za-z_.]+)$"
)
# Names of the projections of queries, keys, values and outputs, alone or together.
PARTS = {
    "q_proj": "q", "query": "q", "q_lin": "q", "q": "q", "q_b_proj": "q",
    "k_proj": "k", "key": "k", "k_lin": "k", "k": "k",
    "v_proj": "v", "value": "v", "v_lin": "v", "v": "v",
    "o_proj": "o", "out_proj": "o", "output.dense": "o", "out_lin": "o", "c_proj": "o",
    "dense": "o", "o": "o", "Wo": "o", "c_attn": "qkv", "query_key_value": "qkv", "Wqkv": "qkv",
    "qkv_proj": "qkv", "kv_b_proj": "kv",
}  # fmt: skip


@dataclass(frozen=True)
class AttentionPart:
    """One projection of one attention layer: ``path`` names the layer, ``name`` the projection."""

    layer: int
    part: str  # q, k, v, o, qkv or kv
    path: str
    name: str


def attention_part(name: str) -> AttentionPart | None:
    """Recognise a module of a model, by its name, as a projection of self-attention."""
    match = _LAYER.match(name)
    if match is None or match["part"] not in PARTS:
        return None
    if any(word in match["module"] for word in ("cross", "encoder_attn", "EncDec")):
        return None
    return AttentionPart(int(match["layer"]), PARTS[match["part"]], match["path"], name)


def is_read(part: AttentionPart, hf_model: Any) -> bool:
    """Tell whether a part belongs to layers with patterns: of two stacks those of the encoder.

    Layers that read images or sound are none of a text's.
    """
    if hf_model.config.is_encoder_decoder and "decoder." in part.name:
        return False
    if _is_of_another_sense(part.name, hf_model):
        return False
    types = getattr(hf_model.config.get_text_config(), "layer_types", None)
    return not types or types[part.layer] != "linear_attention"


def _is_of_another_sense(name: str, hf_model: Any) -> bool:
    """Tell whether a module stands in a part with a configuration that is not the text's."""
    from transformers import PreTrainedConfig

    known = type(hf_model.config), type(hf_model.config.get_text_config())
    module = hf_model
    for step in name.split("."):
        # A bridge keeps the model's own parts inside others.
        module = getattr(module, step, None) or getattr(getattr(module, WRAPPED, None), step, None)
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig) and not isinstance(config, known):
            return True
    return False


@dataclass(frozen=True)
class AttentionLayer:
    """A layer of a model and the projection that its heads write through.

    ``block`` is the whole layer, which hands on the residual stream; ``projection`` a linear map of
    the heads' outputs, head by head along its input.
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
        axis = 0 if is_turned(self.projection) else 1
        size = weight.shape[axis] // self.n_heads
        return weight.narrow(axis, head * size, size)

    def written(self, z: Float[Tensor, "... head d"]) -> Float[Tensor, "... head model"]:
        """Contribution of each head's part of the projection's input to its output."""
        weight: Tensor = self.projection.get_parameter("weight")
        if not is_turned(self.projection):
            weight = weight.T
        by_head = weight.reshape(self.n_heads, -1, weight.shape[-1])
        return torch.einsum("...hd,hdm->...hm", z, by_head.to(z))


def attention_layers(model: LanguageModel) -> list[AttentionLayer]:
    """The layers with attention, in order; an encoder-decoder's are those of its encoder."""
    config = model.hf_model.config.get_text_config()
    named = f"`model` {model.name} ({model.architecture})"
    n_heads = getattr(config, "num_attention_heads", None)
    if not n_heads:
        raise InputError(f"{named} has no attention heads that could be changed")
    modules = dict(model.hf_model.named_modules(remove_duplicate=False))
    projections: dict[int, nn.Module] = {}
    blocks: dict[int, nn.Module] = {}
    for name, module in modules.items():
        plain = name.replace(f"{WRAPPED}.", "").removesuffix(f".{WRAPPED}")
        part = attention_part(plain)
        if part is None or part.part != "o" or not is_read(part, model.hf_model):
            continue
        if getattr(module, "weight", None) is None or hasattr(module, WRAPPED):
            continue
        if projections.setdefault(part.layer, module).weight is not module.weight:
            raise InputError(
                f"{named} has several stacks of layers, so a layer's number does not name one"
            )
        blocks.setdefault(part.layer, modules[part.path])
    # ALBERT runs one module as many layers, Zamba has one under many names.
    groups = getattr(config, "num_hidden_groups", config.num_hidden_layers)
    distinct = len({id(projection.weight) for projection in projections.values()})
    if groups < config.num_hidden_layers or distinct < len(projections):
        raise InputError(
            f"{named} has layers that share their weights, so a head of one layer cannot be "
            "changed alone"
        )
    if not projections or any(_width(p) % n_heads for p in projections.values()):
        raise InputError(
            f"{named} keeps its attention in parts that this version does not know "
            f"({attention_weights(model.hf_model)}), so its heads cannot be changed"
        )
    return [
        AttentionLayer(number, blocks[number], projections[number], n_heads)
        for number in sorted(projections)
    ]


def attention_weights(hf_model: Any) -> str:
    """The names of a layer's weights of attention, for messages."""
    every = [name for name, weight in hf_model.named_parameters() if weight.ndim > 1]
    named = [name.removesuffix(".weight") for name in every if "att" in name.lower()]
    return ", ".join([name for name in named if ".0." in name] or named[:4]) or "none known"


def _width(projection: nn.Module) -> int:
    """Size of a linear map's input."""
    weight: Tensor = projection.weight  # type: ignore[assignment]
    return int(weight.shape[0 if is_turned(projection) else 1])


def typical_weight(layers: Sequence[AttentionLayer]) -> float:
    """Root mean square, to three digits, of the weights that all heads write through."""
    weights = [layer.projection.get_parameter("weight").detach() for layer in layers]
    squares = [float(weight.double().square().mean()) for weight in weights]
    return float(f"{np.sqrt(np.mean(squares)):.3g}")


def is_turned(projection: nn.Module) -> bool:
    """Tell whether a linear map keeps its weights the other way round, as GPT-2's do."""
    return type(projection).__name__ == "Conv1D"


def writes_to_the_stream(model: LanguageModel, layers: list[AttentionLayer]) -> bool:
    """Tell whether the output of heads is added to the residual stream as it is, and read there.

    It is not where a layer normalises its output or its sum (BERT, BART, Gemma 2, OLMo 2), and not
    in an encoder, whose end a decoder reads.
    """
    if model.kind != "causal" or not getattr(model.hf_model.config, "do_layer_norm_before", True):
        return False
    norms = [name for name, _ in layers[0].block.named_children() if re.match(r"ln|.*norm", name)]
    return len(norms) <= 2 and not all(name.startswith("post") for name in norms)
