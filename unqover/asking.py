"""Asking a model: questions to saved answers, for causal, masked and span models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.language_model import common_prefix, model_record, special_tokens_around
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import MaskedRows, Request, as_trees, mask_token, shared_start
from tda_bias.models.scored import Arrays, Block, read_blocks
from tda_bias.models.scoring import Scorer
from tda_bias.store.cache import OpenCache, no_cache
from tda_bias.store.hashes import text_hash
from tda_bias.store.identity import identity
from tda_bias.types import InputError, Progress
from unqover.answers import Answers, AnswersRecord
from unqover.classes import Attribute, Subject
from unqover.config import AskConfig
from unqover.questions import Design, Template
from unqover.spans import SpanQuestion, span_log_probs

# Pairs whose answers are saved together: a killed run loses no more than these.
_PAIRS = 64


def ask_questions(
    model: LanguageModel,
    design: Design,
    *,
    config: AskConfig | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> Answers:
    """Ask a model every question of a design: two orders of mention, two polarities.

    The model is a causal or masked language model, or one that answers with a span. ``progress``
    counts questions.

    Raises:
        InputError: if the model cannot be asked that way, its tokenizer does not know a subject or
            an attribute, or writes two of them alike, a text is too long for it, its
            probabilities are undefined, or ``cache`` holds answers under other settings.
        ShareDone: where another process gathers.
    """
    config = config or AskConfig()
    how = _way_to_ask(model, config)
    _refuse_unknown(model, design)
    ask: Ask
    if how == "span":
        ask = partial(_point_at_answers, model, config.batch_size)
    elif how == "mask":
        ask = partial(_fill_masks, model, config.batch_size)
    else:
        ask = ContinuationAsker(model, config.batch_size, how).ask
    weights = model.weight_hash()
    n_pairs, n_templates, n_attributes = design.shape
    pieces = [
        (template, np.arange(first, min(first + _PAIRS, n_pairs)))
        for template in range(n_templates)
        for first in range(0, n_pairs, _PAIRS)
    ]
    read = read_blocks(
        model,
        [_block(model, ask, design, template, pairs) for template, pairs in pieces],
        identity={**identity(config), "ask": how},
        weights=weights,
        cache=cache,
        progress=progress,
    )
    log_prob = np.full((n_pairs, n_templates, n_attributes, 2, 2, 2), np.nan)
    mass = np.full((n_pairs, n_templates, n_attributes, 2, 2), np.nan)
    n_tokens = np.zeros((n_templates, len(design.subjects)), dtype=int)
    for (template, pairs), arrays in zip(pieces, read, strict=True):
        index = np.ix_(pairs, np.array([template]), np.flatnonzero(design.asked[template]))
        log_prob[index] = arrays["log_prob"][:, None]
        mass[index] = arrays["mass"][:, None]
        n_tokens[template, design.first[pairs]] = arrays["n_tokens"][:, 0]
        n_tokens[template, design.second[pairs]] = arrays["n_tokens"][:, 1]
    spelled = [
        *(f"{one.name}, {one.adjective}" for one in design.subjects),
        *(f"{one.says}, {one.antonym}" for one in design.attributes),
        *(template.name for template in design.templates),
    ]
    record = AnswersRecord(
        model=model_record(model, weights=weights),
        remarks=model.special_remarks(spelled),
        ask=how,
        design=design.record,
        questions=design.n_questions,
        tokens=tuple(map(tuple, n_tokens.tolist())),
    )
    return Answers(design.first, design.second, log_prob, mass, record)


def _way_to_ask(model: LanguageModel, config: AskConfig) -> str:
    """The way that is asked for, or the usual one of a kind of model."""
    able = {"causal": ("cloze", "question"), "masked": ("mask",), "span": ("span",)}
    if model.kind not in able:
        raise InputError(
            f"`model` {model.name} is a {model.kind} model; questions are asked of causal and "
            "masked language models and of models that answer with a span"
        )
    how = able[model.kind][0] if config.ask == "auto" else config.ask
    if how not in able[model.kind]:
        raise InputError(
            f"`ask` must be one of {', '.join(able[model.kind])} for the {model.kind} model "
            f"{model.name}; got {config.ask!r}"
        )
    if how == "span":
        model.require_whole_checkpoint()
    else:
        model.require_language_head()
    return how


def _refuse_unknown(model: LanguageModel, design: Design) -> None:
    """Refuse subjects and attributes that the tokenizer does not know, or cannot tell apart."""
    subjects = {f"{one.name}, {one.adjective}": repr(one.name) for one in design.subjects}
    attributes = {
        f"{one.says}, {one.antonym}": f"number {number}" if one.sensitive else repr(one.name)
        for number, one in enumerate(design.attributes, start=1)
    }
    where = f"`class` {design.record.name}: the tokenizer of `model` {model.name}"
    for noun, named in (("subject", subjects), ("attribute", attributes)):
        first: dict[tuple[int, ...], str] = {}
        # Inside a sentence, as in questions: before a text alone some tokenizers put a space.
        ids = model.token_ids([f"They met {text}." for text in named])
        for name, own in zip(named.values(), map(tuple, ids), strict=True):
            if model.tokenizer.unk_token_id in own:
                fault = f"does not know the {noun} {name}; leave it out"
            elif own in first:
                fault = f"writes the {noun}s {first[own]} and {name} alike; leave one out"
            else:
                first[own] = name
                continue
            raise InputError(f"{where} {fault}, or use another model")


# -- what is asked at a time -----------------------------------------------------------------------


@dataclass(frozen=True)
class Instance:
    """Two subjects in one template, in one order, asked about some attributes.

    ``mentioned`` are the two in the order of mention, ``candidates`` the same as x1 and x2.
    """

    template: Template
    mentioned: tuple[Subject, Subject]
    candidates: tuple[Subject, Subject]
    attributes: Sequence[Attribute]

    @property
    def context(self) -> str:
        """The sentence that mentions both."""
        return self.template.context(*self.mentioned)

    def asked(self) -> Iterator[tuple[Attribute, bool]]:
        """The questions: every attribute, then its denial."""
        return product(self.attributes, (False, True))

    def statements(self) -> Iterator[tuple[str, slice]]:
        """The sentence about either subject, and the place of the subject in it."""
        for attribute, denied in self.asked():
            for subject in self.candidates:
                yield self.template.statement(subject, attribute, denied)


class Asked(NamedTuple):
    """Answers to instances that ask about as many attributes: for each, then for its denial.

    ``mass`` is the probability that the answer is one of the two; for cloze, that the sentence
    begins with one of them.
    """

    log_prob: Float[np.ndarray, "instance attribute polarity subject"]
    n_tokens: Int[np.ndarray, "instance attribute polarity subject"]
    mass: Float[np.ndarray, "instance attribute polarity"]


Ask = Callable[[Sequence[Instance], Progress], Asked]


def _block(
    model: LanguageModel, ask: Ask, design: Design, template: int, pairs: np.ndarray
) -> Block:
    """Some pairs in a template with its attributes, which are asked about and saved together."""
    instances = partial(_instances, design, template, pairs)
    return Block(
        f"{design.record.name} template {template + 1} pairs from {pairs[0] + 1}",
        4 * len(pairs) * int(design.asked[template].sum()),
        lambda: _depends_on(instances()),
        lambda progress: _answers(model, ask(instances(), progress)),
    )


def _instances(design: Design, template: int, pairs: np.ndarray) -> list[Instance]:
    """Both orders of each pair in a template, pair by pair."""
    attributes = [design.attributes[number] for number in np.flatnonzero(design.asked[template])]
    listed = []
    for pair in pairs:
        both = design.subjects[design.first[pair]], design.subjects[design.second[pair]]
        for mentioned in (both, both[::-1]):
            listed.append(Instance(design.templates[template], mentioned, both, attributes))
    return listed


def _depends_on(instances: Sequence[Instance]) -> dict[str, str]:
    """Hash of everything that is asked."""
    asked = [
        (one.context, [s.name for s in one.candidates], one.template, one.attributes)
        for one in instances
    ]
    return {"texts": text_hash(repr(asked))}


def _answers(model: LanguageModel, asked: Asked) -> Arrays:
    """Answers as they are saved: pair first, order after the attribute."""
    if not np.isfinite(asked.log_prob).all():
        raise InputError(f"`model` {model.name} gives undefined probabilities; use --dtype float32")
    return {
        "log_prob": np.stack([asked.log_prob[::2], asked.log_prob[1::2]], axis=2),
        "mass": np.stack([asked.mass[::2], asked.mass[1::2]], axis=2),
        "n_tokens": asked.n_tokens[::2, 0, 0],
    }


# -- causal models ---------------------------------------------------------------------------------


class ScoredText(NamedTuple):
    """A text, and where in it the scored part begins and the subject's name ends."""

    ids: list[int]
    start: int
    named_to: int


