"""What a model reads of BBQ's questions: prompts through a template or plain, and their answers.

Items that share a text, and questions that are asked alone, are read together by causal models:
what they have in common is run once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.chat import Chat, chat_for
from tda_bias.models.language_model import LanguageModel
from tda_bias.models.requests import MaskedRows, Request, as_trees, continuations, mask_token
from tda_bias.models.token_trees import TokenTree
from tda_bias.types import InputError
from unqover.bbq.items import BBQItem, Words, scenes, words_of
from unqover.bbq.prompts import Prompt, letter_prompts, text_prompts
from unqover.config import BBQConfig

Way = Literal["text", "letter", "mask", "span"]
# A prompt for each order in which an item's options are listed, item by item.
Prompts = list[list[Prompt]]


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


# -- prompts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What is put to a model about items.

    Attributes:
        way: How it is asked.
        with_text: The prompts of every item.
        alone: Those of its question without the text; empty where it is not asked alone.
        groups: Every prompt once, with those that are read together.
        chat: What stands around every prompt; None for plain text.
    """

    way: Way
    with_text: Prompts
    alone: Prompts
    groups: list[list[Prompt]]
    chat: Chat | None

    @property
    def prompts(self) -> list[Prompt]:
        """Every prompt once."""
        return list(chain.from_iterable(self.groups))

    def requests(self, model: LanguageModel) -> list[Request]:
        """For each group, a request for every token of every answer."""
        every = self.prompts
        contexts, said = [prompt.text for prompt in every], [prompt.said for prompt in every]
        between = " " if self.chat is None else self.chat.between
        made = continuations(model, contexts, said, between=between)
        requests = dict(zip(every, made, strict=True))
        return [joined([requests[prompt] for prompt in group]) for group in self.groups]


def asked_of(
    model: LanguageModel,
    items: Sequence[BBQItem],
    language: str,
    config: BBQConfig,
    *,
    alone: bool = True,
) -> Asked:
    """Prompts of items as a model is asked them; ``alone``: also without their texts.

    Raises:
        InputError: as ``way_to_ask`` and ``chat_for``.
    """
    way, chat, words = way_to_ask(model, config), chat_for(model, config), words_of(language)
    with_text = [_prompts(words, way, chat, item) for item in items]
    without = [_prompts(words, way, chat, item, alone=True) for item in items] if alone else []
    scene = [number for number, own in enumerate(scenes(items)) for _ in own]
    groups: dict[object, list[Prompt]] = {}
    for prompt, key in _first_asked(with_text, without, scene):
        # An encoder reads one text for all that follows.
        groups.setdefault(key if model.kind == "causal" else prompt, []).append(prompt)
    return Asked(way, with_text, without, list(groups.values()), chat)


def _prompts(words: Words, way: Way, chat: Chat | None, item: BBQItem, **how: Any) -> list[Prompt]:
    made = (letter_prompts if way == "letter" else text_prompts)(words, item, **how)
    return made if chat is None else [replace(p, text=chat.prompt(p.text)) for p in made]


def _first_asked(
    with_text: Prompts, alone: Prompts, scene: Sequence[int]
) -> Iterator[tuple[Prompt, object]]:
    """Every prompt once, with what it is read together with: its scene, or its question."""
    seen: set[Prompt] = set()
    for of_items, key in ((with_text, "with text"), (alone, "alone")):
        for prompts, number in zip(of_items, scene, strict=False):
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


def masked_answers(
    model: LanguageModel, prompts: Sequence[Prompt]
) -> tuple[MaskedRows, list[list[tuple[int, int]]]]:
    """Rows that fill masked answers from left to right, and the readings of each answer.

    Returns:
        The rows; for each answer of each prompt, by token, its row and the reading in it.

    Raises:
        InputError: if the tokenizer makes no token of an answer, or has no mask.
    """
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
    return rows, read


# -- trees -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerTrees:
    """Token trees whose readings are the answers of items with their texts.

    Attributes:
        trees: Of tokens, as a ``Scorer`` runs them.
        sources: What the encoder of an encoder-decoder reads for each; else empty.
        together: Texts that a tree stands for at most.
        reading: Places among the readings of all trees, tree after tree, one for each token of each
            answer of each item.
        answer: The answer that each of these belongs to, counted in the order of ``shape``.
        shape: Of items, orders of the options, and answers in the data's order.
    """

    trees: list[TokenTree]
    sources: list[list[int]]
    together: int
    reading: Int[np.ndarray, " token"]
    answer: Int[np.ndarray, " token"]
    shape: tuple[int, int, int]

    def log_probs(
        self, values: Float[np.ndarray, " reading"]
    ) -> Float[np.ndarray, "item order answer"]:
        """Log-probability of every answer, nats."""
        size = int(np.prod(self.shape))
        return np.bincount(self.answer, values[self.reading], size).reshape(self.shape)

    def slopes(
        self, by_answer: Float[np.ndarray, "item order answer"], n_readings: int
    ) -> Float[np.ndarray, " reading"]:
        """Derivatives by every reading, from those by every answer's log-probability."""
        weights = by_answer.ravel()[self.answer]
        return np.asarray(np.bincount(self.reading, weights, n_readings))


def answer_trees(
    model: LanguageModel, items: Sequence[BBQItem], language: str, config: BBQConfig
) -> AnswerTrees:
    """What a model reads to answer items with their texts.

    Raises:
        InputError: as ``asked_of``, and if the model points to a span.
    """
    asked = asked_of(model, items, language, config, alone=False)
    if asked.way == "mask":
        rows, read = masked_answers(model, asked.prompts)
        trees, sources = rows.trees(), list[list[int]]()
        first = np.cumsum([0, *(len(tree.read_node) for tree in trees)])
        places = [[int(first[row]) + slot for row, slot in of_answer] for of_answer in read]
        together = 1
    else:
        requests = asked.requests(model)
        trees, sources = as_trees(model, requests)
        sizes = [len(own) for request in requests for _, own in request.read]
        ends = np.cumsum(sizes)
        places = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
        together = max(len(request.ids) for request in requests)
    answers = iter(places)
    of_prompt = {prompt: [next(answers) for _ in prompt.said] for prompt in asked.prompts}
    return _answer_trees(trees, sources, together, asked.with_text, of_prompt)


def _answer_trees(
    trees: list[TokenTree],
    sources: list[list[int]],
    together: int,
    prompts: Prompts,
    places: Mapping[Prompt, Sequence[Sequence[int]]],
) -> AnswerTrees:
    """The trees with the readings of each item's answers, whose prompts have their ``places``."""
    every = [
        places[prompt][place]
        for of_item in prompts
        for prompt in of_item
        for place in prompt.places
    ]
    return AnswerTrees(
        trees,
        sources,
        together,
        reading=np.array(list(chain.from_iterable(every)), int),
        answer=np.repeat(np.arange(len(every)), list(map(len, every))),
        shape=(len(prompts), len(prompts[0]), 3),
    )
