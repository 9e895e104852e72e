"""A model as a run record describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tda_bias.runs.record import HookedModelRecord, ModelRecord

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel, LoadedModel


def model_record(model: LanguageModel, *, weights: str) -> ModelRecord:
    """The model as it was run; ``weights`` is its ``weight_hash``."""
    return ModelRecord(
        name=model.name,
        architecture=model.architecture,
        revision=model.revision,
        weights=weights,
        dtype=model.dtype_name,
        device=str(model.device),
        parameters=model.n_parameters,
        tokenizer=type(model.tokenizer).__name__,
        vocabulary=len(model.tokenizer),
    )


def hooked_model_record(model: LoadedModel, *, weights: str) -> HookedModelRecord:
    """The same, with what of its attention was hooked."""
    hooked = {
        "attention": model.attention,
        "layers": tuple(model.pattern_hooks.values()),
        "patterns": "eager" if model.bridge is None else "transformer-lens",
    }
    return HookedModelRecord(**dict(model_record(model, weights=weights)), **hooked)
