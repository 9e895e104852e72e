"""A name or a path to a model that can be run, with the tokenizer as Hugging Face has it."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from tda_bias.models.adapter import adapted_model, is_adapter
from tda_bias.models.automatic import Head as Head
from tda_bias.models.automatic import auto_class, device_of
from tda_bias.models.checkpoint import (
    of_the_body,
    refuse_code_in_folder,
    refuse_compiled_code,
    refuse_empty_tokenizer,
    refuse_other_shapes,
    refuse_small_embedding,
)
from tda_bias.models.eager import (
    EagerAttention,
    eager_attention,
    probe_ids,
    returned_patterns,
)
from tda_bias.models.language_model import Kind as Kind
from tda_bias.models.language_model import LanguageModel as LanguageModel
from tda_bias.models.packaged import PACKAGED, local_source
from tda_bias.models.placement import is_spread, read_device_map
from tda_bias.types import Attention, InputError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# Patterns of TransformerLens and of the model itself may differ by this.
_SAME, _SAME_IN_HALF_PRECISION = 1e-4, 5e-2
_PATTERN_HOOK = re.compile(r"^(?:encoder_)?blocks\.(\d+)\.attn\.hook_pattern$")


_log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class LoadedModel(LanguageModel):
    """A language model whose attention can be hooked.

    Attributes:
        bridge: The TransformerLens bridge around ``hf_model``, if it knows the architecture. Its
            copy of the tokenizer may add a token at the beginning; texts never go through that one.
        eager: Hugging Face's own attention, where there is no bridge.
        hashes: Hash of the weights before and after they were hooked; None where the former is not
            known.
    """

    bridge: TransformerBridge | None = field(kw_only=True)
    eager: EagerAttention | None = None
    hashes: tuple[str, str] | None = None

    def weight_hash(self) -> str:
        """As without hooks, which rename parameters and copy some, unless weights have changed."""
        now = super().weight_hash()
        return self.hashes[0] if self.hashes is not None and self.hashes[1] == now else now

    @property
    def attention(self) -> Attention:
        """Causal for decoders; bidirectional for encoders, also those of encoder-decoders."""
        if self.hf_model.config.is_encoder_decoder:
            return "bidirectional"
        if self.bridge is None:
            return self.patterns_of.attention
        direction = str(self.bridge.cfg.attention_dir)
        if direction not in get_args(Attention):
            raise InputError(f"`model` {self.name}: unknown attention direction {direction!r}")
        return "causal" if direction == "causal" else "bidirectional"

    @property
    def n_heads(self) -> int:
        """Heads of a layer."""
        if self.bridge is None:
            return self.patterns_of.n_heads
        return max(1, int(getattr(self.bridge.cfg, "n_heads", 1)))

    @property
    def patterns_of(self) -> EagerAttention:
        """Hugging Face's attention, of a model without a bridge."""
        if self.eager is None:
            raise TypeError("a model is hooked by a bridge or by its own attention")
        return self.eager

    @cached_property
    def pattern_hooks(self) -> dict[str, int]:
        """Hook name to layer for every layer with attention (the encoder's, where there is one)."""
        if self.bridge is None:
            return {f"layer {layer}": layer for layer in self.patterns_of.places}
        prefix = "encoder_blocks." if self.hf_model.config.is_encoder_decoder else "blocks."
        hooks = {
            name: int(match.group(1))
            for name in self.bridge.hook_dict
            if name.startswith(prefix) and (match := _PATTERN_HOOK.match(name))
        }
        if not hooks:
            raise InputError(
                f"`model` {self.name} ({self.architecture}) has no layer whose attention patterns "
                f"TransformerLens {version('transformer-lens')} can hook"
            )
        return dict(sorted(hooks.items(), key=lambda item: item[1]))


def load_model(
    name: str, *, device: str = "auto", dtype: str = "float32", device_map: str | None = None
) -> LoadedModel:
    """A model whose attention patterns can be hooked.

    Args:
        name: A name on the Hugging Face hub, a local folder, a GGUF file, or one of the models
            that come in packages (``tda_bias.models.packaged``): ``smollm2-135m``, ``minilm-l6``
            (an encoder without language head) and ``gemma3-270m``. Code in a model's folder or
            repository is never run.
        device: ``auto`` (a CUDA GPU where there is one, else the CPU), or any torch device. Apple's
            MPS is used only when asked for: it can be silently wrong.
        dtype: ``float32``, ``float64``, ``float16`` or ``bfloat16``. Half precision can make
            patterns useless; see docs/method/heads.md.
        device_map: As in ``load_language_model``. A model in several places is hooked by its own
            attention: TransformerLens would move its parts.

    Raises:
        InputError: if the model cannot be found or read, needs code of its own, lacks layers,
            neither TransformerLens nor transformers shows its attention patterns, or the device
            or type is not available.
    """

    def load() -> LanguageModel:
        return load_language_model(
            name, device=device, dtype=dtype, attention="eager", device_map=device_map
        )

    loaded = load()
    loaded.require_body()
    lacking = loaded.not_in_checkpoint
    return hook_model(
        loaded.hf_model,
        loaded.tokenizer,
        name=name,
        not_in_checkpoint=lacking,
        again=lambda: load().hf_model,
    )


