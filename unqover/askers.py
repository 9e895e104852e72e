"""Log-probabilities of subjects as answers, for causal, masked and span models.

This is the only file of the package that runs a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.models.batching import (
    batches_of_similar_width,
    common_prefix,
    padded,
    special_tokens_around,
)
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined
from tda_bias.models.requests import MaskedRows, Request, as_trees, mask_token
from tda_bias.models.scoring import Scorer
from tda_bias.types import InputError
from unqover.bias import span_log_prob
from unqover.classes import Attribute, Subject
from unqover.config import AskConfig, Negation
from unqover.wording import Template


@dataclass(frozen=True)
class Instance:
    """Two subjects in one template, in one order, asked about some attributes.

    Attributes:
        template: The template.
        mentioned: The subjects in the order of mention.
        candidates: The same two as x1 and x2.
        attributes: What is asked.
    """

    template: Template
    mentioned: tuple[Subject, Subject]
    candidates: tuple[Subject, Subject]
    attributes: Sequence[Attribute]

    @property
    def context(self) -> str:
        """The sentence that mentions both."""
        return self.template.context(*self.mentioned)

    def questions(self, config: AskConfig) -> Iterator[tuple[Attribute, Negation | None, Subject]]:
        """Every attribute, then its denial, with either subject."""
        for attribute in self.attributes:
            for negation in (None, config.negation):
                for subject in self.candidates:
                    yield attribute, negation, subject


@dataclass(frozen=True)
class Asked:
    """Answers to one instance.

    Attributes:
        log_prob: ``(attribute, polarity, subject)``: the attribute, then its denial.
        n_tokens: ``(attribute, polarity, subject)`` tokens of the subject's name.
        mass: ``(attribute, polarity)`` probability that the answer is one of the two; for cloze,
            that the sentence begins with one of them.
    """

    log_prob: Float[np.ndarray, "attribute polarity subject"]
    n_tokens: Int[np.ndarray, "attribute polarity subject"]
    mass: Float[np.ndarray, "attribute polarity"]


class Asker(Protocol):
    """One way to ask a model."""

    how: str

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """Log-probabilities of both subjects for every question of every instance."""
        ...

    @property
    def notes(self) -> dict[str, Any]:
        """Notes on how texts were run, for the record; known after the first call."""
        ...


def asker(model: LanguageModel, config: AskConfig) -> Asker:
    """The way to ask a model.

    Raises:
        InputError: if the model cannot be asked that way.
    """
    usual = {"causal": "cloze", "masked": "mask", "span": "span"}
    able = {"causal": ("cloze", "question"), "masked": ("mask",), "span": ("span",)}
    if model.kind not in usual:
        raise InputError(
            f"`model` {model.name} is a {model.kind} model; questions are asked of causal and "
            "masked language models and of models that answer with a span"
        )
    how = usual[model.kind] if config.ask == "auto" else config.ask
    if how not in able[model.kind]:
        raise InputError(
            f"`ask` must be one of {', '.join(able[model.kind])} for the {model.kind} model "
            f"{model.name}; got {config.ask!r}"
        )
    if model.kind == "span":
        model.require_whole_checkpoint()
    else:
        model.require_language_head()
    kinds: dict[str, Any] = {
        "cloze": ContinuationAsker, "question": ContinuationAsker, "mask": MaskAsker,
        "span": SpanAsker,
    }  # fmt: skip
    made: Asker = kinds[how](model, config, how)
    return made


# -- causal models ---------------------------------------------------------------------------------


class ContinuationAsker:
    """Causal models: the log-probability of a sentence, or of an answer, behind a text.

    All texts of an instance are read together: what they share is run once.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self._model, self._config = model, config
        self._scorer: Scorer | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """If texts shared their beginnings, and why."""
        if self._scorer is None:
            return {}
        return {"share_prefix": self._scorer.packed, "share_prefix_check": self._scorer.why}

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        split = [self.texts(instance) for instance in instances]
        requests = [
            Request(
                tuple(text.ids for text in texts),
                tuple((i, range(text.start, len(text.ids))) for i, text in enumerate(texts)),
            )
            for texts in split
        ]
        trees, _ = as_trees(self._model, requests)
        if self._scorer is None:
            # As many tokens in a pass as that many separate texts would have.
            leading = len(special_tokens_around(self._model.tokenizer)[0])
            length = leading + np.mean([len(text.ids) for texts in split for text in texts])
            self._scorer = Scorer(
                self._model,
                batch_size=self._config.batch_size,
                texts_per_tree=max(1, round(max(map(len, trees)) / length)),
                share_prefix=self._config.share_prefix,
            )
        values = self._scorer.log_probs(trees)
        return [
            self._asked(instance, texts, of_instance)
            for instance, texts, of_instance in zip(instances, split, values, strict=True)
        ]

    def texts(self, instance: Instance) -> list[ScoredText]:
        """The texts of an instance by attribute, polarity and subject.

        Raises:
            InputError: if the tokenizer makes no token of a part of one.
        """
        parts = list(self._wording(instance))
        distinct = list(dict.fromkeys(text for three in parts for text in three))
        ids = self._model.tokenizer(distinct, add_special_tokens=False)["input_ids"]
        of = dict(zip(distinct, ids, strict=True))
        texts = []
        for given, named, whole in parts:
            start = common_prefix(of[given], of[whole])
            if start == 0 or start >= len(of[whole]):
                raise InputError(f"the tokenizer makes no token of a part of {whole!r}")
            named_to = max(start + 1, common_prefix(of[named], of[whole]))
            texts.append(ScoredText(of[whole], start, named_to))
        return texts

    def _wording(self, instance: Instance) -> Iterator[tuple[str, str, str]]:
        """The given text, the same with the subject, and the whole."""
        template, context = instance.template, instance.context
        for attribute, negation, subject in instance.questions(self._config):
            if self.how == "cloze":
                said, place = template.statement(subject, attribute, negation)
                given = context
            else:
                asked = template.question(attribute, negation)
                given = f"Paragraph: {context} Question: {asked} Answer:"
                # The full stop ends it: Ann must not stand for Anna.
                answer, place = template.answer(subject)
                said = f"{answer}."
            yield given, f"{given} {said[: place.stop]}", f"{given} {said}"

    def _asked(self, instance: Instance, texts: Sequence[ScoredText], values: np.ndarray) -> Asked:
        shape = (len(instance.attributes), 2, 2)
        sizes = [len(text.ids) - text.start for text in texts]
        n_named = np.array([text.named_to - text.start for text in texts])
        of_texts = np.split(values, np.cumsum(sizes)[:-1])
        whole = np.array([own.sum() for own in of_texts])
        named = np.array([own[:n].sum() for own, n in zip(of_texts, n_named, strict=True)])
        if self._config.length == "mean":
            whole = whole / sizes
        mass = np.exp(named.reshape(shape)).sum(-1)
        return Asked(whole.reshape(shape), n_named.reshape(shape), mass)


