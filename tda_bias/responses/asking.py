"""Prompts as token ids: by the chat template of a tokenizer, or as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tda_bias.config import RespondConfig
from tda_bias.models.language_model import LanguageModel, special_tokens_around
from tda_bias.responses.persons import PersonSet, drawn, refuse_descriptions_twice
from tda_bias.responses.prompts import Prompt
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError

# What chat templates call the switch of thinking.
_SWITCH = "enable_thinking"
_SPELLINGS = (str, str.lower, str.upper, str.capitalize)


@dataclass(frozen=True)
class Asked:
    """A prompt about its four people, as it is put to the model.

    Attributes:
        prompt: Which.
        persons: Numbers of its people: two of the first group, two of the second.
        ids: Token ids of the prompt about each of them, all of one length.
    """

    prompt: Prompt
    persons: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Form:
    """How a model is asked: by its chat template or with plain text, with or without thinking."""

    model: LanguageModel
    config: RespondConfig

    @property
    def chat(self) -> Literal["template", "text"]:
        """What is used, where the configuration leaves it open."""
        if self.config.chat == "text":
            return "text"
        return "template" if self._template else "text"

    @property
    def thinking(self) -> Literal["off", "on", "unknown"]:
        """Whether the model thinks first; unknown where its template has no switch for it."""
        return self.config.thinking if self._has_switch else "unknown"

    @property
    def _template(self) -> str:
        return str(getattr(self.model.tokenizer, "chat_template", None) or "")

    @property
    def _has_switch(self) -> bool:
        return self.chat == "template" and _SWITCH in self._template

    def check(self) -> None:
        """Refuse settings that this tokenizer has no place for.

        Raises:
            InputError: naming the setting.
        """
        name = self.model.name
        if self.config.chat == "template" and not self._template:
            raise InputError(f"`chat`: the tokenizer of {name} has no chat template; leave it out")
        if self.config.system is not None and self.chat == "text":
            raise InputError(
                f"`system` needs a chat template, and {name} is asked with plain text; leave it out"
            )
        if self.config.thinking == "on" and not self._has_switch:
            raise InputError(
                f"`thinking`: the chat template of {name} has no switch for it; leave it out"
            )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of prompts, up to where the response begins.

        Raises:
            InputError: if the chat template refuses the system prompt.
        """
        tokenizer: Any = self.model.tokenizer
        if self.chat == "text":
            before = special_tokens_around(tokenizer)[0]
            return [[*before, *own] for own in self.model.token_ids(texts)]
        from jinja2 import TemplateError

        said = [{"role": "system", "content": self.config.system}] if self.config.system else []
        chats = [[*said, {"role": "user", "content": text}] for text in texts]
        switch = {_SWITCH: self.config.thinking == "on"} if self._has_switch else {}
        try:
            read = tokenizer.apply_chat_template(
                chats, add_generation_prompt=True, tokenize=True, return_dict=True, **switch
            )
        except TemplateError as error:
            raise InputError(
                f"the chat template of {self.model.name} refuses the prompt ({error}); leave "
                "--system out"
            ) from None
        return [list(own) for own in read["input_ids"]]


def asked(
    model: LanguageModel, prompts: Sequence[Prompt], persons: PersonSet, config: RespondConfig
) -> list[Asked]:
    """The prompts, each about four people of its own.

    Raises:
        InputError: if a setting has no place in this tokenizer, a prompt has no four people with as
            many tokens, or a prompt with its response does not fit the model's context.
    """
    refuse_descriptions_twice(prompts, persons)
    form = Form(model, config)
    form.check()
    names = [person.name for person in persons.persons]
    every = [form.ids([prompt.about(name) for name in names]) for prompt in prompts]
    tokens = np.array([[len(ids) for ids in of_prompt] for of_prompt in every])
    four = drawn(persons, prompts, tokens, generator(config.seed, "respond", "persons"))
    found = [
        Asked(prompt, tuple(own.tolist()), tuple(tuple(of_prompt[i]) for i in own))
        for prompt, own, of_prompt in zip(prompts, four, every, strict=True)
    ]
    longest = max(found, key=lambda one: len(one.ids[0]))
    n, limit = len(longest.ids[0]), model.max_tokens
    if limit is not None and n + config.tokens > limit:
        raise InputError(
            f"the prompt {longest.prompt.id!r} has {n} tokens and its response up to "
            f"{config.tokens}, `model` {model.name} takes {limit}; shorten it, or lower --tokens"
        )
    return found


def answer_tokens(model: LanguageModel, prompt: Prompt) -> tuple[list[int], list[int]]:
    """Tokens that begin each of a prompt's two answers, over all their spellings.

    With and without a space before it, in small letters, capitals, and as it stands; of an answer
    that is no single token, the first one.

    Raises:
        InputError: if an answer has no token that the other one has not.
    """
    both = []
    for answer in prompt.choices:
        spelled = dict.fromkeys(spell(answer) for spell in _SPELLINGS)
        ids = model.token_ids([f"{space}{text}" for text in spelled for space in ("", " ")])
        first = {own[0]: len(own) for own in ids if own} | {
            own[0]: 1 for own in ids if len(own) == 1
        }
        first.pop(model.tokenizer.unk_token_id, None)
        alone = {token for token, length in first.items() if length == 1}
        both.append(alone or {*first})
    good, bad = both
    if not (good - bad and bad - good):
        raise InputError(
            f"the prompt {prompt.id!r}: its answers {' and '.join(prompt.choices)} begin with the "
            f"same token of {model.name}, or one with none; give others"
        )
    return sorted(good - bad), sorted(bad - good)
