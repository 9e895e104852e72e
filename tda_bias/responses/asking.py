"""Prompts as token ids: by the chat template of a tokenizer, or as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tda_bias.config import RespondConfig
from tda_bias.models.chat import Chat
from tda_bias.models.language_model import LanguageModel, special_tokens_around
from tda_bias.responses.persons import OF_A_GROUP, PersonSet, drawn, refuse_descriptions_twice
from tda_bias.responses.prompts import Prompt
from tda_bias.show.alike import alike_remark
from tda_bias.stats.seeds import generator
from tda_bias.types import InputError

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


def people_told_apart(
    model: LanguageModel, persons: PersonSet
) -> tuple[PersonSet, tuple[str, ...]]:
    """The people whom a tokenizer writes in words that it knows, each in others.

    Returns:
        These people, and a sentence on those who are left out; none where nobody is.

    Raises:
        InputError: if no two people of each group are left.
    """
    ids = [tuple(own) for own in model.token_ids([f" {one.name}" for one in persons.persons])]
    times, unknown = Counter(ids), model.tokenizer.unk_token_id
    kept = tuple(
        person
        for person, own in zip(persons.persons, ids, strict=True)
        if times[own] == 1 and unknown not in own
    )
    remarks = alike_remark(len(ids) - len(kept), len(ids), "person")
    left = Counter(person.group for person in kept)
    if remarks and min(left[group] for group in persons.groups) < OF_A_GROUP:
        raise InputError(
            f"`model` {model.name}: its tokenizer tells no {OF_A_GROUP} people of each group apart "
            f"({', '.join(f'{left[group]} of {group}' for group in persons.groups)}), for "
            "letters, capitals or accents that it does not know; give others with --persons"
        )
    return replace(persons, persons=kept) if remarks else persons, remarks


def asked(
    model: LanguageModel,
    prompts: Sequence[Prompt],
    persons: PersonSet,
    config: RespondConfig,
    chat: Chat | None,
) -> list[Asked]:
    """The prompts, each about four people of its own; ``chat`` is what stands around each.

    Raises:
        InputError: if a prompt has no four people with as many tokens, or does not fit the model's
            context with its response.
    """
    refuse_descriptions_twice(prompts, persons)
    before, _ = special_tokens_around(model.tokenizer)

    def ids_of(texts: list[str]) -> list[list[int]]:
        whole = texts if chat is None else [chat.prompt(text) for text in texts]
        return [[*before, *own] for own in model.token_ids(whole)]

    names = [person.name for person in persons.persons]
    every = [ids_of([prompt.about(name) for name in names]) for prompt in prompts]
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
