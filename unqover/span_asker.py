"""Models that answer a question with a span of the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tda_bias.models.batching import batches_of_similar_width, padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined
from tda_bias.types import InputError
from unqover.bias import span_log_prob
from unqover.config import AskConfig
from unqover.instances import Asked, Instance, polarities


class SpanAsker:
    """Models that point at the beginning and the end of an answer in the context.

    A subject's score is the square root of the probability of its first token as the beginning
    times that of its last as the end; of the starts with and without the words before it ("a group
    of"), and of the ends with and without the noun behind it, the likelier counts.

    Source: [UnQover] section 3 and its code.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self._model, self._config = model, config
        if config.length == "mean":
            raise InputError("`length` mean: a span has no tokens to take a mean over; use sum")

    @property
    def notes(self) -> dict[str, Any]:
        """Nothing to report."""
        return {}

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        questions, contexts, places = [], [], []
        for instance in instances:
            context, spans = _mentions(instance)
            for attribute in instance.attributes:
                for negation in polarities(self._config):
                    questions.append(instance.template.question(attribute, negation))
                    contexts.append(context)
                    places.append(spans)
        encoded = self._model.tokenizer(questions, contexts, return_offsets_mapping=True)
        ids: list[list[int]] = encoded["input_ids"]
        self._model.check_length(max(map(len, ids)))
        log_prob, n_tokens = np.empty((len(ids), 2)), np.empty((len(ids), 2), dtype=int)
        for batch in batches_of_similar_width([len(row) for row in ids], self._config.batch_size):
            kinds = encoded.get("token_type_ids")
            start, end = self._ends(
                [ids[i] for i in batch], None if kinds is None else [kinds[i] for i in batch]
            )
            for row, index in enumerate(batch):
                where = _TokenPlaces(encoded["offset_mapping"][index], encoded.sequence_ids(index))
                for subject, span in enumerate(places[index]):
                    first = max(start[row, where.first(a)] for a in span.starts)
                    last = max(end[row, where.last(b)] for b in span.ends)
                    log_prob[index, subject] = span_log_prob(first, last)
                    name = where.last(span.ends[0]) - where.first(span.starts[1])
                    n_tokens[index, subject] = name + 1
        results, done = [], 0
        for instance in instances:
            shape = (len(instance.attributes), 2, 2)
            part = slice(done, done + 2 * shape[0])
            done = part.stop
            scores = log_prob[part].reshape(shape)
            results.append(Asked(scores, n_tokens[part].reshape(shape), np.exp(scores).sum(-1)))
        return results

    def _ends(
        self, rows: list[list[int]], kinds: list[list[int]] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of each place as the beginning and as the end of the answer."""
        ids, mask = padded(rows)
        device = self._model.device
        given = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        if kinds is not None:
            given["token_type_ids"] = padded(kinds)[0].to(device)
        with torch.inference_mode():
            output = self._model.hf_model(**given)
        padding = mask.to(device) == 0
        ends = []
        for logits in (output.start_logits, output.end_logits):
            real = logits.double().masked_fill(padding, -torch.inf)
            ends.append(real.log_softmax(-1).cpu().numpy())
        refuse_undefined(self._model, ends)
        return ends[0], ends[1]


@dataclass(frozen=True)
class _Span:
    """Characters at which a mention may begin, and behind which it may end."""

    starts: tuple[int, int]
    ends: tuple[int, int]


def _mentions(instance: Instance) -> tuple[str, tuple[_Span, _Span]]:
    """The context, and where in it x1 and x2 are mentioned."""
    context, spans = instance.template.context_with_places(*instance.mentioned)
    of = {
        subject.name: _Span((whole.start, inner.start), (inner.stop, whole.stop))
        for subject, (whole, inner) in zip(instance.mentioned, spans, strict=True)
    }
    return context, (of[instance.candidates[0].name], of[instance.candidates[1].name])


class _TokenPlaces:
    """Characters of the context to tokens."""

    def __init__(self, offsets: list[tuple[int, int]], sequence: list[int | None]) -> None:
        self._spans = [
            (index, start, stop)
            for index, ((start, stop), of) in enumerate(zip(offsets, sequence, strict=True))
            if of == 1 and stop > start
        ]

    def first(self, character: int) -> int:
        """The token that holds the character."""
        return next(i for i, _, stop in self._spans if stop > character)

    def last(self, character: int) -> int:
        """The last token that begins before the character."""
        return [i for i, start, _ in self._spans if start < character][-1]
