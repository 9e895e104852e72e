"""What a run record says of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tda_bias.records.record import HookedModelRecord, ModelRecord

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel, LoadedModel


def model_record(model: LanguageModel, *, weights: str) -> ModelRecord:
    """The model as it was run; ``weights`` is its ``weight_hash``."""
    return ModelRecord(**_about(model, weights))


def hooked_model_record(model: LoadedModel, *, weights: str) -> HookedModelRecord:
    """The same, with what of its attention was hooked."""
    return HookedModelRecord(
        **_about(model, weights),
        attention=model.attention,
        layers=tuple(model.pattern_hooks.values()),
    )


def _about(model: LanguageModel, weights: str) -> dict[str, Any]:
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
