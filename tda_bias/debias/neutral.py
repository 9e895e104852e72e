"""Neutral text to learn nothing from: where a model must stay what it was, and how that is held."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.debias.loss import divergence
from tda_bias.debias.stream import LowerLayers
from tda_bias.models.batching import padded, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import is_linear
from tda_bias.models.token_trees import below_each_other
from tda_bias.pairs.neutral import load_neutral_text
from tda_bias.runs.text import counted
from tda_bias.scores.perplexity import Windows, text_windows
from tda_bias.types import InputError

SELF = "self"
_CAPITALISED = 2000


@dataclass(frozen=True)
class NeutralText:
    """Passages of neutral text in three parts that share no token.

    Attributes:
        learn: What the divergence from the original is held down on.
        watch: What the perplexity is watched on while training.
        report: What it is reported on.
        source: ``self`` for passages that the model wrote, else where the text was read.
        revision: What pins its content.
    """

    learn: Windows
    watch: Windows
    report: Windows
    source: str
    revision: str | None


def neutral_text(
    model: LanguageModel,
    source: str = SELF,
    *,
    n_learn: int = 96,
    n_watch: int = 32,
    width: int = 64,
    seed: int = 0,
) -> NeutralText:
    """Neutral text for a model.

    Args:
        model: A causal language model.
        source: ``self``: passages that the model itself writes, from which any model's divergence
            can be estimated without a text of anybody else's; or ``wikitext2``, or a text file.
        n_learn: Passages to learn from.
        n_watch: Passages to watch, and as many to report on.
        width: Tokens of a passage.
        seed: Of what is written or drawn.

    Raises:
        InputError: if the text cannot be read, or is too short for three parts.
    """
    sizes = {"learn": n_learn, "watch": n_watch, "report": n_watch}
    if source == SELF:
        ids = written_passages(model, sum(sizes.values()), width, seed=seed)
        starts = np.cumsum([0, *sizes.values()])
        parts = {
            name: _as_windows(ids[a:b], width)
            for name, a, b in zip(sizes, starts, starts[1:], strict=False)
        }
        return NeutralText(**parts, source=SELF, revision=f"seed {seed}")
    text = load_neutral_text(source)
    whole = text_windows(model, text.text, width=width, stride=width - _n_leading(model, width))
    if whole.of < sum(sizes.values()):
        raise InputError(
            f"the neutral text {source} gives {counted(whole.of, 'passage')} of {width} tokens; "
            f"{sum(sizes.values())} are needed, in three parts"
        )
    # Parts follow each other in the text: what is reported on lies far from what was learned.
    cuts = np.linspace(0, whole.of, 4).astype(int)
    rng = np.random.default_rng(seed)
    parts = {}
    for (name, n), a, b in zip(sizes.items(), cuts, cuts[1:], strict=False):
        drawn = np.sort(rng.choice(np.arange(a, b), min(n, b - a), replace=False))
        parts[name] = replace(
            whole,
            ids=tuple(whole.ids[i] for i in drawn),
            first=tuple(whole.first[i] for i in drawn),
        )
    return NeutralText(**parts, source=text.source, revision=text.revision)


def _n_leading(model: LanguageModel, width: int) -> int:
    return min(len(special_tokens_around(model.tokenizer)[0]), width - 2)


def _as_windows(ids: Sequence[Sequence[int]], width: int) -> Windows:
    rows = tuple(tuple(row) for row in ids)
    return Windows(rows, (1,) * len(rows), 0, width, width, len(rows))


@torch.inference_mode()
def written_passages(
    model: LanguageModel, n: int, width: int, *, seed: int = 0, batch_size: int = 32
) -> list[list[int]]:
    """Passages that a causal model writes: token by token, drawn from its own probabilities.

    Each begins with a capitalised word of its vocabulary, so that no two need be alike.

    Args:
        model: The model.
        n: How many.
        width: Tokens of each.
        seed: Of the draws.
        batch_size: Passages written side by side.

    Raises:
        InputError: if the vocabulary has too few such words.
    """
    model.check_length(width)
    rng = torch.Generator().manual_seed(seed)
    words = _first_words(model)
    begin = [words[int(i)] for i in torch.randint(len(words), (n,), generator=rng)]
    hf_model: Any = model.hf_model
    written = []
    for start in range(0, n, batch_size):
        rows = torch.tensor(begin[start : start + batch_size], device=model.device)[:, None]
        last, past = rows, None
        for _ in range(width - 1):
            output = hf_model(input_ids=last, past_key_values=past, use_cache=True)
            past = output.past_key_values
            chances = torch.softmax(output.logits[:, -1].double(), -1).cpu()
            last = torch.multinomial(chances, 1, generator=rng).to(model.device)
            rows = torch.cat([rows, last], 1)
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
    return capitalised[:_CAPITALISED]


class Retention:
    """The divergence of a model from what it was, over passages of neutral text.

    The original's predictions are kept as the input of the output embeddings where these are all
    that follows (one row of the model's width per token), else as logits.

    Args:
        model: The model, not yet changed.
        windows: The passages.
        head_changes: Whether the output embeddings will be trained too; a copy is then kept.
        batch_size: Passages per forward pass.
    """

    def __init__(
        self,
        model: LanguageModel,
        windows: Windows,
        *,
        head_changes: bool = False,
        batch_size: int = 8,
    ) -> None:
        self._model = model
        self._ids = [list(window) for window in windows.ids]
        head: Any = model.hf_model.get_output_embeddings()
        inputs = self._inputs([0])
        place = torch.zeros(1, dtype=torch.long, device=model.device)
        self._head: nn.Module | None = None
        if is_linear(model.hf_model, inputs, place):
            self._head = _copied(head) if head_changes else head
        self._kept: list[Tensor] = []
        for start in range(0, len(self._ids), batch_size):
            rows = range(start, min(start + batch_size, len(self._ids)))
            self._kept += self._read(head, rows)

    def __len__(self) -> int:
        return len(self._ids)

    def divergence(
        self, passages: Sequence[int], *, below: LowerLayers | None = None
    ) -> Float[Tensor, ""]:
        """KL(original || now), mean over the tokens of some passages, nats."""
        kept = torch.cat([self._kept[i] for i in passages])
        if self._head is not None:
            with torch.no_grad():
                kept = self._head(kept)
        return divergence(kept, self._logits(passages, below))

    def log_perplexity(
        self, passages: Sequence[int], *, below: LowerLayers | None = None
    ) -> Float[Tensor, ""]:
        """Mean negative log-probability of the next tokens of some passages, nats."""
        logits = self._logits(passages, below)
        tokens = [self._ids[i][1:] for i in passages]
        ends = np.cumsum([len(self._ids[i]) for i in passages]) - 1
        kept = np.setdiff1d(np.arange(len(logits)), ends)
        target = torch.tensor([t for window in tokens for t in window], device=logits.device)
        return nn.functional.cross_entropy(logits[torch.from_numpy(kept).to(logits.device)], target)

    def _logits(
        self, passages: Sequence[int], below: LowerLayers | None
    ) -> Float[Tensor, "token vocabulary"]:
        """At every token of the passages, one after the other."""
        inputs = self._inputs(passages)
        if below is None:
            logits = self._model.hf_model(**inputs).logits
        else:
            ids = [self._ids[i] for i in passages]
            names, lengths = [("neutral", i) for i in passages], list(map(len, ids))
            with below.skipped(names, lengths, below_each_other(ids), inputs):
                logits = self._model.hf_model(**inputs).logits
        kept: Tensor = logits[inputs["attention_mask"].bool()]
        return kept

    def _inputs(self, passages: Sequence[int]) -> dict[str, Any]:
        ids, mask = padded([self._ids[i] for i in passages])
        device = self._model.device
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "use_cache": False}

    def _read(self, head: nn.Module, rows: Sequence[int]) -> list[Tensor]:
        inputs = self._inputs(rows)
        seen: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            with torch.no_grad():
                logits = self._model.hf_model(**inputs).logits
        finally:
            handle.remove()
        source = logits if self._head is None else seen[0]
        real = inputs["attention_mask"].bool()
        return [source[row][real[row]].clone() for row in range(len(rows))]


def _copied(head: nn.Module) -> nn.Module:
    copied = copy.deepcopy(head)
    return copied.requires_grad_(False)
