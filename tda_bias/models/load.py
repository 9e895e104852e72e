"""A name or a path to a model that can be run, with the tokenizer as Hugging Face has it.

No code of the model's own is run, every layer comes from the checkpoint, and every token has a row
of embeddings.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from tda_bias.models.adapters import (
    base_of,
    check_adapter,
    has_tokenizer,
    is_adapter,
    merged,
)
from tda_bias.models.hooked import LoadedModel as LoadedModel
from tda_bias.models.hooked import bridge_model as bridge_model
from tda_bias.models.hooked import first_sentence
from tda_bias.models.language_model import LanguageModel as LanguageModel
from tda_bias.models.packaged import PACKAGED, local_source
from tda_bias.show.text import counted
from tda_bias.store.files import read_text
from tda_bias.store.settings import parse_yaml, shown_key
from tda_bias.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Head = Literal["language", "as_trained"]
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# Files in which a model folder can name Python files of its own.
_WITH_CODE = ("config.json", "tokenizer_config.json")
# Settings that can name compiled code on the hub, as owner/repository.
_IMPLEMENTATIONS = ("_attn_implementation", "_experts_implementation")
# Names that transformers knows for: evenly over devices, what is left over memory and disk.
_DEVICE_MAPS = ("auto", "balanced")

_log = logging.getLogger(__name__)


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
    load = partial(
        load_language_model,
        name, device=device, dtype=dtype, attention="eager", device_map=device_map,
    )  # fmt: skip
    loaded = load()
    loaded.require_body()
    return bridge_model(
        loaded.hf_model,
        loaded.tokenizer,
        name=name,
        not_in_checkpoint=loaded.not_in_checkpoint,
        again=lambda: load().hf_model,
    )


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
        name: As in ``load_model``, or the folder of a PEFT adapter, merged into its base; its
            tokenizer is the one in that folder, if there is one.
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
        check_adapter(name)
    place = _device_of(device)
    parts = read_device_map(device_map) if device_map is not None else None
    if DTYPES[dtype].itemsize < 4:
        _log.warning("%s: attention patterns can be inexact or NaN; float32 is safe", dtype)
    options = {"dtype": DTYPES[dtype], "attn_implementation": attention, "device_map": parts}
    try:
        model, tokenizer, lacking = _from_pretrained(name, head, **options)
    except InputError as error:
        if not is_adapter(name):
            raise
        raise InputError(f"`model` {name} is an adapter, and its base: {error}") from error
    loaded = LanguageModel(
        (model if parts is not None else model.to(place)).eval(),
        tokenizer,
        base_of(name) if is_adapter(name) else name,
        revision=getattr(model.config, "_commit_hash", None),
        not_in_checkpoint=lacking,
    )
    if is_adapter(name):
        loaded = merged(loaded, name)
    _check_tokenizer(name, loaded.hf_model, tokenizer)
    return loaded


def _from_pretrained(
    name: str, head: Head, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, tuple[str, ...]]:
    """Model, tokenizer, and the names of the weights that the checkpoint lacks.

    Of an adapter, they are its base's, and its own tokenizer where it has one.
    """
    folder, own = name, {}
    config = read_config(name)
    if is_adapter(folder):
        _refuse_code_in_folder(folder)
        name = base_of(folder)
        own = {"config": config} if has_tokenizer(folder) else {}  # such a folder has no config
    quantised = quantisation(config)
    with _in_one_line(name):
        from transformers import AutoTokenizer

        source = local_source(name)
        tokenizer = AutoTokenizer.from_pretrained(
            folder if own else source, trust_remote_code=False, **own
        )
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
        differing = sorted(info["mismatched_keys"])  # names, with shapes in the file and the model
        if differing:
            key, stored, built = differing[0]
            raise InputError(
                f"`model` {name}: its weights and its config.json are of two models: {key} is "
                f"{list(stored)} in the checkpoint, {list(built)} by config.json "
                f"({counted(len(differing), 'parameter differs', 'parameters differ')})"
            )
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if quantised is not None and dtypes <= set(DTYPES.values()):
        _log.warning(
            "%s: its config.json says that its weights are quantised (%s); they are read as %s",
            name, quantised, options["dtype"],
        )  # fmt: skip
    return model, tokenizer, tuple(sorted(info["missing_keys"]))


def read_config(name: str) -> Any:
    """The configuration of a model, of an adapter that of its base; no code of its own is run."""
    if is_adapter(name):
        return read_config(base_of(name))
    _refuse_code_in_folder(name)
    with _in_one_line(name):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(local_source(name), trust_remote_code=False)
        for part in (config, config.get_text_config()):
            part.return_dict = True  # a checkpoint may ask for tuples, which nothing here reads
        for setting in _IMPLEMENTATIONS:
            value = getattr(config, setting, None)
            if isinstance(value, str) and "/" in value:
                raise InputError(
                    f"`model` {name}: its configuration asks for compiled code from the hub "
                    f"({setting.lstrip('_')} {value!r}), which is never run; delete that entry"
                )
    return config


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Turn the hub's and the readers' errors, which are of many kinds, into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        shown = repr(name if len(name) <= 200 else f"{name[:200]}...")
        if name.lower().endswith(".gguf"):
            raise InputError(f"`model` {shown}: there is no such GGUF file") from error
        raise InputError(
            f"`model` must be a hub name, a local folder, a GGUF file or one of "
            f"{', '.join(PACKAGED)}; {shown} could not be loaded ({type(error).__name__}: "
            f"{first_sentence(error)})"
        ) from error


# -- a checkpoint and its checks -------------------------------------------------------------------


def _refuse_code_in_folder(source: str) -> None:
    """Refuse a local folder that names code of its own: without it, texts may be read otherwise."""
    for name in _WITH_CODE:
        try:
            content = json.loads((Path(source) / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue  # no folder, or a file that the loader itself will refuse
        if isinstance(content, dict) and "auto_map" in content:
            raise InputError(
                f"`model` {source}: its {name} names Python code (auto_map), which is never run; "
                "if transformers knows the architecture without it, delete that entry"
            )


def quantisation(config: Any) -> str | None:
    """The method by which a configuration says that its weights are quantised; None if none."""
    stored = getattr(config, "quantization_config", None)
    if stored is None:
        return None
    method = stored.get("quant_method") if isinstance(stored, dict) else stored.quant_method
    return str(getattr(method, "value", method))


def _check_tokenizer(
    name: str, hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuse a tokenizer without words, or with tokens that the model has no embedding for.

    Special tokens that texts do not hold unless they are spelt out (padding, added ones) do not
    count; added words do.
    """
    vocabulary, added = tokenizer.get_vocab(), set(tokenizer.get_added_vocab())
    if len(set(vocabulary) - added - set(tokenizer.all_special_tokens)) < 2:
        # What transformers makes where there is none.
        raise InputError(
            f"`model` {name} has no tokenizer: its folder lacks tokenizer.json or its like; save "
            "the tokenizer there too"
        )
    rows = getattr(hf_model.get_input_embeddings(), "num_embeddings", None)
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    used = {token: i for token, i in vocabulary.items() if token not in added & special}
    pairs = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
    used |= {token: i for token, i in pairs if token != tokenizer.pad_token}
    index, token = max((index, token) for token, index in used.items())
    if rows is not None and index >= rows:
        raise InputError(
            f"`model` {name} has embeddings for {rows} tokens, but its tokenizer knows more "
            f"({token!r} is number {index}): they do not belong together"
        )


