"""What a run record says of its model, its texts and the packages that computed it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tda_bias.batches import TokenizedTriple
from tda_bias.storage import texts_hash

if TYPE_CHECKING:
    from tda_bias.models import LanguageModel, LoadedModel

_PACKAGES = (
    "datasets gudhi numpy pandas pyarrow scipy tokenizers torch transformer-lens transformers"
)


def model_record(model: LanguageModel, *, weights: str) -> dict[str, Any]:
    """The model as it was run; ``weights`` is its ``weight_hash``."""
    return {
        "name": model.name,
        "architecture": model.architecture,
        "revision": model.revision,
        "weights": weights,
        "dtype": model.dtype_name,
        "device": str(model.device),
        "parameters": model.n_parameters,
        "tokenizer": type(model.tokenizer).__name__,
        "vocabulary": len(model.tokenizer),
    }


def attention_record(model: LoadedModel) -> dict[str, Any]:
    """What of the model's attention was hooked."""
    return {"attention": model.attention, "layers": list(model.pattern_hooks.values())}


def texts_record(
    groups: Mapping[tuple[str, str], Sequence[TokenizedTriple]], left_out: list[dict[str, str]]
) -> dict[str, Any]:
    """What was compared, what was left out and why, and a hash of all token ids."""
    everything = [triple for triples in groups.values() for triple in triples]
    return {
        "groups": len(groups),
        "triples_used": len(everything),
        "triples_left_out": left_out,
        "tokens": sum(sum(triple.n_tokens) for triple in everything),
        "tokens_with_prefixes_once": sum(triple.n_packed for triple in everything),
        "hash": texts_hash([triple.ids for triple in everything]),
    }


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages whose numbers these are."""
    found = {name: version(name) for name in _PACKAGES.split()}
    return {**found, "python": platform.python_version()}