@dataclass(frozen=True)
class ScoredText:
    """A text, and where in it the scored part and what follows the subject's name begin."""

    ids: list[int]
    start: int
    named_to: int


# -- masked models ---------------------------------------------------------------------------------


class MaskAsker:
    """Masked models: the subject of a sentence behind the context is masked and read.

    The whole vocabulary shares the probability; a subject of several tokens is read with as many
    masks, from left to right. Rows that two subjects share are run once.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self.notes: dict[str, Any] = {}
        self._model, self._config = model, config
        self._mask = mask_token(model)

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        rows = MaskedRows()
        read: list[list[list[tuple[int, int]]]] = []
        for instance in instances:
            read.append([])
            for ids, first, last in self._masked(instance):
                # Everything of the subject is masked from a place on.
                masked = [
                    (*ids[:place], *[self._mask] * (last - place), *ids[last:])
                    for place in range(first, last)
                ]
                read[-1].append(
                    [rows.add(row, first + i, ids[first + i]) for i, row in enumerate(masked)]
                )
        values = Scorer(self._model, batch_size=self._config.batch_size).log_probs(rows.trees())
        results = []
        for instance, places in zip(instances, read, strict=True):
            shape = (len(instance.attributes), 2, 2)
            n = np.reshape([len(of_text) for of_text in places], shape)
            total = [sum(values[row][slot] for row, slot in of_text) for of_text in places]
            log_prob = np.reshape(total, shape)
            mass = np.exp(log_prob).sum(-1)
            if self._config.length == "mean":
                log_prob = log_prob / n
            results.append(Asked(log_prob, n, mass))
        return results

    def _masked(self, instance: Instance) -> list[tuple[tuple[int, ...], int, int]]:
        """Token ids of each statement behind its context, and which of them are the subject."""
        texts, places = [], []
        context = instance.context
        for attribute, negation, subject in instance.questions(self._config):
            said, place = instance.template.statement(subject, attribute, negation)
            start = len(context) + 1
            texts.append(f"{context} {said}")
            places.append((start + place.start, start + place.stop))
        encoded = self._model.tokenizer(texts, return_offsets_mapping=True)
        masked = []
        for ids, offsets, (start, stop), text in zip(
            encoded["input_ids"], encoded["offset_mapping"], places, texts, strict=True
        ):
            inside = [i for i, (a, b) in enumerate(offsets) if a < stop and b > start and b > a]
            if not inside:
                raise InputError(f"the tokenizer makes no token of the subject of {text!r}")
            masked.append((tuple(ids), inside[0], inside[-1] + 1))
        return masked


# -- models that answer with a span ----------------------------------------------------------------


class SpanAsker:
    """Models that point at the beginning and the end of an answer in the context.

    A subject's score is the square root of the probability of its first token as the beginning
    times that of its last as the end; of the starts with and without the words before it ("a group
    of"), and of the ends with and without the noun behind it, the likelier counts.

    Source: [UnQover] section 3 and its code.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self.notes: dict[str, Any] = {}
        self._model, self._config = model, config
        if config.length == "mean":
            raise InputError("`length` mean: a span has no tokens to take a mean over; use sum")

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        questions, contexts, places = [], [], []
        for instance in instances:
            context, spans = _mentions(instance)
            for attribute in instance.attributes:
                for negation in (None, self._config.negation):
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
