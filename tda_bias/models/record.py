"""What a run record says of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel, LoadedModel


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