def hook_model(
    hf_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str,
    not_in_checkpoint: tuple[str, ...] = (),
    again: Callable[[], PreTrainedModel] | None = None,
) -> LoadedModel:
    """Hook a Hugging Face model by TransformerLens, or by its own attention.

    TransformerLens is used where its patterns of a probe are those that the model itself returns.

    Args:
        hf_model: The model.
        tokenizer: Its tokenizer.
        name: What it is called.
        not_in_checkpoint: Parameters that are random at every loading, for the hash of its weights.
        again: Gives the same model once more, for when TransformerLens has changed this one in
            vain.

    Raises:
        InputError: if neither shows its attention patterns, with the reasons of both.
    """
    modules = [module_name for module_name, _ in hf_model.named_modules()]
    refused = f"`model` {name} is in several places, where TransformerLens cannot hook it"
    if not is_spread(hf_model):
        own = returned_patterns(hf_model.eval())
        try:
            hooked = bridge_model(
                hf_model, tokenizer, name=name, not_in_checkpoint=not_in_checkpoint
            )
            _refuse_other_patterns(hooked, own)
            return hooked
        except InputError as error:
            refused = str(error)
        if [module_name for module_name, _ in hf_model.named_modules()] != modules:
            if again is None:
                raise InputError(f"{refused}, and has changed it in trying; load it by its name")
            hf_model = again()
    try:
        eager = eager_attention(hf_model.eval(), name=name)
    except InputError as error:
        raise InputError(f"{refused}; without it: {error}") from None
    about: dict[str, Any] = {
        "revision": getattr(hf_model.config, "_commit_hash", None),
        "not_in_checkpoint": not_in_checkpoint,
    }
    return LoadedModel(hf_model, tokenizer, name, **about, bridge=None, eager=eager)


def bridge_model(
    hf_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str,
    not_in_checkpoint: tuple[str, ...] = (),
) -> LoadedModel:
    """Hook a Hugging Face model that is already in memory; arguments as of ``hook_model``.

    The model is put in evaluation mode (dropout would change its patterns) and given eager
    attention, without which there are no patterns.

    Raises:
        InputError: if TransformerLens has no adapter for the architecture.
    """
    about: dict[str, Any] = {
        "revision": getattr(hf_model.config, "_commit_hash", None),
        "not_in_checkpoint": not_in_checkpoint,
    }
    plain = LanguageModel(hf_model.eval(), tokenizer, name, **about).weight_hash()
    if not hf_model.config.architectures:
        hf_model.config.architectures = [type(hf_model).__name__]
    bridge = _bridge(hf_model, tokenizer, name=name)
    hooked = LanguageModel(hf_model, tokenizer, name, **about).weight_hash()
    hashes = (plain, hooked)
    return LoadedModel(hf_model, tokenizer, name, **about, bridge=bridge, hashes=hashes)


def _bridge(
    hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str
) -> TransformerBridge:
    from transformer_lens.model_bridge import TransformerBridge

    theirs = copy.deepcopy(tokenizer)
    theirs.init_kwargs["trust_remote_code"] = False  # the bridge loads it again, with these
    try:
        bridge = TransformerBridge.boot_transformers(
            # Only a label: a short name would be looked up among outdated aliases.
            f"loaded/{Path(name).name}",
            hf_model=hf_model,
            tokenizer=theirs,
            dtype=next(hf_model.parameters()).dtype,
            trust_remote_code=False,
        )
    except Exception as error:  # of an architecture that it knows in part, of any kind
        # For an unknown class the message lists hundreds of known ones.
        reason = "" if "supported architecture" in str(error) else f" ({_first_sentence(error)})"
        raise InputError(
            f"`model` {name} is a {type(hf_model).__name__}, which TransformerLens "
            f"{version('transformer-lens')} cannot hook{reason}; use a model of another "
            "architecture (GPT-2, GPT-NeoX, Llama, Qwen, Gemma, OPT, BERT, T5 and BART work)"
        ) from error
    bridge.eval()
    return bridge


