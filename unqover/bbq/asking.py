"""Asking a model BBQ's questions: each answer's text, or its letter with the options in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

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
    how = way_to_ask(model, config)
    read = partial(_READERS[how], model, words_of(language), config, cache, progress)
    return read(items)


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
    how = {"config": config, "cache": cache, "progress": progress}
    read = ask_bbq(model, asked.items, asked.language, **how)  # type: ignore[arg-type]
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
        kind=model.kind,
        ask=way_to_ask(model, config),
    )


def way_to_ask(model: LanguageModel, config: BBQConfig) -> str:
    """``text``, ``letter``, ``mask`` or ``span``; raises an ``InputError`` as ``ask_bbq``."""
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


# -- language models that continue a text ----------------------------------------------------------


def _by_text(
    model: LanguageModel,
    words: Words,
    config: BBQConfig,
    cache: OpenCache,
    progress: Progress | None,
    items: Sequence[BBQItem],
) -> dict[str, Reading]:
    """The text of each answer after the question."""
    how = {"batch_size": config.batch_size, "cache": cache, "progress": progress}
    return _two_scorings(*_continued(model, words, "text", items, **how))  # type: ignore[arg-type]


def _by_letter(
    model: LanguageModel,
    words: Words,
    config: BBQConfig,
    cache: OpenCache,
    progress: Progress | None,
    items: Sequence[BBQItem],
) -> dict[str, Reading]:
    """The letter of each option, with the options in three orders."""
    how = {"batch_size": config.batch_size, "cache": cache, "progress": progress}
    sums, _ = _continued(model, words, "letter", items, **how)  # type: ignore[arg-type]
    return {"letter": sums}


def _continued(
    model: LanguageModel,
    words: Words,
    how: str,
    items: Sequence[BBQItem],
    *,
    batch_size: int,
    cache: OpenCache,
    progress: Progress | None,
) -> tuple[Reading, Reading]:
    """Sums of log-probabilities of what is said after every prompt, and numbers of tokens."""
    asked, alone = _prompts(words, how, items)
    every = list(dict.fromkeys(chain.from_iterable([*asked, *alone])))
    texts, said = [prompt.text for prompt in every], [prompt.said for prompt in every]
    requests = dict(zip(every, continuations(model, texts, said), strict=True))
    # What is asked of one scene begins alike, and so do questions without their text.
    number = {id(item): n for n, scene in enumerate(scenes(items)) for item in scene}
    groups: dict[object, list[Prompt]] = {}
    for prompt, key in _first_asked(asked, alone, [number[id(item)] for item in items]):
        groups.setdefault(key if model.kind == "causal" else prompt, []).append(prompt)
    read = scored(
        model,
        [joined([requests[prompt] for prompt in group]) for group in groups.values()],
        name="questions",
        block=_BLOCK,
        batch_size=batch_size,
        identity={"ask": how},
        cache=cache,
        progress=progress,
    )
    of: dict[Prompt, list[np.ndarray]] = {}
    for group, tokens_of in zip(groups.values(), read, strict=True):
        rest = iter(tokens_of)
        of |= {prompt: [next(rest) for _ in prompt.said] for prompt in group}
    sums = {prompt: [float(one.sum()) for one in own] for prompt, own in of.items()}
    tokens = {prompt: [float(len(one)) for one in own] for prompt, own in of.items()}
    both = [Reading(_arranged(asked, own), _arranged(alone, own)) for own in (sums, tokens)]
    return both[0], both[1]


def _prompts(
    words: Words, how: str, items: Sequence[BBQItem]
) -> tuple[list[list[Prompt]], list[list[Prompt]]]:
    make = letter_prompts if how == "letter" else text_prompts
    asked = [make(words, item) for item in items]
    return asked, [make(words, item, alone=True) for item in items]


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


# -- masked models ---------------------------------------------------------------------------------


def _by_masks(
    model: LanguageModel,
    words: Words,
    config: BBQConfig,
    cache: OpenCache,
    progress: Progress | None,
    items: Sequence[BBQItem],
) -> dict[str, Reading]:
    """The text of each answer, masked and read from left to right, those to come masked."""
    asked, alone = _prompts(words, "text", items)
    every = list(dict.fromkeys(chain.from_iterable([*asked, *alone])))
    blocks = [
        Block(
            title,
            len(own),
            partial(_texts_of, own),
            partial(_filled, model, config.batch_size, own),
        )
        for title, own in cut("questions", every, 4 * _BLOCK)
    ]
    identity = {"ask": "mask", "format": 1, "tokenizer": model.tokenizer_hash()}
    read = read_blocks(model, blocks, identity=identity, cache=cache, progress=progress)
    sums, tokens = (
        dict(zip(every, np.concatenate([own[name] for own in read]).tolist(), strict=True))
        for name in ("log_prob", "tokens")
    )
    both = [Reading(_arranged(asked, own), _arranged(alone, own)) for own in (sums, tokens)]
    return _two_scorings(*both)


def _texts_of(prompts: Sequence[Prompt]) -> dict[str, str]:
    return {"texts": text_hash(repr([(prompt.text, prompt.said) for prompt in prompts]))}


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


# -- models that answer with a span ----------------------------------------------------------------


def _by_span(
    model: LanguageModel,
    words: Words,
    config: BBQConfig,
    cache: OpenCache,
    progress: Progress | None,
    items: Sequence[BBQItem],
) -> dict[str, Reading]:
    """The persons where the text mentions them, and "unknown" where it has no answer.

    Such models point into a text: they cannot be asked without one.
    """
    pointed = [_pointed_at(item) for item in items]
    found = [number for number, question in enumerate(pointed) if question is not None]
    own = [question for question in pointed if question is not None]
    blocks = [
        Block(
            title,
            len(questions),
            partial(_questions_of, questions),
            partial(_spans, model, config.batch_size, questions),
        )
        for title, questions in cut("questions", own, 4 * _BLOCK)
    ]
    identity = {"ask": "span", "format": 1, "tokenizer": model.tokenizer_hash()}
    read = read_blocks(model, blocks, identity=identity, cache=cache, progress=progress)
    asked, alone = np.full((2, len(items), 1, 3), np.nan)
    if found:
        asked[found, 0] = np.concatenate([arrays["log_prob"] for arrays in read])
    return {"span": Reading(asked, alone)}


def _questions_of(questions: Sequence[SpanQuestion]) -> dict[str, str]:
    return {"texts": text_hash(repr(questions))}


def _pointed_at(item: BBQItem) -> SpanQuestion | None:
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


_READERS = {"text": _by_text, "letter": _by_letter, "mask": _by_masks, "span": _by_span}
