"""How far the next-token distributions of prompts are apart, along a response.

By the chain rule the Kullback-Leibler divergence between the distributions of *responses* to two
prompts is the expectation, over responses y to the first, of the sum of the divergences of the
next-token distributions along y. That sum has the same expectation as log P(y|A) - log P(y|B) and a
smaller variance.

Source: the chain rule of relative entropy (Cover & Thomas, theorem 2.5.3); Amini et al. (2025) for
the estimator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.models.language_model import LanguageModel, batches_of_similar_width, padded
from tda_bias.models.logits import in_tiles, logits_at, refuse_undefined
from tda_bias.models.scoring import LOGITS
from tda_bias.responses.echo import EchoClasses

# Logits after a kept beginning must equal those of the whole text to this.
_TOLERANCE = 1e-3
# A class without any probability counts as this, whose divergence is nothing.
_SMALLEST = torch.finfo(torch.double).tiny


@dataclass(frozen=True)
class Along:
    """What is read along responses to one prompt's four people; NaN behind the end of a response.

    Attributes:
        kl: Exact divergence of the next-token distribution about the response's own person from
            that about each one, nats.
        echo: The part of it that repeats the person; see ``next_token_divergences``.
        log_prob: Of the response's token, about each person.
        expected: How often each token is expected about each person, summed over all places.
    """

    kl: Float[np.ndarray, "response person place"]
    echo: Float[np.ndarray, "response person place"]
    log_prob: Float[np.ndarray, "response person place"]
    expected: Float[np.ndarray, "person vocabulary"]

    @classmethod
    def empty(cls, responses: int, people: int, places: int, vocabulary: int) -> Along:
        """Nothing read yet."""
        shape = (responses, people, places)
        kl, echo, log_prob = (np.full(shape, np.nan, np.float32) for _ in range(3))
        return cls(kl, echo, log_prob, np.zeros((people, vocabulary)))


def next_token_divergences(
    logits: Float[Tensor, "person place vocabulary"],
    own: Int[Tensor, " place"],
    classes: EchoClasses,
    names: Sequence[Sequence[int]] = (),
) -> tuple[
    Float[Tensor, "person place"],
    Float[Tensor, "person place"],
    Float[Tensor, "person place vocabulary"],
]:
    """Divergences at each place from the distribution of its own person to those of all.

    Args:
        logits: At each place, about each person.
        own: Whose response a place belongs to.
        classes: Of counterpart tokens.
        names: At each place, the tokens by which a name that has begun goes on; none if empty.

    Returns:
        The divergence, nats; the echo in it; and all log-probabilities. Echo is the sum over
        classes of P(class) times the divergence of the distributions within the class. Where a name
        may go on, so is the divergence of the distributions over its next tokens and whatever else
        there is, taken as one.
    """
    log_p = torch.log_softmax(logits, -1)
    kl = _apart(log_p, own)
    echo = _within(log_p, own, classes).to(kl)
    for place, tokens in enumerate(names):
        if tokens:
            here = slice(place, place + 1)
            echo[:, here] = _of_names(log_p[:, here], own[here], classes, tokens).to(kl)
    return kl, echo, log_p


def _within(
    log_p: Float[Tensor, "person place vocabulary"],
    own: Int[Tensor, " place"],
    classes: EchoClasses,
) -> Float[Tensor, "person place"]:
    """The divergence within classes."""
    if not len(classes):
        return torch.zeros(log_p.shape[:-1], device=log_p.device)
    token = torch.from_numpy(classes.token).to(log_p.device)
    of = torch.from_numpy(classes.of).to(log_p.device)
    members = log_p[..., token].double()
    merged = torch.zeros(*members.shape[:-1], len(classes), dtype=torch.double, device=log_p.device)
    merged = merged.index_add(-1, of, members.exp()).clamp_min(_SMALLEST).log()
    return _apart(members, own) - _apart(merged, own)


def _of_names(
    log_p: Float[Tensor, "person place vocabulary"],
    own: Int[Tensor, " place"],
    classes: EchoClasses,
    tokens: Sequence[int],
) -> Float[Tensor, "person place"]:
    """Echo where names go on by ``tokens``: which of them or none, and classes of all others."""
    chosen = torch.tensor(list(tokens), device=log_p.device)
    other = log_p.double().index_fill(-1, chosen, -torch.inf).logsumexp(-1, keepdim=True)
    parts = torch.cat([log_p[..., chosen].double(), other], -1).clamp_min(math.log(_SMALLEST))
    return _apart(parts, own) + _within(log_p, own, classes.without(tokens))


def _apart(
    log_p: Float[Tensor, "person place part"], own: Int[Tensor, " place"]
) -> Float[Tensor, "person place"]:
    """What parts of distributions bring to the divergences from each place's own person."""
    first = log_p[own, torch.arange(len(own), device=log_p.device)]
    return (first.exp() * (first - log_p)).sum(-1)


