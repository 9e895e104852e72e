"""Is a model the head paper's GPT-2? What it does tells, not what it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from tda_bias.show.text import counted
from tda_bias.store.hashes import text_hash
from tda_bias.store.record import ModelRecord
from tda_bias.types import Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

# Published log-likelihoods have six decimals; single precision and kernels change the fourth.
_SAME = 0.01
# The size in bytes of the hashes by which ``published.yaml`` names texts.
_HASH_BYTES = 8


@cache
def published() -> dict[str, Any]:
    """The numbers that the paper prints, and what tells its model, with their sources."""
    text = files("tda_bias.data").joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def has_papers_size(model: ModelRecord) -> bool:
    """Tell whether a model has as many parameters and tokens as the paper's."""
    size: dict[str, int] = published()["heads"]["size"]
    return size == {"parameters": model.parameters, "vocabulary": model.vocabulary}


def published_likelihoods(triples: Iterable[Triple]) -> dict[str, float]:
    """Published mean log-likelihoods of the paper's model, by those of the texts that have one.

    Returns:
        Nats per token; empty where the triples are not StereoSet's.
    """
    by_hash: Mapping[str, float] = published()["heads"]["mean_log_likelihoods"]
    texts = {text_hash(t, size=_HASH_BYTES): t for triple in triples for t in triple.texts()}
    return {texts[name]: value for name, value in by_hash.items() if name in texts}


def largest_difference(model: LanguageModel, likelihoods: Mapping[str, float]) -> float:
    """How far mean log-likelihoods of texts lie from other ones at most, nats per token.

    The mean is over all tokens of a text but the first, which nothing predicts.

    Raises:
        InputError: as ``TextReader.read``.
    """
    # Torch, which pages and tables of finished runs do without.
    from tda_bias.scores.likelihood import TextReader
    from tda_bias.scores.texts import Contrast

    contrasts = [Contrast((text,)) for text in likelihoods]
    [read] = TextReader(model).read(contrasts).values()
    pairs = zip(read, likelihoods.values(), strict=True)
    return max(abs(float(tokens.mean()) - value) for (tokens,), value in pairs)


def why_another(
    record: ModelRecord, likelihoods: Mapping[str, float], difference: float | None
) -> str | None:
    """Say why a model is not the paper's, or cannot be known to be; None where it is.

    Args:
        record: The model as it was run.
        likelihoods: From ``published_likelihoods``.
        difference: ``largest_difference`` from them; None where it was not measured.
    """
    if not has_papers_size(record):
        return f"another model ({record.name})"
    if not likelihoods or difference is None:
        return (
            f"a model that nothing shows to be the paper's ({record.name} has GPT-2's parameters "
            "and vocabulary; `tdabias reproduce` compares its log-likelihoods of StereoSet's texts)"
        )
    if difference > _SAME:
        return (
            f"another model ({record.name} has GPT-2's parameters and vocabulary, but its mean "
            f"log-likelihood of {counted(len(likelihoods), 'text')} is up to {difference:.2f} nats "
            "per token off the published one)"
        )
    return None
