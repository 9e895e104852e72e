"""The models that need no hub: their weights come in packages of the package index."""

from __future__ import annotations

from tda_bias.models.minilm import MINILM
from tda_bias.models.packaged import PackagedModel
from tda_bias.models.smollm2 import SMOLLM2


def packaged_models() -> dict[str, PackagedModel]:
    """All of them, by name."""
    return {model.name: model for model in (SMOLLM2, MINILM)}
