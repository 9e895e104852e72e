"""A changed model as files: those of its original, with the changed weights in their places.

What a model is loaded for is not all that its checkpoint has: of a model of images and texts the
part that reads images can be left out, and so are weights that are not used, and digits of those
kept in a finer type than the rest. Whatever was not changed is taken from the original's files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tda_bias.models.adapters import is_adapter
from tda_bias.models.language_model import LanguageModel, common_prefix
from tda_bias.models.load import read_config
from tda_bias.models.packaged import local_source
from tda_bias.store.files import to_json
from tda_bias.types import InputError

# As transformers looks for them.
_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# What belongs to a model beside its weights, its configuration and its tokenizer.
_FURTHER_FILES = (
    "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "chat_template.json", "chat_template.jinja",
)  # fmt: skip
# Configurations call the switch that adds biases to attention so.
BIAS_SWITCH = "attention_bias"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint by name, each read when it is asked for.

    Attributes:
        files: The file that holds each tensor.
    """

    files: Mapping[str, Path]

    def tensor(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the type it is stored in."""
        path = self.files[name]
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "pt") as stored:
                tensor: Tensor = stored.get_tensor(name)
                return tensor
        return _pickled(path)[name]


@cache
def _pickled(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a pickled checkpoint, which stay on the disk until they are used."""
    tensors: Mapping[str, Tensor] = torch.load(path, "cpu", weights_only=True, mmap=True)
    return tensors


def checkpoint_of(name: str, revision: str | None = None) -> Checkpoint | None:
    """The checkpoint of a model by its name, as ``load_language_model`` finds it.

    None where there is no file of weights, as of a model that was made in memory.
    """
    for file in _WEIGHT_FILES:
        path = _found(name, file, revision)
        if path is None:
            continue
        if path.name.endswith(".index.json"):
            shards: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
            there = {shard: _found(name, shard, revision) for shard in set(shards.values())}
            return Checkpoint({key: Path(str(there[shard])) for key, shard in shards.items()})
        return Checkpoint(dict.fromkeys(_names_in(path), path))
    return None


def _found(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a model's folder or repository, if it is there."""
    from transformers.utils.hub import cached_file

    try:
        path = cached_file(
            local_source(name),
            file,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except OSError:  # no such repository
        return None
    return None if path is None else Path(path)


def _names_in(path: Path) -> list[str]:
    if path.suffix != ".safetensors":
        return list(_pickled(path))
    from safetensors import safe_open

    with safe_open(path, "pt") as stored:
        return list(stored.keys())


def save_changed(model: LanguageModel, before: Mapping[str, Tensor], folder: Path) -> None:
    """Write a model that was changed after it was loaded, so that it loads anywhere.

    Args:
        model: The changed model, without hooks.
        before: Its parameters and buffers as they were loaded, by name, in any precision that holds
            them.
        folder: An empty folder.

    Raises:
        InputError: if its original holds parts that were not loaded, and the places of the changed
            weights in its files cannot be told.
    """
    original = None if is_adapter(model.name) else checkpoint_of(model.name, model.revision)
    ours = _ours(model, before, original) if original is not None else None
    if original is None or ours is None:
        _refuse_parts(model)
        model.hf_model.save_pretrained(folder)
    else:
        model.hf_model.config.save_pretrained(folder)
        _write_weights(folder, original, ours)
        _write_further_files(folder, model)
    model.tokenizer.save_pretrained(folder)


def _refuse_parts(model: LanguageModel) -> None:
    """Refuse to write a model as if it were whole whose original has further parts."""
    try:
        whole = read_config(model.name)
    except InputError:
        return  # made in memory
    if type(whole) is not type(model.hf_model.config):
        raise InputError(
            f"`model` {model.name} ({type(whole).__name__}) has parts beside its language model, "
            "and what was changed cannot be put into its files; give a folder with the whole "
            "model's weights"
        )


def _ours(
    model: LanguageModel, before: Mapping[str, Tensor], original: Checkpoint
) -> dict[str, Tensor] | None:
    """The changed and the added weights by their names in the original's files.

    None if the place of one cannot be told: some checkpoints keep weights in another form.
    """
    ours: dict[str, Tensor] = {}
    placed: dict[int, bool] = {}  # by memory: of tied weights one place is enough
    for name, value in model.hf_model.named_parameters(remove_duplicate=False):
        earlier = before.get(name)
        if earlier is not None and _same(value, earlier):
            continue
        key = _place(name, before, original)
        if key is not None:
            ours[key] = value.detach().cpu()
        placed[value.data_ptr()] = placed.get(value.data_ptr(), False) or key is not None
    return ours if all(placed.values()) else None


def _place(name: str, before: Mapping[str, Tensor], original: Checkpoint) -> str | None:
    """Name of a parameter in the files, which may call the parts around it otherwise.

    Of tensors whose names end alike it is the one with the longest common end that holds the
    parameter as it was. A bias that was added stands beside its weights.
    """
    if name not in before:
        beside = f"{name.removesuffix('.bias')}.weight"
        weight = _place(beside, before, original) if beside in before else None
        return None if weight is None else f"{weight.removesuffix('.weight')}.bias"
    shared = {key: _shared_end(key, name) for key in original.files}
    alike = [key for key, n in shared.items() if n >= 2 or key == name]
    for key in sorted(alike, key=lambda key: -shared[key]):
        if _same(before[name], original.tensor(key)):
            return key
    return None


def _shared_end(key: str, name: str) -> int:
    """Number of parts that two names share at their ends."""
    return common_prefix(key.split(".")[::-1], name.split(".")[::-1])


def _same(value: Tensor, earlier: Tensor) -> bool:
    """Tell whether a tensor holds the numbers of another one, as far as its type can."""
    first = value.detach().cpu()
    return first.shape == earlier.shape and torch.equal(first, earlier.detach().cpu().to(first))


def _write_weights(folder: Path, original: Checkpoint, ours: Mapping[str, Tensor]) -> None:
    """Write the original's files with our tensors in the place of its own, added ones last."""
    from safetensors.torch import save_file

    shards: dict[Path, list[str]] = {}
    for key, path in original.files.items():
        shards.setdefault(path, []).append(key)
    list(shards.values())[-1].extend(key for key in ours if key not in original.files)
    weight_map: dict[str, str] = {}
    size = 0
    for number, keys in enumerate(shards.values(), start=1):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        # Copies: tensors of a pickled file may share their memory, which safetensors refuses.
        tensors = {
            key: (ours[key] if key in ours else original.tensor(key)).contiguous().clone()
            for key in keys
        }
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(keys, file)
        size += sum(tensor.nbytes for tensor in tensors.values())
    if len(shards) > 1:
        about = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / _INDEX).write_text(to_json(about), encoding="utf-8")


def _write_further_files(folder: Path, model: LanguageModel) -> None:
    """Give a folder what belongs to the original beside weights, and its whole configuration.

    Of the changed model's configuration come the type of the weights, and the switch for biases.
    """
    for file in _FURTHER_FILES:
        found = _found(model.name, file, model.revision)
        if found is not None:
            shutil.copy(found, folder / file)
    found = _found(model.name, "config.json", model.revision)
    if found is None:
        return
    whole: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))
    for part in (whole, *(value for value in whole.values() if isinstance(value, dict))):
        part |= {name: model.dtype_name for name in ("dtype", "torch_dtype") if name in part}
    text, config = whole.get("text_config", whole), model.hf_model.config.get_text_config()
    if getattr(config, BIAS_SWITCH, False):
        text[BIAS_SWITCH] = True
    (folder / "config.json").write_text(to_json(whole), encoding="utf-8")