class Reader:
    """Reads responses of a prompt about each of its people.

    What precedes a response is run once for each person and kept, where the first prompt shows that
    this gives what the whole text does.

    Args:
        model: A causal language model.
        batch_size: Texts per forward pass; fewer where their logits would need more memory.
    """

    def __init__(self, model: LanguageModel, *, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._keeps: bool | None = None

    def read(
        self,
        prompts: Sequence[Sequence[int]],
        written: Sequence[Sequence[int]],
        own: Sequence[int],
        classes: EchoClasses,
        *,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Along:
        """Read every response about every person.

        Args:
            prompts: Token ids of the prompt about each person, all of one length.
            written: Token ids of the responses.
            own: The number of the person whom each was written about.
            classes: Of counterpart tokens.
            progress: Called with responses done and all.

        Raises:
            InputError: if the model gives NaN.
        """
        longest = max(map(len, written))
        vocabulary = int(self._model.hf_model.config.get_text_config().vocab_size)
        along = Along.empty(len(written), len(prompts), longest, vocabulary)
        fit = LOGITS // (len(prompts) * longest * vocabulary)
        most = max(1, min(self._batch_size // len(prompts), fit))
        kept, done = self._kept(prompts), 0
        for batch in batches_of_similar_width([len(row) for row in written], most):
            logits = self._logits(prompts, [written[i] for i in batch], kept)
            self._put(along, logits, batch, written, own, classes)
            done += len(batch)
            progress(done, len(written))
        read = (along.kl[i, :, : len(row)] for i, row in enumerate(written))
        refuse_undefined(self._model, read)
        return along

    def _put(
        self,
        along: Along,
        logits: Float[Tensor, "person place vocabulary"],
        batch: Sequence[int],
        written: Sequence[Sequence[int]],
        own: Sequence[int],
        classes: EchoClasses,
    ) -> None:
        """Put what a batch of responses gives where it belongs."""
        place = np.array([(i, t) for i in batch for t in range(len(written[i]))])
        token, whose = (
            torch.tensor(values, device=logits.device)
            for values in (
                [token for i in batch for token in written[i]],
                [own[i] for i in place[:, 0]],
            )
        )
        names = [one for i in batch for one in classes.names_go_on(written[i])]
        first = 0
        for part in in_tiles(logits, dim=1):
            now = slice(first, first + part.shape[1])
            kl, echo, log_p = next_token_divergences(part, whose[now], classes, names[now])
            said = token[now].expand(len(part), -1)[..., None]
            chosen = log_p.gather(-1, said).squeeze(-1)
            of, at = place[now].T
            for target, values in ((along.kl, kl), (along.echo, echo), (along.log_prob, chosen)):
                target[of, :, at] = values.T.float().cpu().numpy()
            along.expected[:] += log_p.exp().sum(1).double().cpu().numpy()
            first += part.shape[1]

    def first_log_probs(
        self, prompts: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "person vocabulary"]:
        """Log-probabilities of the first token of a response, about each person."""
        logits = self._logits(prompts, [[0]], None)
        return np.asarray(torch.log_softmax(logits[:, 0].double(), -1).cpu().numpy())

    def _logits(
        self, prompts: Sequence[Sequence[int]], written: Sequence[Sequence[int]], kept: Any
    ) -> Float[Tensor, "person place vocabulary"]:
        """Logits of every token of the responses, one after the other, about each person."""
        model = self._model
        begin = len(prompts[0]) - 1
        beginnings = [list(prompt[begin:] if kept is not None else prompt) for prompt in prompts]
        rows = [[*before, *row[:-1]] for before in beginnings for row in written]
        ids, mask = padded(rows)
        inputs: dict[str, Any] = {"input_ids": ids.to(model.device)}
        if kept is None:
            inputs |= {"attention_mask": mask.to(model.device), "use_cache": False}
        else:
            cache = deepcopy(kept)
            cache.batch_repeat_interleave(len(written))
            seen = torch.cat([torch.ones(len(rows), begin, dtype=mask.dtype), mask], dim=1)
            inputs |= {"attention_mask": seen.to(model.device), "past_key_values": cache}
        start, width = (0 if kept is not None else begin), ids.shape[1]
        lengths = [len(row) for _ in prompts for row in written]
        places = [
            number * width + start + place
            for number, length in enumerate(lengths)
            for place in range(length)
        ]
        logits = logits_at(
            model.hf_model, inputs, torch.tensor(places, device=ids.device).to(model.device)
        )
        return logits.reshape(len(prompts), -1, logits.shape[-1])

    def _kept(self, prompts: Sequence[Sequence[int]]) -> Any:
        """What the model keeps of the prompts but their last tokens; None if it cannot be used."""
        if self._keeps is False or len(prompts[0]) < 2:
            return None
        from transformers import DynamicCache

        model: Any = self._model.hf_model
        ids = torch.tensor([list(prompt[:-1]) for prompt in prompts], device=self._model.device)
        with torch.inference_mode():
            given = model.base_model(ids, attention_mask=torch.ones_like(ids), use_cache=True)
        kept = getattr(given, "past_key_values", None)
        if not isinstance(kept, DynamicCache):
            self._keeps = False
            return None
        if self._keeps is None:
            tried = [[int(prompts[0][-1])] * 3, [int(prompts[0][-1])]]
            with_it, whole = (self._logits(prompts, tried, use) for use in (kept, None))
            apart = torch.log_softmax(with_it.float(), -1) - torch.log_softmax(whole.float(), -1)
            allowed = _TOLERANCE if self._model.dtype.itemsize > 2 else 0.0
            self._keeps = bool(apart.abs().max() <= allowed)
        return kept if self._keeps else None