def auto_class(config: Any, head: Head) -> Any:
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


# -- devices ---------------------------------------------------------------------------------------


def visible_gpus() -> list[str]:
    """Names of the CUDA GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` has them."""
    if not torch.cuda.is_available():
        return []
    numbers = map(str, range(torch.cuda.device_count()))
    return os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(numbers)).split(",")


def _device_of(device: str) -> torch.device:
    """The device that is asked for; ``auto`` is a GPU, each process's own, or the CPU."""
    if device == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        # srun numbers the processes of a machine.
        number = int(os.environ.get("SLURM_LOCALID", 0))
        return torch.device("cuda", number % torch.cuda.device_count())
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError):
        place = None
    if place is None or place.type == "meta":  # which holds no values
        raise InputError(
            f"`device` must be auto, cpu, cuda, cuda:N or mps, and present; got {device!r}"
        )
    return place


def read_device_map(source: str) -> str | dict[str, str | int]:
    """A device map by its name, or from a YAML or JSON file, as accelerate takes it.

    Names of parts to devices (``cuda:0`` or 0), ``cpu`` or ``disk``. Parts that are not on a device
    where they can be run are brought there when they are, one at a time.
    """
    if source in _DEVICE_MAPS:
        return source
    text = read_text(source, setting="device_map", named=_DEVICE_MAPS)
    content = parse_yaml(text, f"`device_map` {source}")
    if not isinstance(content, dict) or not content:
        raise InputError(f"`device_map` {source} holds no names of parts with their devices")
    for number, (part, place) in enumerate(content.items(), start=1):
        try:
            kind = "disk" if place == "disk" else torch.device(place).type
        except (RuntimeError, TypeError, ValueError):
            kind = "meta"
        if kind == "meta" and not isinstance(place, int):
            raise InputError(
                f"`device_map` {source}: part {number}{shown_key(part)} must be on cpu, disk or a "
                "device (cuda:0)"
            )
    return {str(part): place for part, place in content.items()}
