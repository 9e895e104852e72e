"""Models by name or path, and what they predict: read once, used by heads, words and questions.

The names below load on first use: importing this package does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tda_bias.models.hooked import LoadedModel as LoadedModel
    from tda_bias.models.hooked import bridge_model as bridge_model
    from tda_bias.models.hooked import initialised as initialised
    from tda_bias.models.hooked import untrained as untrained
    from tda_bias.models.language_model import LanguageModel as LanguageModel
    from tda_bias.models.load import load_language_model as load_language_model
    from tda_bias.models.load import load_model as load_model

_MODULE = {
    "LanguageModel": "language_model",
    "LoadedModel": "hooked",
    "bridge_model": "hooked",
    "initialised": "hooked",
    "load_language_model": "load",
    "load_model": "load",
    "untrained": "hooked",
}
__all__ = list(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tda_bias.models.{_MODULE[name]}"), name)
