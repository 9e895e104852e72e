"""Asking a model BBQ's questions: each answer's text, or its letter with the options in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float

from tda_bias.models.language_model import LanguageModel, model_record
from tda_bias.models.requests import MaskedRows, Request, continuations, mask_token
from tda_bias.models.scored import Arrays, Block, cut, read_blocks, scored
from tda_bias.models.scoring import Scorer
from tda_bias.store.cache import OpenCache, no_cache
from tda_bias.store.hashes import text_hash
from tda_bias.types import InputError, Progress
from unqover.bbq.controls import control_table, picked
from unqover.bbq.items import BBQItem, BBQSet, Words, places_of, scenes, words_of
from unqover.bbq.prompts import Prompt, letter_prompts, text_prompts
from unqover.bbq.result import BBQScores, collected
from unqover.bbq.scores import item_table
from unqover.config import BBQConfig
from unqover.spans import SpanQuestion, span_log_probs

T = TypeVar("T")
Way = Literal["text", "letter", "mask", "span"]
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
    asker = _Asker(model, words_of(language), config.batch_size, cache, progress)
    match way_to_ask(model, config):
        case "text":
            return _two_scorings(*asker.continued("text", items))
        case "letter":
            return {"letter": asker.continued("letter", items)[0]}
        case "mask":
            return _two_scorings(*asker.filled(items))
        case "span":
            return {"span": asker.pointed_at(items)}


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
    read = ask_bbq(
        model, asked.items, asked.language, config=config, cache=cache, progress=progress
    )
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
        remarks=model.special_remarks(
            [text for item in asked.items for text in (item.context, item.question, *item.answers)]
        ),
        kind=model.kind,
        ask=way_to_ask(model, config),
    )


def way_to_ask(model: LanguageModel, config: BBQConfig) -> Way:
    """The way to ask a model of its kind; raises an ``InputError`` as ``ask_bbq``."""
    both, text = ("text", "letter"), ("text",)
    able = {"causal": both, "seq2seq": both, "masked": text, "span": text}
    if model.kind not in able:
        raise InputError(
            f"`model` {model.name} is a {model.kind} model; questions are asked of causal, masked "
            "and sequence-to-sequence language models and of models that answer with a span"
        )
    if config.ask not in able[model.kind]:
        raise InputError(
            f"`ask` must be text for the {model.kind} model {model.name}; got {config.ask!r}"
        )
    if model.kind == "span":
        model.require_whole_checkpoint()
        return "span"
    model.require_language_head()
    return "mask" if model.kind == "masked" else config.ask


# -- reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asker:
    """Puts questions to one model, and keeps what is finished."""

    model: LanguageModel
    words: Words
    batch_size: int
    cache: OpenCache
    progress: Progress | None

    def continued(
        self, how: Literal["text", "letter"], items: Sequence[BBQItem]
    ) -> tuple[Reading, Reading]:
        """What may follow every prompt: sums of log-probabilities, and numbers of tokens.

        What is asked of one scene begins alike and is run together, as are questions alone.
        """
        asked, alone = self._prompts(how, items)
        every = list(dict.fromkeys(chain.from_iterable([*asked, *alone])))
        texts, said = [prompt.text for prompt in every], [prompt.said for prompt in every]
        requests = dict(zip(every, continuations(self.model, texts, said), strict=True))
        scene = [number for number, own in enumerate(scenes(items)) for _ in own]
        groups: dict[object, list[Prompt]] = {}
        for prompt, key in _first_asked(asked, alone, scene):
            # An encoder reads one text for all that follows.
            groups.setdefault(key if self.model.kind == "causal" else prompt, []).append(prompt)
        read = scored(
            self.model,
            [joined([requests[prompt] for prompt in group]) for group in groups.values()],
            name="questions",
            block=_BLOCK,
            batch_size=self.batch_size,
            identity={"ask": how},
            cache=self.cache,
            progress=self.progress,
        )
        sums: dict[Prompt, list[float]] = {}
        tokens: dict[Prompt, list[float]] = {}
        for group, of_group in zip(groups.values(), read, strict=True):
            rest = iter(of_group)
            for prompt in group:
                own = [next(rest) for _ in prompt.said]
                sums[prompt] = [float(values.sum()) for values in own]
                tokens[prompt] = [float(len(values)) for values in own]
        return _reading(asked, alone, sums), _reading(asked, alone, tokens)

    def filled(self, items: Sequence[BBQItem]) -> tuple[Reading, Reading]:
        """Masked answers, read from left to right with those to come masked: sums, and tokens."""
        asked, alone = self._prompts("text", items)
        every = list(dict.fromkeys(chain.from_iterable([*asked, *alone])))
        read = self._blocks("mask", every, partial(_filled, self.model, self.batch_size))
        sums, tokens = (
            dict(zip(every, np.concatenate([own[name] for own in read]).tolist(), strict=True))
            for name in ("log_prob", "tokens")
        )
        return _reading(asked, alone, sums), _reading(asked, alone, tokens)

    def pointed_at(self, items: Sequence[BBQItem]) -> Reading:
        """The persons where the text mentions them, and "unknown" where it has no answer.

        Such models point into a text: they cannot be asked without one.
        """
        questions = [_span_question(item) for item in items]
        found = [number for number, question in enumerate(questions) if question is not None]
        own = [question for question in questions if question is not None]
        read = self._blocks("span", own, partial(_spans, self.model, self.batch_size))
        asked, alone = np.full((2, len(items), 1, 3), np.nan)
        if found:
            asked[found, 0] = np.concatenate([arrays["log_prob"] for arrays in read])
        return Reading(asked, alone)

    def _prompts(
        self, how: str, items: Sequence[BBQItem]
    ) -> tuple[list[list[Prompt]], list[list[Prompt]]]:
        make = letter_prompts if how == "letter" else text_prompts
        asked = [make(self.words, item) for item in items]
        return asked, [make(self.words, item, alone=True) for item in items]

    def _blocks(
        self, how: str, asked: Sequence[T], read: Callable[[Sequence[T], Progress], Arrays]
    ) -> list[Arrays]:
        """Read what has no requests, block by block."""
        blocks = [
            Block(title, len(own), partial(_depends_on, own), partial(read, own))
            for title, own in cut("questions", asked, 4 * _BLOCK)
        ]
        identity = {"ask": how, "format": 1, "tokenizer": self.model.tokenizer_hash()}
        return read_blocks(
            self.model, blocks, identity=identity, cache=self.cache, progress=self.progress
        )


def _depends_on(asked: Sequence[object]) -> dict[str, str]:
    return {"texts": text_hash(repr(asked))}


def _first_asked(
    asked: Sequence[Sequence[Prompt]], alone: Sequence[Sequence[Prompt]], scene: Sequence[int]
) -> Iterator[tuple[Prompt, object]]:
    """Every prompt once, with what it is read together with: its scene, or its question."""
    seen: set[Prompt] = set()
    for of_items, key in ((asked, "asked"), (alone, "alone")):
        for prompts, number in zip(of_items, scene, strict=True):
            for prompt in prompts:
                if prompt not in seen:
                    seen.add(prompt)
                    yield prompt, (key, number)


def joined(requests: Sequence[Request]) -> Request:
    """Several requests as one, whose readings are theirs in order: shared beginnings run once.

    Only for causal models if there are several: an encoder reads one ``before``.
    """
    first = np.cumsum([0, *(len(request.ids) for request in requests)])
    return Request(
        tuple(chain.from_iterable(request.ids for request in requests)),
        tuple(
            (int(start) + text, places)
            for request, start in zip(requests, first[:-1], strict=True)
            for text, places in request.read
        ),
        min(request.context for request in requests),
        requests[0].before,
    )


def _reading(
    asked: Sequence[Sequence[Prompt]],
    alone: Sequence[Sequence[Prompt]],
    values: Mapping[Prompt, Sequence[float]],
) -> Reading:
    return Reading(_arranged(asked, values), _arranged(alone, values))


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
    mask, rows, read = mask_token(model), MaskedRows(), []
    texts = [(f"{p.text} {said}", len(p.text) + 1) for p in prompts for said in p.said]
    encoded = model.tokenizer([text for text, _ in texts], return_offsets_mapping=True)
    for ids, offsets, (text, start) in zip(
        encoded["input_ids"], encoded["offset_mapping"], texts, strict=True
    ):
        # Without the full stop: it tells a model that nothing follows, and is not the answer's.
        inside = [
            i for i, (a, b) in enumerate(offsets) if b > start and a < len(text) - 1 and b > a
        ]
        if not inside:
            raise InputError(f"the tokenizer makes no token of the answer of {text!r}")
        read.append(rows.add_span(ids, inside[0], inside[-1] + 1, mask))
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
