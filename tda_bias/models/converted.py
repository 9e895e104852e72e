"""Models brought into the form that transformers reads, once, in the user's cache folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import xxhash
from platformdirs import user_cache_path

from tda_bias.types import InputError

_log = logging.getLogger(__name__)
_MAGIC = b"GGUF"


def gguf_folder(name: str) -> Path | None:
    """Find the folder of a local GGUF file's dequantised model, made on first use.

    Args:
        name: As a model is asked for.

    Returns:
        The folder, in the user's cache; its name has the file's hash. None where the name is not
        that of a GGUF file.

    Raises:
        InputError: if the file is no GGUF, transformers cannot dequantise its architecture, the
            name is that of a folder with nothing but GGUF files, or the cache cannot be written.
    """
    path = Path(name)
    if os.path.isdir(path) and not (path / "config.json").exists():
        files = sorted(file.name for file in path.glob("*.gguf"))
        if files:
            raise InputError(f"`model` {name} holds GGUF files: give one, as {path / files[0]}")
    if path.suffix.lower() != ".gguf" or not os.path.isfile(path):
        return None
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InputError(f"`model` {name} is not a GGUF file: it does not begin with GGUF")
    return made_once(f"{path.stem}-{_hash(path)}", lambda folder: dequantise(path, folder))


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Find a folder of the user's cache; make it if it is not there.

    It is written next to its final place, then renamed: half a conversion is never found.

    Args:
        name: Name of the folder.
        make: Fills an empty folder.

    Raises:
        InputError: if the cache cannot be written.
    """
    folder = user_cache_path("tdabias") / name
    if folder.is_dir():
        return folder
    _log.info("making %s, once", folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    except OSError as error:
        raise InputError(
            f"a converted model is kept in {folder}, which cannot be made ({error.strerror}); "
            "name another cache folder with XDG_CACHE_HOME"
        ) from error
    try:
        make(unfinished)
        os.rename(unfinished, folder)
    except OSError:
        if not folder.exists():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def dequantise(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer as single-precision safetensors.

    Raises:
        InputError: if transformers does not know the file's architecture, naming those it knows.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
    except Exception as error:  # the readers' errors are of many kinds
        known = sorted(set(GGUF_SUPPORTED_ARCHITECTURES) - {"general", "tokenizer"})
        raise InputError(
            f"`model` {gguf} could not be read by transformers ({str(error)[:200]}); "
            f"it can dequantise these architectures: {', '.join(known)}"
        ) from error
    # The dequantised model still calls itself quantised and then refuses to be saved.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    clean = type(model)(type(model.config)(**settings))
    clean.load_state_dict(model.state_dict())
    clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _hash(path: Path) -> str:
    content = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            content.update(block)
    return str(content.hexdigest())
