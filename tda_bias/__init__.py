"""Which attention heads carry a language model's stereotypes, and how sure are we.

The names below load on first use: importing the package does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tda_bias.config import HeadBiasConfig as HeadBiasConfig
    from tda_bias.heads.head_bias import head_bias as head_bias
    from tda_bias.heads.result import HeadBias as HeadBias
    from tda_bias.models.load import LanguageModel as LanguageModel
    from tda_bias.models.load import LoadedModel as LoadedModel
    from tda_bias.models.load import bridge_model as bridge_model
    from tda_bias.models.load import load_language_model as load_language_model
    from tda_bias.models.load import load_model as load_model
    from tda_bias.triples import load_triples as load_triples
    from tda_bias.types import HeadId as HeadId
    from tda_bias.types import InputError as InputError
    from tda_bias.types import Triple as Triple

_WHERE = {
    "HeadBias": "heads.result",
    "HeadBiasConfig": "config",
    "HeadId": "types",
    "InputError": "types",
    "LanguageModel": "models.load",
    "LoadedModel": "models.load",
    "Triple": "types",
    "bridge_model": "models.load",
    "head_bias": "heads.head_bias",
    "load_language_model": "models.load",
    "load_model": "models.load",
    "load_triples": "triples",
}
__all__ = list(_WHERE)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tdabias")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tda_bias.{_WHERE[name]}"), name)
