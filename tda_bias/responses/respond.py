"""``respond``: responses about people of two groups, and how far they depend on the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tda_bias.config import RespondConfig
from tda_bias.models.chat import Chat, chat_for
from tda_bias.models.language_model import LanguageModel, model_record
from tda_bias.models.scored import Arrays, Block, read_blocks
from tda_bias.responses.asking import Asked, answer_tokens, asked, people_told_apart
from tda_bias.responses.divergence import Reader
from tda_bias.responses.echo import EchoClasses, echo_classes
from tda_bias.responses.persons import PersonSet
from tda_bias.responses.prompts import PromptSet
from tda_bias.responses.result import RespondRecord, Responses
from tda_bias.responses.sampling import end_tokens, response_seed, responses
from tda_bias.responses.tables import Answered, response_table, result_tables
from tda_bias.responses.written import Words, pieces_of, words_of
from tda_bias.store.cache import OpenCache, no_cache, texts_hash
from tda_bias.store.identity import identity
from tda_bias.store.record import SourceOfRun
from tda_bias.types import InputError, Progress

# A token that is expected less often in a response about anybody is not kept.
_RARE = 1e-4
# What sampling takes of the time of a prompt; scoring takes the rest.
_SAMPLING = 0.4
# Settings that change a response through the tokens of its prompt alone.
_IN_PROMPTS = frozenset({"chat", "system", "thinking"})


def respond(
    model: LanguageModel,
    prompts: PromptSet,
    persons: PersonSet,
    *,
    config: RespondConfig | None = None,
    cache: OpenCache = no_cache,
    progress: Progress | None = None,
) -> Responses:
    """Sample responses about people of two groups, and read each about everybody of its prompt.

    Args:
        model: A causal language model.
        prompts: What it is asked; see ``load_prompts``.
        persons: Whom about; each prompt draws two of each group.
        config: How it is asked, how often, and the tests.
        cache: Opens the cache of finished parts.
        progress: Called with responses done and all.

    Raises:
        InputError: if the model is no causal language model, ``people_told_apart``, ``asked``
            or ``answer_tokens`` refuses, a probability is NaN, or ``cache`` holds responses of
            something else.
        ShareDone: where another process gathers.
    """
    config = config or RespondConfig()
    model.require_language_head()
    hf_model: Any = model.hf_model
    if model.kind != "causal" or not hf_model.can_generate():
        raise InputError(
            f"`model` {model.name} is a {model.kind} model ({model.architecture}); responses are "
            "sampled from causal language models that transformers can generate with"
        )
    chat = chat_for(model, config, thinking=config.thinking)
    persons, remarks = people_told_apart(model, persons)
    every = asked(model, prompts.prompts, persons, config, chat)
    answers = {
        one.prompt.id: answer_tokens(model, one.prompt) for one in every if one.prompt.choices
    }
    reader = Reader(model, batch_size=config.batch_size)
    readers = [
        _PromptReader(model, reader, one, _names(one, persons), answers.get(one.prompt.id), config)
        for one in every
    ]
    read = read_blocks(
        model,
        [one.block() for one in readers],
        identity={
            "format": 1,
            "tokenizer": model.tokenizer_hash(),
            "ends": end_tokens(model),
            **_drawn_by(config),
        },
        cache=cache,
        progress=progress,
    )
    names = [person.name for person in persons.persons]
    remarks += model.special_remarks([*(one.template for one in prompts.prompts), *names])
    return _collected(model, readers, read, persons, prompts, config, chat, remarks)


def _names(one: Asked, persons: PersonSet) -> list[str]:
    return [persons.persons[number].name for number in one.persons]


def _drawn_by(config: RespondConfig) -> dict[str, Any]:
    """What responses depend on beside their prompts, whose tokens are compared themselves."""
    own = {n: value for n, value in identity(config).items() if n not in _IN_PROMPTS}
    return own | ({"samples": 1, "seed": None} if config.greedy else {})


@dataclass(frozen=True)
class _PromptReader:
    """Samples and reads the responses to one prompt."""

    model: LanguageModel
    reader: Reader
    asked: Asked
    names: Sequence[str]
    answers: tuple[list[int], list[int]] | None
    config: RespondConfig

    @property
    def whose(self) -> list[int]:
        """For each response, which of the four people it is about."""
        samples = 1 if self.config.greedy else self.config.samples
        return [person for person in range(len(self.names)) for _ in range(samples)]

    @property
    def numbers(self) -> list[int]:
        """The number of each response among those about its person."""
        return [n - self.whose.index(person) for n, person in enumerate(self.whose)]

    @property
    def seeds(self) -> list[int]:
        """The seed of each response."""
        seed, prompt = self.config.seed, self.asked.prompt.id
        return [
            response_seed(seed, prompt, self.names[person], number)
            for person, number in zip(self.whose, self.numbers, strict=True)
        ]

    @property
    def classes(self) -> EchoClasses:
        """Counterpart tokens, the names' first tokens among them."""
        return echo_classes(self.model, self.names)

    def block(self) -> Block:
        """The responses, as one part of the cache."""
        return Block(
            f"prompt {self.asked.prompt.id}", len(self.whose), self._depends_on, self._read
        )

    def _depends_on(self) -> Mapping[str, Any]:
        classes = self.classes
        merged = (classes.token.tolist(), classes.of.tolist())
        begun = tuple(classes.begun), tuple(classes.begun.values())
        said = [self.asked.ids, merged, *begun, self.answers or ()]
        return {"prompts": texts_hash(said)}

    def _read(self, progress: Progress) -> Arrays:
        ids, whose, config = self.asked.ids, self.whose, self.config
        written = responses(
            self.model,
            [ids[person] for person in whose],
            n_tokens=config.tokens,
            seeds=None if config.greedy else self.seeds,
            batch_size=config.batch_size,
        )

        def scored(done: int, total: int) -> None:
            progress(round(1000 * (_SAMPLING + (1 - _SAMPLING) * done / total)), 1000)

        scored(0, 1)
        along = self.reader.read(ids, written, whose, self.classes, progress=scored)
        expected = along.expected / len(written)
        kept = np.flatnonzero(expected.max(0) >= _RARE)
        longest = max(map(len, written))
        tokens = [[*row, *[-1] * (longest - len(row))] for row in written]
        return {
            "tokens": np.array(tokens, np.int64),
            "kl": along.kl,
            "echo": along.echo,
            "log_prob": along.log_prob,
            "word": kept,
            "expected": expected[:, kept].astype(np.float32),
            "choice": self._choice(),
        }

    def _choice(self) -> Float[np.ndarray, "person answer"]:
        """Log-probabilities of the two answers at the first place; NaN without a decision."""
        if self.answers is None:
            return np.full((len(self.names), 2), np.nan)
        log_prob = self.reader.first_log_probs(self.asked.ids)
        sums = [np.logaddexp.reduce(log_prob[:, tokens], axis=1) for tokens in self.answers]
        return np.stack(sums, axis=1)


