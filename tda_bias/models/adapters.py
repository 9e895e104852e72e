"""Adapters: small sets of weights that change a model which lies elsewhere, merged into it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from os.path import exists, isfile, join
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tda_bias.models.language_model import LanguageModel
from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ADAPTER = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
# Any of them means that an adapter was saved with the tokenizer it was trained with.
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.json",
    "vocab.txt",
)  # fmt: skip
# Differences of logits, relative to the largest, that merging makes by rounding alone.
_ROUNDING = {torch.float64: 1e-4, torch.float32: 1e-3}
_ROUNDING_OF_HALF = 0.1
_PROBE = "They said that it was late, and that she and he had seen them."


def is_adapter(name: str) -> bool:
    """Tell whether a folder holds an adapter in place of a model."""
    # Unlike pathlib, these take any name: what no file system takes is no folder.
    return isfile(join(name, _ADAPTER)) and not exists(join(name, "config.json"))


def has_tokenizer(name: str) -> bool:
    """Tell whether a folder holds a tokenizer."""
    return any(isfile(join(name, file)) for file in _TOKENIZER_FILES)


def base_of(name: str) -> str:
    """The model that an adapter changes.

    Raises:
        InputError: if the adapter names none, or another adapter.
    """
    base = _about(name).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise InputError(
            f"`model` {name}: {_ADAPTER} names no base model (base_model_name_or_path)"
        )
    if isfile(join(base, _ADAPTER)):
        raise InputError(
            f"`model` {name}: {_ADAPTER} names an adapter as its base, {base}; merge that first"
        )
    return base


def check_adapter(name: str) -> None:
    """Make sure, before its base is loaded, that an adapter can be merged.

    Raises:
        InputError: if peft is not installed, the adapter has no weights, or it is of a kind that
            adds to the inputs in place of changing weights.
    """
    try:
        from peft import PromptLearningConfig
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
    except ImportError:
        raise InputError(
            f"`model` {name} is an adapter; reading it needs peft: pip install 'tdabias[lora]'"
        ) from None
    kind = _about(name).get("peft_type")
    config, tuner = (
        next((found for known, found in mapping.items() if str(known.value) == kind), None)
        for mapping in (PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING)
    )
    if config is None:
        raise InputError(f"`model` {name}: {_ADAPTER} names the kind {kind!r}, unknown to peft")
    if issubclass(config, PromptLearningConfig) or not hasattr(tuner, "merge_and_unload"):
        raise _cannot_be_merged(name)
    if not any(isfile(join(name, file)) for file in _WEIGHTS):
        raise InputError(f"`model` {name}: this adapter has no weights ({_WEIGHTS[0]})")


def merged(base: LanguageModel, name: str) -> LanguageModel:
    """The base of an adapter with the adapter's weights merged into its own.

    Where the adapter was trained on more or fewer tokens than the base has rows of embeddings, its
    own embeddings take the place of the base's.

    Raises:
        InputError: if the adapter does not fit the base, or if the merged model answers otherwise
            than the base with the adapter.
    """
    from peft import PeftModel

    weights = base.weight_hash()
    try:
        with warnings.catch_warnings():
            # What peft asks transformers for by an older name is none of the user's business.
            warnings.simplefilter("ignore", FutureWarning)
            # What the adapter lacks would be made up, and peft only warns of it.
            warnings.filterwarnings("error", ".*(missing|unexpected).*")
            # That merging changes tied weights, which is looked for below.
            warnings.filterwarnings("ignore", ".*tie_word_embeddings.*")
            _resize(base.hf_model, name)
            adapted: Any = PeftModel.from_pretrained(base.hf_model, name)
            before = _probed(adapted.eval(), base)
            whole = adapted.merge_and_unload().eval()
    except InputError:
        raise
    except NotImplementedError:
        raise _cannot_be_merged(name) from None
    except Exception as error:  # peft and torch raise many kinds for weights that do not fit
        said = str(error).strip().split("\n")[-1].strip()[:160]
        raise InputError(
            f"`model` {name}: this adapter does not fit its base {base.name} ({said})"
        ) from error
    _refuse_changed(before, _probed(whole, base), name)
    return replace(base, hf_model=whole, name=name, adapted=weights)


def _about(name: str) -> dict[str, Any]:
    """The configuration of an adapter."""
    try:
        about = json.loads((Path(name) / _ADAPTER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise InputError(f"`model` {name}: {_ADAPTER} cannot be read as JSON")
    return about


def _cannot_be_merged(name: str) -> InputError:
    kind = _about(name).get("peft_type")
    return InputError(
        f"`model` {name}: an adapter of the kind {kind} adds to what the model reads or computes "
        "and cannot be merged into its weights; give one that changes weights (LoRA, IA3 ...), or "
        "a whole model"
    )


def _resize(model: PreTrainedModel, name: str) -> None:
    """Give a base as many rows of embeddings as its adapter was saved with.

    Raises:
        InputError: if rows would be new that the adapter has no weights for.
    """
    from peft.utils.save_and_load import load_peft_weights

    stored = load_peft_weights(name, device="cpu")
    reads, writes = model.get_input_embeddings(), model.get_output_embeddings()
    rows = _rows_of(model, reads, stored)
    if rows is None or rows == reads.num_embeddings:
        return
    tied = writes is None or writes.weight is reads.weight
    if not tied and _rows_of(model, writes, stored) != rows:
        raise InputError(
            f"`model` {name}: this adapter has embeddings of {rows} tokens, its base of "
            f"{reads.num_embeddings}, and it holds no output weights of the others, which would be "
            "random; save it with save_embedding_layers=True"
        )
    model.resize_token_embeddings(rows, mean_resizing=False)


def _rows_of(model: PreTrainedModel, part: Any, stored: Mapping[str, Tensor]) -> int | None:
    """Number of tokens that an adapter holds whole weights of a part for; None if for none."""
    (place,) = (place for place, module in model.named_modules() if module is part)
    shapes = [
        value.shape
        for key, value in stored.items()
        if f".{place}." in key and key.endswith("weight") and "lora_" not in key
    ]
    return int(shapes[0][0]) if shapes else None


@torch.no_grad()
def _probed(model: Any, base: LanguageModel) -> Tensor:
    """What a model answers to a sentence."""
    ids = torch.tensor([base.tokenizer(_PROBE)["input_ids"]], device=base.device)
    inputs = {"input_ids": ids}
    if base.hf_model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    answer: Tensor = model(**inputs, return_dict=True)[0]
    return answer


def _refuse_changed(before: Tensor, after: Tensor, name: str) -> None:
    """Refuse a merged model that is another than the base with its adapter.

    Weights that are tied change together when one of them is merged.
    """
    rounding = _ROUNDING.get(before.dtype, _ROUNDING_OF_HALF)
    change = (after - before).abs().max() / before.abs().max()
    if not change <= rounding:
        raise InputError(
            f"`model` {name}: merged into its base this adapter answers otherwise (by "
            f"{float(change):.1%} of the largest answer): does it change one of two tied weights? "
            "Give a whole model in its place"
        )