class ContinuationAsker:
    """Causal models: the log-probability of a sentence (cloze) or answer (question) after a text.

    All texts of an instance are read together: what they share is run once.
    """

    def __init__(self, model: LanguageModel, batch_size: int, how: str) -> None:
        self._model, self._batch_size, self._how = model, batch_size, how
        self._scorer: Scorer | None = None

    def ask(self, instances: Sequence[Instance], progress: Progress) -> Asked:
        """Log-probabilities of both subjects for every question of every instance."""
        split = [self.texts(instance) for instance in instances]
        requests = [
            Request(
                tuple(text.ids for text in texts),
                tuple((i, range(text.start, len(text.ids))) for i, text in enumerate(texts)),
            )
            for texts in split
        ]
        texts = [text for of_instance in split for text in of_instance]
        if self._scorer is None:
            self._scorer = self._scorer_of(requests, texts)
        read = self._scorer.read(requests, progress=progress)
        of_texts = [values for of_instance in read for values in of_instance]
        n_named = np.array([text.named_to - text.start for text in texts])
        whole = np.array([own.sum() for own in of_texts])
        named = np.array([own[:n].sum() for own, n in zip(of_texts, n_named, strict=True)])
        shape = (len(instances), -1, 2, 2)
        mass = np.exp(named.reshape(shape)).sum(-1)
        return Asked(whole.reshape(shape), n_named.reshape(shape), mass)

    def _scorer_of(self, requests: Sequence[Request], texts: Sequence[ScoredText]) -> Scorer:
        """Reads as many tokens in a pass as that many separate texts have."""
        leading = len(special_tokens_around(self._model.tokenizer)[0])
        length = leading + np.mean([len(text.ids) for text in texts])
        trees, _ = as_trees(self._model, requests)
        together = max(1, round(max(map(len, trees)) / length))
        return Scorer(self._model, batch_size=self._batch_size, texts_per_tree=together)

    def texts(self, instance: Instance) -> list[ScoredText]:
        """The texts of an instance by attribute, polarity and subject."""
        parts = [  # the given text, the same with the subject, and the whole
            (given, f"{given} {said[: place.stop]}", f"{given} {said}")
            for given, said, place in self._continuations(instance)
        ]
        distinct = list(dict.fromkeys(text for three in parts for text in three))
        ids = self._model.tokenizer(distinct, add_special_tokens=False)["input_ids"]
        of = dict(zip(distinct, ids, strict=True))
        # The two subjects of a question stand one after the other.
        return [
            text
            for first in range(0, len(parts), 2)
            for text in _same_beginning(self._model, parts[first : first + 2], of)
        ]

    def _continuations(self, instance: Instance) -> Iterator[tuple[str, str, slice]]:
        """The text before, what is scored after it, and where in that the subject stands."""
        template, context = instance.template, instance.context
        if self._how == "cloze":
            for said, place in instance.statements():
                yield context, said, place
            return
        for attribute, denied in instance.asked():
            question = template.question(attribute, denied)
            for subject in instance.candidates:
                answer, place = template.answer(subject)
                # The full stop ends it: Ann must not stand for Anna.
                yield f"Paragraph: {context} Question: {question} Answer:", f"{answer}.", place


