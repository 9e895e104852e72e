"""A model whose attention patterns can be read: by TransformerLens, or by its own attention.

TransformerLens is used where its patterns of a probe are those that the model itself returns.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from tda_bias.models.eager import (
    EagerAttention,
    Take,
    allowed_difference,
    direction_of,
    eager_attention,
    own_patterns,
    probe_ids,
)
from tda_bias.models.language_model import LanguageModel, is_spread, model_record
from tda_bias.store.record import HookedModelRecord
from tda_bias.types import Attention, InputError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_PATTERN_HOOK = re.compile(r"^(?:encoder_)?blocks\.(\d+)\.attn\.hook_pattern$")


@dataclass(frozen=True, repr=False)
class LoadedModel(LanguageModel):
    """A language model whose attention can be hooked.

    Attributes:
        attention: Causal for decoders; bidirectional for encoders, also those of encoder-decoders.
        n_heads: Heads of a layer.
        pattern_hooks: Hook name to layer for every layer with attention (the encoder's, where there
            is one).
        bridge: The TransformerLens bridge around ``hf_model``, if it knows the architecture. Its
            copy of the tokenizer may add a token at the beginning; texts never go through that one.
        eager: Hugging Face's own attention, where there is no bridge.
        hashes: Hash of the weights before and after they were hooked; None where the former is not
            known.
        unhooked: Number of parameters before they were hooked; None where nothing changed it.
    """

    attention: Attention = field(kw_only=True)
    n_heads: int = field(kw_only=True)
    pattern_hooks: dict[str, int] = field(kw_only=True)
    bridge: TransformerBridge | None = None
    eager: EagerAttention | None = None
    hashes: tuple[str, str] | None = None
    unhooked: int | None = None

    @property
    def n_parameters(self) -> int:
        """As without hooks, which copy some."""
        return super().n_parameters if self.unhooked is None else self.unhooked

    def weight_hash(self) -> str:
        """As without hooks, which rename parameters and copy some, unless weights have changed."""
        now = super().weight_hash()
        return self.hashes[0] if self.hashes is not None and self.hashes[1] == now else now


def hooked_model_record(model: LoadedModel, *, weights: str) -> HookedModelRecord:
    """The model as it was run, and what of its attention was hooked."""
    hooked = {
        "attention": model.attention,
        "layers": tuple(model.pattern_hooks.values()),
        "patterns": "eager" if model.bridge is None else "transformer-lens",
    }
    return HookedModelRecord(**dict(model_record(model, weights=weights)), **hooked)


def bridge_model(
    hf_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str,
    not_in_checkpoint: tuple[str, ...] = (),
    again: Callable[[], PreTrainedModel] | None = None,
) -> LoadedModel:
    """Hook a Hugging Face model that is in memory: by TransformerLens, or by its own attention.

    The model is put in evaluation mode (dropout would change its patterns) and given eager
    attention, without which there are no patterns. Where TransformerLens knows it, that changes the
    model, too.

    Args:
        hf_model: The model.
        tokenizer: Its tokenizer.
        name: What it is called.
        not_in_checkpoint: Parameters that are random at every loading, for the hash of its weights.
        again: Gives the same model once more, for its own attention, where TransformerLens has
            changed this one and its patterns still differ.

    Raises:
        InputError: if it does not return its attention patterns, with which what TransformerLens
            shows is compared; or if those differ and there is no ``again``.
    """
    model = LanguageModel(
        hf_model.eval(),
        tokenizer,
        name,
        revision=getattr(hf_model.config, "_commit_hash", None),
        not_in_checkpoint=not_in_checkpoint,
    )
    hf_model.set_attn_implementation("eager")
    if not is_spread(hf_model) and _has_adapter(hf_model):
        own, _ = own_patterns(hf_model, name=name)  # one without is refused before it is changed
        try:
            return _bridged(model, own)
        except InputError as error:
            if again is None:
                raise InputError(
                    f"{error}, and has changed it in trying; load it by its name"
                ) from None
            model = replace(model, hf_model=again().eval())
            model.hf_model.set_attn_implementation("eager")
    eager = eager_attention(model.hf_model, name=name)
    return LoadedModel(
        **vars(model),
        attention=eager.attention,
        n_heads=eager.n_heads,
        pattern_hooks={f"layer {layer}": layer for layer in eager.places},
        eager=eager,
    )


# -- by TransformerLens ----------------------------------------------------------------------------


def _has_adapter(hf_model: PreTrainedModel) -> bool:
    """Tell whether TransformerLens knows the architecture."""
    from transformer_lens.model_bridge.sources.transformers import (
        determine_architecture_from_hf_config,
    )

    config = hf_model.config
    if not config.architectures:
        config.architectures = [type(hf_model).__name__]
    try:
        determine_architecture_from_hf_config(config)
    except ValueError:
        return False
    return True


def _bridged(model: LanguageModel, own: Mapping[int, Tensor]) -> LoadedModel:
    """The model, changed by TransformerLens, whose patterns of a probe must be its own."""
    from transformer_lens.model_bridge import TransformerBridge

    hf_model = model.hf_model
    refused = (
        f"`model` {model.name} is a {model.architecture}, which TransformerLens "
        f"{version('transformer-lens')} cannot hook"
    )
    plain, unhooked = model.weight_hash(), model.n_parameters
    theirs = copy.deepcopy(model.tokenizer)
    theirs.init_kwargs["trust_remote_code"] = False  # the bridge loads it again, with these
    try:
        bridge: Any = TransformerBridge.boot_transformers(
            # Only a label: a short name would be looked up among outdated aliases.
            f"loaded/{Path(model.name).name}",
            hf_model=hf_model,
            tokenizer=theirs,
            dtype=model.dtype,
            trust_remote_code=False,
        ).eval()
        prefix = "encoder_blocks." if hf_model.config.is_encoder_decoder else "blocks."
        hooks = {
            hook: int(match.group(1))
            for hook in bridge.hook_dict
            if hook.startswith(prefix) and (match := _PATTERN_HOOK.match(hook))
        }
        hooks = dict(sorted(hooks.items(), key=lambda item: item[1]))
        shown: list[Tensor] = []
        ids = probe_ids(hf_model)
        with torch.inference_mode():
            run_bridge(
                bridge, hooks, ids, lambda pattern, _: shown.append(pattern.detach()),
                attention_mask=torch.ones_like(ids),
            )  # fmt: skip
    except Exception as error:  # of an architecture that it knows in part, of any kind
        raise InputError(f"{refused} ({first_sentence(error)})") from error
    if [pattern.shape for pattern in shown] != [pattern.shape for pattern in own.values()]:
        raise InputError(f"{refused} (it shows patterns of other layers or heads)")
    pairs = zip(shown, own.values(), strict=True)
    difference = max(float((a - b).abs().max()) for a, b in pairs)
    if not difference <= allowed_difference(model.dtype):
        raise InputError(f"{refused} (the patterns that it shows differ by {difference:.1e})")
    return LoadedModel(
        **vars(model),
        attention=direction_of(own),
        n_heads=shown[0].shape[1],
        pattern_hooks=hooks,
        bridge=bridge,
        hashes=(plain, model.weight_hash()),
        unhooked=unhooked,
    )


def run_bridge(
    bridge: Any,
    hooks: Mapping[str, int],
    ids: Int[Tensor, "row token"],
    take: Take,
    *,
    also: Sequence[tuple[str, Callable[..., None]]] = (),
    **inputs: Any,
) -> None:
    """Run texts and hand over every layer's pattern, in order; the pass ends at the last.

    ``hooks`` names the layer of each hook, ``also`` further hooks; ``take`` is called with the
    patterns of a layer and its number.
    """
    from transformer_lens.model_bridge.exceptions import StopAtLayerException

    names = list(hooks)

    def pass_on(pattern: Tensor, hook: Any) -> None:
        take(pattern, hooks[hook.name])
        if hook.name == names[-1]:  # nothing after it is needed, least of all the logits
            raise StopAtLayerException(pattern)

    bridge.run_with_hooks(
        ids,
        fwd_hooks=[*also, *((name, pass_on) for name in names)],
        return_type=None,
        use_cache=False,
        **inputs,
    )


def first_sentence(error: Exception) -> str:
    """The first sentence of an error's message, or of a long one its beginning."""
    return re.split(r"(?<=\.)\s|\n", str(error).strip())[0][:200]


# -- the same network without what it has learnt ---------------------------------------------------


def untrained(model: LanguageModel, *, seed: int = 0, bound: float = 0.1) -> LanguageModel:
    """The same architecture with every parameter drawn uniformly from [-bound, bound].

    What such a network says of words is set by its tokenizer and the number of words, not by text.
    """
    hf_model = copy.deepcopy(model.hf_model)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    with torch.no_grad():
        for parameter in hf_model.parameters():
            drawn = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(drawn * bound)
    return LanguageModel(hf_model, model.tokenizer, f"{model.name}, random weights")


def initialised(model: LoadedModel, *, seed: int = 0) -> LoadedModel:
    """The same architecture and tokenizer with the random weights that training begins with.

    What the attention of such a network shows is set by the texts' tokens and their places, not by
    anything learnt.
    """
    config = copy.deepcopy(model.hf_model.config)

    def made() -> PreTrainedModel:
        torch.manual_seed(seed)
        hf_model = type(model.hf_model)(copy.deepcopy(config))
        return hf_model.to(device=model.device, dtype=model.dtype)

    name = f"{model.name}, random weights"
    with torch.random.fork_rng(devices=[]):
        return bridge_model(made(), model.tokenizer, name=name, again=made)
