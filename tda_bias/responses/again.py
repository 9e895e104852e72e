"""Prompts of a run put to a model again, with the responses that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tda_bias.config import RespondConfig
from tda_bias.models.chat import chat_for
from tda_bias.models.language_model import LanguageModel
from tda_bias.responses.asking import Asked, answer_tokens, asked, people_told_apart
from tda_bias.responses.persons import USUAL_CATEGORY, PersonSet, load_persons, people_of
from tda_bias.responses.prompts import BUNDLED, PromptSet, load_prompts, spread
from tda_bias.responses.result import Responses
from tda_bias.types import InputError


@dataclass(frozen=True)
class Written:
    """A prompt about its four people, and the responses that were written to it.

    Attributes:
        asked: The prompt.
        names: Its people: two of the first group, two of the second.
        responses: Token ids of the responses; empty where none are read.
        whose: The number of the person whom each is about.
        answers: Tokens that begin the good answer, and the other one; None without a decision.
    """

    asked: Asked
    names: tuple[str, ...]
    responses: tuple[tuple[int, ...], ...] = ()
    whose: tuple[int, ...] = ()
    answers: tuple[list[int], list[int]] | None = None


def decisions(model: LanguageModel, category: str = USUAL_CATEGORY) -> list[Written]:
    """The bundled prompts that ask for a decision, about people of a category; no responses.

    Raises:
        InputError: as ``people_of``, ``asked`` and ``answer_tokens``.
    """
    every = _put(model, load_prompts(), people_of(category), RespondConfig())
    return [one for one in every if one.answers is not None]


def written_again(
    model: LanguageModel,
    run: Responses,
    *,
    limit: int | None = None,
    samples: int | None = None,
) -> list[Written]:
    """What a run of ``respond`` asked its model, with the responses; all decisions among it.

    Args:
        model: The run's model.
        run: The run, which samples.
        limit: Responses to at most so many prompts, spread over kinds; to all if None.
        samples: The first so many of those about each person; all if None.

    Raises:
        InputError: if prompts or people have changed since, or are others for this model.
    """
    prompts, persons = _read_again(run)
    every = _put(model, prompts, persons, run.record.settings_as(RespondConfig))
    with_responses = set(spread(prompts.prompts, limit))
    read = run.responses
    if samples is not None:
        read = read[read["number"] < samples]
    rows = dict(list(read.groupby("prompt", sort=False)))
    people = {
        row["id"]: f"{row['first']}, {row['second']}" for row in run.prompts.to_dict("records")
    }
    found = []
    for one in every:
        name = one.asked.prompt.id
        has_responses = one.asked.prompt in with_responses
        if not has_responses and one.answers is None:
            continue
        if people.get(name) != ", ".join(one.names):
            raise InputError(
                f"`respond` {run.record.model.name}: the prompt {name!r} was about other people "
                f"({people.get(name)}); make the run again"
            )
        if not has_responses:
            found.append(one)
            continue
        own = rows[name]
        responses = tuple(tuple(map(int, ids)) for ids in own["ids"])
        whose = tuple(one.names.index(person) for person in own["person"])
        found.append(replace(one, responses=responses, whose=whose))
    return found


def _put(
    model: LanguageModel, prompts: PromptSet, persons: PersonSet, config: RespondConfig
) -> list[Written]:
    """Every prompt about its four people, as ``respond`` draws them."""
    chat = chat_for(model, config, thinking=config.thinking)
    persons, _ = people_told_apart(model, persons)
    return [
        Written(
            one,
            tuple(persons.persons[number].name for number in one.persons),
            answers=answer_tokens(model, one.prompt) if one.prompt.choices else None,
        )
        for one in asked(model, prompts.prompts, persons, config, chat)
    ]


def _read_again(run: Responses) -> tuple[PromptSet, PersonSet]:
    """Prompts and people of a run, from where they were."""
    record = run.record
    limit = record.settings.get("limit")
    prompts = load_prompts(record.setting("prompts", BUNDLED), limit=limit)
    own = record.settings.get("persons")
    persons = (
        load_persons(str(own)) if own else people_of(record.setting("category", USUAL_CATEGORY))
    )
    was = (record.data.revision or "" if record.data else "", record.persons.revision or "")
    for what, then, now in (
        ("prompts", was[0].split(" ")[0], prompts.record),
        ("people", was[1], persons.record),
    ):
        if then != now.revision:
            raise InputError(
                f"the {what} of {now.source} have changed since a run of `tdabias respond` read "
                "them; make the run again"
            )
    return prompts, persons


def n_responses(written: Sequence[Written]) -> int:
    """How many responses there are."""
    return sum(len(one.responses) for one in written)