def _same_beginning(
    model: LanguageModel, parts: Sequence[tuple[str, str, str]], ids: Mapping[str, list[int]]
) -> list[ScoredText]:
    """Texts about two subjects after what is given, scored from the same character on."""
    given, _, whole = parts[0]
    start = shared_start(model, ids[given], [ids[text] for *_, text in parts], where=repr(whole))
    return [
        ScoredText(ids[whole], start, max(start + 1, common_prefix(ids[named], ids[whole])))
        for _, named, whole in parts
    ]


# -- masked models ---------------------------------------------------------------------------------


def _fill_masks(
    model: LanguageModel, batch_size: int, instances: Sequence[Instance], progress: Progress
) -> Asked:
    """Masked models: the subject of a sentence after the context is masked and read.

    The whole vocabulary shares the probability; a subject of several tokens is read with as many
    masks, from left to right. Rows that two subjects share are run once.
    """
    mask, rows, read = mask_token(model), MaskedRows(), []
    for instance in instances:
        context, said = instance.context, list(instance.statements())
        texts = [f"{context} {statement}" for statement, _ in said]
        encoded = model.tokenizer(texts, return_offsets_mapping=True)
        for ids, offsets, (_, place), text in zip(
            encoded["input_ids"], encoded["offset_mapping"], said, texts, strict=True
        ):
            start, stop = (len(context) + 1 + end for end in (place.start, place.stop))
            inside = [i for i, (a, b) in enumerate(offsets) if a < stop and b > start and b > a]
            if not inside:
                raise InputError(f"the tokenizer makes no token of the subject of {text!r}")
            read.append(rows.add_span(ids, inside[0], inside[-1] + 1, mask))
    values = Scorer(model, batch_size=batch_size).log_probs(rows.trees(), progress=progress)
    shape = (len(instances), -1, 2, 2)
    n = np.reshape([len(of_text) for of_text in read], shape)
    total = [sum(values[row][slot] for row, slot in of_text) for of_text in read]
    log_prob = np.reshape(total, shape)
    return Asked(log_prob, n, np.exp(log_prob).sum(-1))


# -- models that answer with a span ----------------------------------------------------------------


def _point_at_answers(
    model: LanguageModel, batch_size: int, instances: Sequence[Instance], progress: Progress
) -> Asked:
    """Models that point at the beginning and the end of an answer in the context."""
    questions = []
    for instance in instances:
        context, places = instance.template.context_with_places(*instance.mentioned)
        of_candidates = places if instance.mentioned == instance.candidates else places[::-1]
        for attribute, denied in instance.asked():
            question = instance.template.question(attribute, denied)
            questions.append(SpanQuestion(question, context, of_candidates))
    log_prob, n_tokens = span_log_probs(model, questions, batch_size=batch_size, progress=progress)
    shape = (len(instances), -1, 2, 2)
    log_prob = log_prob.reshape(shape)
    return Asked(log_prob, n_tokens.reshape(shape), np.exp(log_prob).sum(-1))
