"""PEFT adapters: small sets of weights that change a model which lies elsewhere."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from os.path import exists, isfile, join
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.models.language_model import LanguageModel

_CONFIG = "adapter_config.json"


def is_adapter(name: str) -> bool:
    """Tell whether a folder holds an adapter in place of a model."""
    # Unlike pathlib, these take any name: what no file system takes is no folder.
    return isfile(join(name, _CONFIG)) and not exists(join(name, "config.json"))


def adapted_model(name: str, load: Callable[[str], LanguageModel]) -> LanguageModel:
    """The model that an adapter names, with the adapter's weights merged into its own.

    Args:
        name: Folder of the adapter.
        load: Loads a model by its name.

    Raises:
        InputError: if peft is not installed, the adapter names no base or another one than it was
            made for, or it cannot be merged.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise InputError(
            f"`model` {name} is an adapter; reading it needs peft: pip install 'tdabias[lora]'"
        ) from None
    base = load(_base_of(name))
    weights = base.weight_hash()
    try:
        with warnings.catch_warnings():
            # What peft asks transformers for by an older name is none of the user's business.
            warnings.simplefilter("ignore", FutureWarning)
            # What the adapter lacks would be made up, and peft only warns of it.
            warnings.filterwarnings("error", ".*(missing|unexpected).*")
            adapted: Any = PeftModel.from_pretrained(base.hf_model, name)
            merged = adapted.merge_and_unload()
    except Exception as error:  # peft and torch raise many kinds for weights that do not fit
        said = str(error).strip().split("\n")[-1].strip()[:160]
        raise InputError(
            f"`model` {name}: this adapter does not fit its base {base.name} ({said})"
        ) from error
    return replace(base, hf_model=merged.eval(), name=name, adapted=weights)


def _base_of(name: str) -> str:
    path = Path(name) / _CONFIG
    try:
        base = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError, RecursionError):
        raise InputError(f"`model` {name}: {_CONFIG} cannot be read as JSON") from None
    if not isinstance(base, str) or not base:
        raise InputError(f"`model` {name}: {_CONFIG} names no base model (base_model_name_or_path)")
    if Path(base).resolve() == Path(name).resolve():
        raise InputError(f"`model` {name}: {_CONFIG} names the adapter itself as its base")
    if isfile(join(base, _CONFIG)):
        raise InputError(
            f"`model` {name}: {_CONFIG} names another adapter as its base, {base}; merge that first"
        )
    return base
