"""Asking a model BBQ's questions: each answer's text, or its letter with the options in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from tda_bias.models.language_model import LanguageModel, model_record
from tda_bias.models.scored import Arrays, Block, cut, read_blocks, scored
from tda_bias.models.scoring import Scorer
from tda_bias.store.cache import OpenCache, no_cache
from tda_bias.store.hashes import text_hash
from tda_bias.types import Progress
from unqover.bbq.controls import control_table, picked
from unqover.bbq.items import BBQItem, BBQSet, places_of
from unqover.bbq.prompts import Prompt
from unqover.bbq.requests import Asked, asked_of, masked_answers
from unqover.bbq.result import BBQScores, collected
from unqover.bbq.scores import item_table
from unqover.config import BBQConfig
from unqover.spans import SpanQuestion, span_log_probs

T = TypeVar("T")
# Scenes, or prompts of models that share nothing, that are saved together.
_BLOCK = 32


@dataclass(frozen=True)
class Reading:
    """Log-probabilities of the three answers in the data's order, nats.

    Attributes:
        asked: After text and question, for each order in which the options were listed.
        alone: After the question without the text.
    """

    asked: Float[np.ndarray, "item order answer"]
    alone: Float[np.ndarray, "item order answer"]


def ask_bbq(
    model: LanguageModel,
    items: Sequence[BBQItem],
    language: str,
    *,
    config: BBQConfig | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> dict[str, Reading]:
    """Ask a model every question, with its text and alone.

    Args:
        model: Causal, masked, sequence-to-sequence, or a model that answers with a span.
        items: The questions.
        language: Of the words around them.
        config: How the model is asked.
        cache: Opens the cache of finished parts.
        progress: Called with what is done and all there is.

    Returns:
        The reading of each scoring: ``sum`` and ``mean`` (per token) of an answer's text;
        ``letter``; or ``span``. NaN where a person is not found in a text that is pointed into.

    Raises:
        InputError: if the model cannot be asked that way, a text is too long for it, its
            probabilities are undefined, or ``cache`` holds answers under other settings.
        ShareDone: where another process gathers.
    """
    config = config or BBQConfig()
    asked = asked_of(model, items, language, config)
    return _Asker(model, asked, config.batch_size, cache, progress).readings(items)


def bbq_scores(
    model: LanguageModel,
    asked: BBQSet,
    *,
    config: BBQConfig | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> BBQScores:
    """Score a model on BBQ; what is asked and raised is that of ``ask_bbq``.

    Returns:
        The first scoring is the one that is quoted, and whose answers are written down.
    """
    config = config or BBQConfig()
    put = asked_of(model, asked.items, asked.language, config)
    read = _Asker(model, put, config.batch_size, cache, progress).readings(asked.items)
    tables, controls = [], []
    for scoring, reading in read.items():
        table = item_table(asked.items, scoring, log_prob=reading.asked)
        tables.append(table)
        controls.append(
            control_table(
                asked.items,
                scoring,
                table,
                picks=picked(reading.asked) if scoring == "letter" else None,
                alone=reading.alone,
                confidence=config.confidence,
                seed=config.seed,
            )
        )
    return collected(
        asked,
        tables,
        controls,
        config,
        model=model_record(model, weights=model.weight_hash()),
        remarks=model.special_remarks([text for item in asked.items for text in item.texts]),
        kind=model.kind,
        ask=put.way,
        chat=None if put.chat is None else put.chat.record,
    )


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asker:
    """Puts questions to one model, and keeps what is finished."""

    model: LanguageModel
    asked: Asked
    batch_size: int
    cache: OpenCache
    progress: Progress | None

    @property
    def identity(self) -> dict[str, Any]:
        """What every answer depends on beside the model and the texts."""
        chat = self.asked.chat
        return {"ask": self.asked.way, "chat": None if chat is None else asdict(chat)}

    def readings(self, items: Sequence[BBQItem]) -> dict[str, Reading]:
        """The reading of each scoring; see ``ask_bbq``."""
        match self.asked.way:
            case "text":
                return _two_scorings(*self.continued())
            case "letter":
                return {"letter": self.continued()[0]}
            case "mask":
                return _two_scorings(*self.filled())
            case "span":
                return {"span": self.pointed_at(items)}

    def continued(self) -> tuple[Reading, Reading]:
        """What may follow every prompt: sums of log-probabilities, and numbers of tokens."""
        read = scored(
            self.model,
            self.asked.requests(self.model),
            name="questions",
            block=_BLOCK,
            batch_size=self.batch_size,
            identity=self.identity,
            cache=self.cache,
            progress=self.progress,
        )
        sums: dict[Prompt, list[float]] = {}
        tokens: dict[Prompt, list[float]] = {}
        for group, of_group in zip(self.asked.groups, read, strict=True):
            rest = iter(of_group)
            for prompt in group:
                own = [next(rest) for _ in prompt.said]
                sums[prompt] = [float(values.sum()) for values in own]
                tokens[prompt] = [float(len(values)) for values in own]
        return self._reading(sums), self._reading(tokens)

    def filled(self) -> tuple[Reading, Reading]:
        """Masked answers, read from left to right with those to come masked: sums, and tokens."""
        every = self.asked.prompts
        read = self._blocks(every, partial(_filled, self.model, self.batch_size))
        sums, tokens = (
            dict(zip(every, np.concatenate([own[name] for own in read]).tolist(), strict=True))
            for name in ("log_prob", "tokens")
        )
        return self._reading(sums), self._reading(tokens)

    def pointed_at(self, items: Sequence[BBQItem]) -> Reading:
        """The persons where the text mentions them, and "unknown" where it has no answer.

        Such models point into a text: they cannot be asked without one.
        """
        questions = [_span_question(item) for item in items]
        found = [number for number, question in enumerate(questions) if question is not None]
        own = [question for question in questions if question is not None]
        read = self._blocks(own, partial(_spans, self.model, self.batch_size))
        asked, alone = np.full((2, len(items), 1, 3), np.nan)
        if found:
            asked[found, 0] = np.concatenate([arrays["log_prob"] for arrays in read])
        return Reading(asked, alone)

    def _reading(self, values: Mapping[Prompt, Sequence[float]]) -> Reading:
        return Reading(_arranged(self.asked.with_text, values), _arranged(self.asked.alone, values))

    def _blocks(
        self, asked: Sequence[T], read: Callable[[Sequence[T], Progress], Arrays]
    ) -> list[Arrays]:
        """Read what has no requests, block by block."""
        blocks = [
            Block(title, len(own), partial(_depends_on, own), partial(read, own))
            for title, own in cut("questions", asked, 4 * _BLOCK)
        ]
        identity = {**self.identity, "format": 1, "tokenizer": self.model.tokenizer_hash()}
        return read_blocks(
            self.model, blocks, identity=identity, cache=self.cache, progress=self.progress
        )


def _depends_on(asked: Sequence[object]) -> dict[str, str]:
    return {"texts": text_hash(repr(asked))}


def _arranged(
    prompts: Sequence[Sequence[Prompt]], values: Mapping[Prompt, Sequence[float]]
) -> Float[np.ndarray, "item order answer"]:
    """Values of what is said, in the order of the data's answers."""
    return np.array(
        [[[values[p][place] for place in p.places] for p in of_item] for of_item in prompts]
    )


