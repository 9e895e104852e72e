"""Neutral running text: what perplexity and the divergence of two models are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tda_bias.sources import commit_of, hash_of, hub_split, located, text_of

WIKITEXT2 = "wikitext2"
_HUB_NAME, _HUB_CONFIG, _HUB_SPLIT = "Salesforce/wikitext", "wikitext-2-raw-v1", "test"
_FILE = "wikitext-2-raw-v1_test.txt"


@dataclass(frozen=True)
class NeutralText:
    """A text to be read from beginning to end.

    Attributes:
        text: The text.
        source: Where it was read.
        revision: What pins its content: the hub's commit, or a hash of the file's bytes.
    """

    text: str
    source: str
    revision: str | None


def load_neutral_text(source: str | Path = WIKITEXT2) -> NeutralText:
    """A neutral text.

    Args:
        source: ``wikitext2`` (the hub's test split, paragraphs joined by an empty line), a text
            file, or a folder with ``wikitext-2-raw-v1_test.txt``.

    Raises:
        InputError: if it cannot be read or is empty.
    """
    if str(source) == WIKITEXT2:
        split = hub_split(_HUB_NAME, _HUB_CONFIG, _HUB_SPLIT)
        return NeutralText("\n\n".join(split["text"]), WIKITEXT2, commit_of(split))
    (path,) = located(source, _FILE)
    text = text_of(path)
    return NeutralText(text, str(path), hash_of(text))
