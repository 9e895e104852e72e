"""What the untouched model predicts, which holds it where it is while it learns."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tda_bias.debias.corpus import Corpus, batches
from tda_bias.debias.protocol import Fold, Protocol
from tda_bias.debias.texts import divergence
from tda_bias.models.hooks import Computing, stopped_before
from tda_bias.models.language_model import padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import is_linear, log_probs_with_gradients, logits_at


class Retention:
    """The divergence of a model from what it was, over texts that were read before it changed.

    The original's predictions are kept as the input of the output embeddings where these are all
    that follows, else as logits. Of output embeddings that will be trained too (``head_changes``)
    a copy is kept.
    """

    def __init__(
        self,
        model: LanguageModel,
        texts: Sequence[Sequence[int]],
        *,
        head_changes: bool = False,
    ) -> None:
        self._model = model
        self._ids = [list(text) for text in texts]
        head: Any = model.hf_model.get_output_embeddings()
        inputs = _inputs(model, self._ids[:1])
        place = torch.zeros(1, dtype=torch.long, device=model.device)
        self._head: nn.Module | None = None
        if is_linear(model.hf_model, inputs, place):
            self._head = copy.deepcopy(head).requires_grad_(False) if head_changes else head
        self._kept: dict[int, Tensor] = {}

    def read(self, texts: Iterable[int] | None = None) -> Retention:
        """Read what the model, as it is now, predicts on some texts, or all; each only once."""
        wanted = range(len(self._ids)) if texts is None else texts
        # One at a time: rounding depends on the texts beside it, and processes that share the folds
        # read them in different company.
        for text in sorted(set(wanted).difference(self._kept)):
            self._kept[text] = self._read(self._ids[text])
        return self

    def divergence(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """KL(original || now), mean over the tokens of some texts that were read, nats."""
        kept = torch.cat([self._kept[i] for i in texts])
        if self._head is not None:
            with torch.no_grad():
                kept = self._head(kept)
        inputs = _inputs(self._model, [self._ids[i] for i in texts])
        places = _real_places(inputs)
        now = logits_at(self._model.hf_model, inputs, places, gradients=True)
        return divergence(kept, now)

    @torch.no_grad()
    def entropy(self, temperature: float = 1.0) -> float:
        """Mean entropy of what was predicted, nats per token, of logits over a temperature."""
        of_texts = []
        for kept in self._kept.values():
            logits = kept if self._head is None else self._head(kept)
            log_probs = torch.log_softmax(logits.float() / temperature, -1)
            of_texts.append(-(log_probs.exp() * log_probs).sum(-1))
        return float(torch.cat(of_texts).double().mean())

    def next_token_loss(self, texts: Sequence[int]) -> Float[Tensor, ""]:
        """Mean negative log-probability of the next tokens of some texts, nats."""
        return next_token_loss(self._model, [self._ids[i] for i in texts])

    def _read(self, ids: Sequence[int]) -> Tensor:
        inputs, model = _inputs(self._model, [ids]), self._model.hf_model
        with torch.no_grad():
            if self._head is None:
                source: Tensor = model(**inputs).logits
            else:
                with stopped_before(model.get_output_embeddings()) as given:
                    model(**inputs)
                (source,) = given
        return source[0].clone()


@dataclass(frozen=True)
class Held:
    """Predictions of the untouched model on neutral text, other categories and training items."""

    neutral: Retention
    domain: Retention | None
    relatedness: Mapping[int, float]


def held_by(
    corpus: Corpus,
    fold: Fold,
    protocol: Protocol,
    *,
    head_changes: bool = False,
    read: Held | None = None,
) -> Held:
    """Read what the untouched model predicts; with a copy of output embeddings that will change.

    Neutral text and other categories are the same in every fold: what was ``read`` for another one
    is not read again.
    """
    model, domain, items = corpus.model, corpus.domain, fold.train.tolist()
    with Computing(model, protocol.precision).running():
        values = corpus.items.answers(items).relatedness
    relatedness = dict(zip(items, values.tolist(), strict=True))
    if read is None:
        neutral = Retention(model, corpus.neutral.learn.ids, head_changes=head_changes)
        others = Retention(model, domain.learn, head_changes=head_changes) if domain else None
    else:
        neutral, others = read.neutral, read.domain
    steps = batches(corpus, fold, protocol)
    neutral.read(text for step in steps for text in step.passages)
    if others is not None:
        others.read(text for step in steps for text in step.domain)
    return Held(neutral, others, relatedness)


def next_token_loss(model: LanguageModel, texts: Sequence[Sequence[int]]) -> Float[Tensor, ""]:
    """Mean negative log-probability of the next tokens of texts (ids), nats, with gradients."""
    inputs = _inputs(model, texts)
    place = np.delete(np.arange(sum(map(len, texts))), np.cumsum([len(ids) for ids in texts]) - 1)
    following = np.array([token for ids in texts for token in ids[1:]])
    read = log_probs_with_gradients(model.hf_model, inputs, _real_places(inputs), place, following)
    return -read.mean()


def _real_places(inputs: Mapping[str, Tensor]) -> Int[Tensor, " token"]:
    """Places of tokens that are no padding, text by text."""
    return inputs["attention_mask"].flatten().nonzero()[:, 0]


def _inputs(model: LanguageModel, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    ids, mask = padded(texts)
    device = model.device
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "use_cache": False}