def _two_scorings(sums: Reading, tokens: Reading) -> dict[str, Reading]:
    mean = Reading(sums.asked / tokens.asked, sums.alone / tokens.alone)
    return {"sum": sums, "mean": mean}


def _filled(
    model: LanguageModel, batch_size: int, prompts: Sequence[Prompt], progress: Progress
) -> Arrays:
    rows, read = masked_answers(model, prompts)
    values = Scorer(model, batch_size=batch_size).log_probs(rows.trees(), progress=progress)
    total = [sum(values[row][slot] for row, slot in of_text) for of_text in read]
    return {
        "log_prob": np.reshape(total, (-1, 3)),
        "tokens": np.reshape([len(of_text) for of_text in read], (-1, 3)),
    }


def _span_question(item: BBQItem) -> SpanQuestion | None:
    """The question with the places of the persons; None where the text does not name both."""
    people = [place for place in range(3) if place != item.unknown]
    answers = {place: item.answers[place] for place in people}
    spans: list[tuple[slice, slice] | None] = [None, None, None]
    for place in people:
        places = places_of(item.context, answers, {one: () for one in people}, place)
        if not places:
            return None
        start, stop = min(places)
        spans[place] = (slice(start, stop), slice(start, stop))
    return SpanQuestion(item.question, item.context, tuple(spans))


def _spans(
    model: LanguageModel, batch_size: int, questions: Sequence[SpanQuestion], progress: Progress
) -> Arrays:
    log_prob, _ = span_log_probs(model, questions, batch_size=batch_size, progress=progress)
    return {"log_prob": log_prob}