def _refuse_other_patterns(model: LoadedModel, own: Sequence[Tensor]) -> None:
    """Make sure that TransformerLens shows the patterns that a model itself returns.

    Args:
        model: The hooked model.
        own: Its patterns of ``probe_ids``, before it was hooked; none where it returns none, and
            nothing can be compared.

    Raises:
        InputError: if they differ, or TransformerLens cannot run the model.
    """
    from transformer_lens.model_bridge.exceptions import StopAtLayerException

    bridge, hooks = model.bridge, list(model.pattern_hooks)
    if not own or bridge is None:
        return
    shown: list[Tensor] = []

    def keep(pattern: Tensor, hook: Any) -> None:
        shown.append(pattern.detach())
        if hook.name == hooks[-1]:
            raise StopAtLayerException(pattern)

    ids = probe_ids(model.hf_model)
    refused = (
        f"`model` {model.name} is a {model.architecture}, whose patterns TransformerLens "
        f"{version('transformer-lens')}"
    )
    try:
        with torch.inference_mode():
            bridge.run_with_hooks(
                ids,
                fwd_hooks=[(name, keep) for name in hooks],
                return_type=None,
                use_cache=False,
                attention_mask=torch.ones_like(ids),
            )
    except Exception as error:
        raise InputError(f"{refused} cannot show ({_first_sentence(error)})") from error
    if [pattern.shape for pattern in shown] != [pattern.shape for pattern in own]:
        raise InputError(f"{refused} shows of other layers or heads than it has")
    difference = max(float((a - b).abs().max()) for a, b in zip(shown, own, strict=True))
    if not difference <= (_SAME if model.dtype.itemsize >= 4 else _SAME_IN_HALF_PRECISION):
        raise InputError(f"{refused} shows otherwise (by {difference:.1e}) than it has them")


def load_language_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    attention: str | None = None,
    head: Head = "language",
    device_map: str | None = None,
) -> LanguageModel:
    """A Hugging Face language model and its tokenizer, without hooks.

    Architectures that TransformerLens cannot hook are loaded too.

    Args:
        name: As in ``load_model``, or the folder of a PEFT adapter, merged into its base.
        device: As in ``load_model``.
        dtype: As there.
        attention: Implementation of attention; the architecture's fastest if None.
        head: ``language``; or ``as_trained``: of a checkpoint trained to answer with a span of the
            context, that one.
        device_map: Where the parts of a model go that is larger than a device: ``auto``,
            ``balanced``, or a file of names of parts with their devices, ``cpu`` or ``disk``.

    Raises:
        InputError: as ``load_model``, architectures aside.
    """
    if dtype not in DTYPES:
        raise InputError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")
    if device_map is not None and device != "auto":
        raise InputError(f"give `device` or `device_map`, not both; got {device!r}")
    if is_adapter(name):
        if device_map is not None:
            raise InputError(f"`model` {name} is an adapter, which no `device_map` can spread")
        given: dict[str, Any] = {"dtype": dtype, "attention": attention, "head": head}
        return adapted_model(name, partial(load_language_model, device=device, **given))
    place = device_of(device)
    parts = read_device_map(device_map) if device_map is not None else None
    if DTYPES[dtype].itemsize < 4:
        _log.warning("%s: attention patterns can be inexact or NaN; float32 is safe", dtype)
    refuse_code_in_folder(name)
    model, tokenizer, lacking = _from_pretrained(
        name, head, dtype=DTYPES[dtype], attn_implementation=attention, device_map=parts
    )
    refuse_small_embedding(name, model, tokenizer)
    return LanguageModel(
        (model if parts is not None else model.to(place)).eval(),
        tokenizer,
        name,
        revision=getattr(model.config, "_commit_hash", None),
        not_in_checkpoint=lacking,
        body_not_in_checkpoint=of_the_body(model, lacking),
    )


def _from_pretrained(
    name: str, head: Head, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, tuple[str, ...]]:
    """Model, tokenizer, and the names of the weights that the checkpoint lacks."""
    source = local_source(name)
    try:
        from transformers import AutoConfig, AutoTokenizer

        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        refuse_compiled_code(name, config)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        refuse_empty_tokenizer(name, tokenizer)
        # Safetensors come first; what is pickled is read as tensors only.
        model, info = auto_class(config, head).from_pretrained(
            source,
            config=config,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by name
            **options,
        )
        refuse_other_shapes(name, info["mismatched_keys"])
    except InputError:
        raise
    except Exception as error:  # the hub's and the readers' errors are of many kinds
        shown = repr(name if len(name) <= 200 else f"{name[:200]}...")
        raise InputError(
            f"`model` must be a hub name, a local folder or one of {', '.join(PACKAGED)}; "
            f"{shown} could not be loaded ({type(error).__name__}: {_first_sentence(error)})"
        ) from error
    return model, tokenizer, tuple(sorted(info["missing_keys"]))


def _first_sentence(error: Exception) -> str:
    return re.split(r"(?<=\.)\s|\n", str(error).strip())[0][:200]
