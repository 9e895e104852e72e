"""Neutral passages: of a text, or written by the model itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tda_bias.debias.training_data import refuse_evaluation_only
from tda_bias.models.language_model import special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.scores.perplexity import Windows, text_windows
from tda_bias.show.text import counted
from tda_bias.sources import NeutralText, load_neutral_text
from tda_bias.stats.seeds import generator
from tda_bias.store.settings import given_as
from tda_bias.types import InputError

SELF = "self"
# Words that passages begin with, and passages that are written side by side.
_FIRST_WORDS, _SIDE_BY_SIDE = 2000, 80


@dataclass(frozen=True)
class NeutralPassages:
    """Passages of neutral text in three parts that share no token.

    The divergence from the original is held down on ``learn``, the perplexity watched on ``watch``
    while training and reported on ``report``. The source is ``self`` for passages that the model
    wrote; the revision pins its content.
    """

    learn: Windows
    watch: Windows
    report: Windows
    source: str
    revision: str | None


def retention_text(source: str) -> NeutralText:
    """Read a neutral text that may be trained on.

    Raises:
        InputError: as ``load_neutral_text`` and ``refuse_evaluation_only``, about ``text``.
    """
    with given_as("text"):
        refuse_evaluation_only(source)
        return load_neutral_text(source)


def neutral_text(
    model: LanguageModel,
    source: str = SELF,
    *,
    n_learn: int = 96,
    n_watch: int = 32,
    width: int = 64,
    seed: int = 0,
) -> NeutralPassages:
    """Neutral text for a causal model: passages of so many tokens, as many to report as to watch.

    ``self`` are passages that the model itself writes, from which any model's divergence can be
    estimated without other texts; else the source is ``wikitext2`` or a text file.

    Raises:
        InputError: if the text cannot be read, or is too short for three parts.
    """
    sizes = {"learn": n_learn, "watch": n_watch, "report": n_watch}
    if source == SELF:
        parts, ids = {}, written_passages(model, sum(sizes.values()), width, seed=seed)
        for name, n in sizes.items():
            rows, ids = tuple(map(tuple, ids[:n])), ids[n:]
            parts[name] = Windows(rows, (1,) * n, 0, width, width, n)
        return NeutralPassages(**parts, source=SELF, revision=f"seed {seed}")
    text = retention_text(source)
    n_leading = min(len(special_tokens_around(model.tokenizer)[0]), width - 2)
    whole = text_windows(model, text.text, width=width, stride=width - n_leading)
    if whole.of < sum(sizes.values()):
        raise InputError(
            f"the neutral text {source} gives {counted(whole.of, 'passage')} of {width} tokens; "
            f"{sum(sizes.values())} are needed, in three parts"
        )
    # Parts follow each other in the text: what is reported on lies far from what was learned.
    cuts = np.linspace(0, whole.of, 4).astype(int)
    rng = generator(seed)
    parts = {}
    for (name, n), a, b in zip(sizes.items(), cuts, cuts[1:], strict=False):
        drawn = np.sort(rng.choice(np.arange(a, b), min(n, b - a), replace=False))
        parts[name] = replace(
            whole,
            ids=tuple(whole.ids[i] for i in drawn),
            first=tuple(whole.first[i] for i in drawn),
        )
    return NeutralPassages(**parts, source=text.source, revision=text.revision)


@torch.inference_mode()
def written_passages(model: LanguageModel, n: int, width: int, *, seed: int = 0) -> list[list[int]]:
    """Passages that a causal model writes: token by token, drawn from its own probabilities.

    Each begins with a capitalised word of its vocabulary, so that no two need be alike.

    Raises:
        InputError: if the vocabulary has too few such words.
    """
    model.check_length(width)
    rng = torch.Generator().manual_seed(seed)
    words = _first_words(model)[:_FIRST_WORDS]
    begin = [words[int(i)] for i in torch.randint(len(words), (n,), generator=rng)]
    hf_model: Any = model.hf_model
    written = []
    for start in range(0, n, _SIDE_BY_SIDE):
        rows = torch.tensor(begin[start : start + _SIDE_BY_SIDE], device=model.device)[:, None]
        last, past = rows, None
        for _ in range(width - 1):
            output = hf_model(input_ids=last, past_key_values=past, use_cache=True)
            past = getattr(output, "past_key_values", None)
            # Drawn by one number each: `multinomial` draws one for each token of the vocabulary.
            chances = torch.softmax(output.logits[:, -1].double(), -1).cpu().cumsum(-1)
            place = chances[:, -1:] * torch.rand(len(rows), 1, dtype=torch.double, generator=rng)
            drawn = torch.searchsorted(chances, place, right=True).to(model.device)
            rows = torch.cat([rows, drawn], 1)
            last = rows if past is None else drawn  # a model without a cache reads all again
        written += rows.tolist()
    return written


def _first_words(model: LanguageModel) -> list[int]:
    special = set(model.tokenizer.all_special_ids)
    vocabulary = sorted(model.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    plain = [(token.strip("Ġ▁ "), number) for token, number in vocabulary if number not in special]
    capitalised = [i for word, i in plain if word.isascii() and word.isalpha() and word.istitle()]
    if len(capitalised) < 2:
        raise InputError(
            f"`text` self: {model.name} has no capitalised words in its vocabulary to begin "
            "passages with; give a text file"
        )
    return capitalised