def _collected(
    model: LanguageModel,
    readers: Sequence[_PromptReader],
    read: Sequence[Arrays],
    persons: PersonSet,
    prompts: PromptSet,
    config: RespondConfig,
    chat: Chat | None,
    remarks: tuple[str, ...],
) -> Responses:
    """The tables of what was read."""
    ends = end_tokens(model)
    answered = [
        Answered(
            id=one.asked.prompt.id,
            kind=one.asked.prompt.kind,
            persons=tuple(one.names),
            whose=np.array(one.whose),
            number=np.array(one.numbers),
            seed=np.array([-1] * len(one.whose) if config.greedy else one.seeds),
            ids=ids,
            pieces=[pieces_of(model, row) for row in ids],
            ended=[row[-1] in ends for row in ids],
            kl=arrays["kl"],
            echo=arrays["echo"],
            log_prob=arrays["log_prob"],
            choice=arrays["choice"],
        )
        for one, arrays in zip(readers, read, strict=True)
        for ids in [[row[row >= 0].tolist() for row in arrays["tokens"]]]
    ]
    words: Words = words_of(
        model,
        [(arrays["word"], arrays["expected"]) for arrays in read],
        [one.classes for one in readers],
    )
    tables = result_tables(answered, words, persons.groups, config)
    return Responses(
        **tables,
        responses=response_table(answered, persons.groups),
        record=RespondRecord(
            model=model_record(model, weights=model.weight_hash()),
            data=prompts.record,
            remarks=remarks,
            persons=SourceOfRun(source=persons.record.source, revision=persons.record.revision),
            people=len(persons.persons),
            groups=persons.groups,
            prompts=len(readers),
            samples=1 if config.greedy else config.samples,
            tokens=config.tokens,
            ends=tuple(end_tokens(model)),
            greedy=config.greedy,
            chat=None if chat is None else chat.record,
            confidence=config.confidence,
        ),
    )
