"""The loss of a step: the terms that are lowered, and what holds the model where it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tda_bias.debias.corpus import Corpus
from tda_bias.debias.loss import anchor, divergence, huber
from tda_bias.debias.mask import Learner
from tda_bias.debias.protocol import Fold, Goal, Protocol, Trial
from tda_bias.debias.texts import LowerLayers
from tda_bias.models.batching import padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import is_linear
from tda_bias.models.token_trees import one_per_row
from tda_bias.stats.resampling import generator

# Texts of other categories in a step, for each neutral passage: these are about as long.
_PER_PASSAGE = 3


class Retention:
    """The divergence of a model from what it was, over some texts.

    The original's predictions are kept as the input of the output embeddings where these are all
    that follows (one row of the model's width per token), else as logits.

    Args:
        model: The model, not yet changed.
        texts: Token ids of each text.
        name: Tells these texts from others among remembered ones.
        head_changes: Whether the output embeddings will be trained too; a copy is then kept.
        batch_size: Texts per forward pass.
    """

    def __init__(
        self,
        model: LanguageModel,
        texts: Sequence[Sequence[int]],
        *,
        name: str = "neutral",
        head_changes: bool = False,
        batch_size: int = 8,
    ) -> None:
        self._model, self._name = model, name
        self._ids = [list(text) for text in texts]
        head: Any = model.hf_model.get_output_embeddings()
        inputs = _inputs(model, self._ids[:1])
        place = torch.zeros(1, dtype=torch.long, device=model.device)
        self._head: nn.Module | None = None
        if is_linear(model.hf_model, inputs, place):
            self._head = copy.deepcopy(head).requires_grad_(False) if head_changes else head
        self._kept: list[Tensor] = []
        for start in range(0, len(self._ids), batch_size):
            self._kept += self._read(head, self._ids[start : start + batch_size])

    def __len__(self) -> int:
        return len(self._ids)

    def divergence(
        self, texts: Sequence[int], *, below: LowerLayers | None = None
    ) -> Float[Tensor, ""]:
        """KL(original || now), mean over the tokens of some texts, nats."""
        kept = torch.cat([self._kept[i] for i in texts])
        if self._head is not None:
            with torch.no_grad():
                kept = self._head(kept)
        return divergence(kept, self._logits(texts, below))

    def next_token_loss(
        self, texts: Sequence[int], *, below: LowerLayers | None = None
    ) -> Float[Tensor, ""]:
        """Mean negative log-probability of the next tokens of some texts, nats."""
        return _next_token_loss(self._logits(texts, below), [self._ids[i] for i in texts])

    def _logits(
        self, texts: Sequence[int], below: LowerLayers | None
    ) -> Float[Tensor, "token vocabulary"]:
        ids = [self._ids[i] for i in texts]
        inputs = _inputs(self._model, ids)
        if below is None:
            return _logits(self._model, inputs)
        names = [(self._name, i) for i in texts]
        with below.skipped(names, list(map(len, ids)), one_per_row(ids), inputs):
            return _logits(self._model, inputs)

    def _read(self, head: nn.Module, ids: Sequence[Sequence[int]]) -> list[Tensor]:
        inputs = _inputs(self._model, ids)
        seen: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            with torch.no_grad():
                logits = self._model.hf_model(**inputs).logits
        finally:
            handle.remove()
        source = logits if self._head is None else seen[0]
        real = inputs["attention_mask"].bool()
        return [source[row][real[row]].clone() for row in range(len(ids))]


@dataclass(frozen=True)
class Held:
    """The predictions of the untouched model, which hold it where it is.

    Attributes:
        neutral: The divergence from the original on neutral passages.
        domain: The same on texts of other categories; None without them.
        relatedness: Of every item that trains, before: by its number.
    """

    neutral: Retention
    domain: Retention | None
    relatedness: Mapping[int, float]


def held_by(
    corpus: Corpus, relatedness: Mapping[int, float], *, head_changes: bool = False
) -> Held:
    """Read what the untouched model predicts.

    Args:
        corpus: The texts.
        relatedness: Of every item that trains, by its number.
        head_changes: Whether the output embeddings will be trained too.
    """
    model, domain = corpus.model, corpus.domain
    neutral = Retention(model, corpus.neutral.learn.ids, head_changes=head_changes)
    if domain is None:
        return Held(neutral, None, relatedness)
    others = Retention(model, domain.learn, name="domain", head_changes=head_changes)
    return Held(neutral, others, relatedness)


@dataclass(frozen=True)
class Batch:
    """The texts of a step, as numbers: items, neutral passages, texts of other categories."""

    items: list[int]
    passages: list[int]
    domain: list[int]


def batches(fold: Fold, held: Held, protocol: Protocol) -> list[Batch]:
    """The texts of every step: the same for every condition of a fold."""
    rng = generator(protocol.seed, "batches", str(fold.number))
    rng_of_domain = generator(protocol.seed, "batches of other categories", str(fold.number))
    n_passages, n_domain = len(held.neutral), len(held.domain or ())
    drawn = []
    for _ in range(protocol.epochs):
        order = rng.permutation(fold.train)
        for part in np.array_split(order, -(-len(order) // protocol.batch)):
            passages = rng.choice(n_passages, min(protocol.passages, n_passages), replace=False)
            size = min(_PER_PASSAGE * protocol.passages, n_domain)
            domain = rng_of_domain.choice(max(1, n_domain), size, replace=False)
            drawn.append(Batch(part.tolist(), passages.tolist(), domain.tolist()))
    return drawn


def loss_of(
    goal: Goal,
    learner: Learner,
    corpus: Corpus,
    held: Held,
    batch: Batch,
    protocol: Protocol,
    trial: Trial,
    below: LowerLayers | None = None,
) -> Tensor:
    """The loss of a step.

    Args:
        goal: ``gaps``: the Huber loss of the gaps, with what holds the model; ``plain``: without
            texts of other categories and anchor, whose weights are 0 in its trials; ``placebo``:
            as ``gaps``, with the continuations of the twins exchanged, which trains wording away
            and nothing about the target; ``equalise``: the Huber loss of the plain difference of
            the two continuations, alone; ``cda``: the next-token loss of the related texts of items
            and twins; ``retention``: that of neutral passages. (The divergence alone has its
            minimum where training begins: it would change nothing but by rounding.)
        learner: What is trained.
        corpus: The texts.
        held: What holds the model.
        batch: The texts of the step.
        protocol: Weights.
        trial: Weights that are tried.
        below: What is remembered of the layers that do not change.
    """
    items = corpus.items
    if goal == "retention":
        return held.neutral.next_token_loss(batch.passages, below=below)
    if goal == "cda":
        pairs = [pair for item in batch.items for pair in items.sequences(item)]
        return next_token_loss(items.model, [text for pair in pairs for text in pair])
    if goal == "equalise":
        return huber(items.means(batch.items, twins=False, below=below).gaps()).mean()
    means = items.means(batch.items, unrelated=trial.anchor > 0, below=below)
    loss = huber(means.gaps(exchanged=goal == "placebo")).mean()
    if protocol.kl:
        loss = loss + protocol.kl * held.neutral.divergence(batch.passages, below=below)
    if trial.domain and held.domain is not None:
        loss = loss + trial.domain * held.domain.divergence(batch.domain, below=below)
    if trial.anchor:
        before = [held.relatedness[item] for item in batch.items]
        now = means.relatedness()
        loss = loss + trial.anchor * anchor(now, now.new_tensor(before))
    pull = learner.penalty()
    return loss if pull is None else loss + protocol.l1 * pull


def next_token_loss(model: LanguageModel, texts: Sequence[Sequence[int]]) -> Float[Tensor, ""]:
    """Mean negative log-probability of the next tokens of texts (ids), nats, with gradients."""
    return _next_token_loss(_logits(model, _inputs(model, texts)), texts)


def _next_token_loss(
    logits: Float[Tensor, "token vocabulary"], texts: Sequence[Sequence[int]]
) -> Float[Tensor, ""]:
    ends = np.cumsum([len(ids) for ids in texts]) - 1
    kept = torch.from_numpy(np.setdiff1d(np.arange(len(logits)), ends)).to(logits.device)
    target = torch.tensor([token for ids in texts for token in ids[1:]], device=logits.device)
    return nn.functional.cross_entropy(logits[kept].float(), target)


def _logits(model: LanguageModel, inputs: dict[str, Any]) -> Float[Tensor, "token vocabulary"]:
    """At every token of texts, one after the other."""
    logits: Tensor = model.hf_model(**inputs).logits
    return logits[inputs["attention_mask"].bool()]


def _inputs(model: LanguageModel, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    ids, mask = padded(texts)
    device = model.device
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "use_cache": False}
