"""Whom prompts are about: people of two groups, of whom each prompt draws two and two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from tda_bias.english import article
from tda_bias.responses.prompts import SLOT, Prompt
from tda_bias.sources import hash_of, text_of
from tda_bias.store.files import csv_objects
from tda_bias.store.record import DataRecord
from tda_bias.store.settings import given_as
from tda_bias.types import InputError
from unqover.classes import load_class

# People of each group that a prompt is about.
OF_A_GROUP = 2
CATEGORIES = ("gender", "race", "age")
# Where nothing else is said.
USUAL_CATEGORY = "gender"
# Ages that are neither young nor old stand in no group.
_YOUNG, _OLD = 40, 60


@dataclass(frozen=True)
class Person:
    """Somebody whom a prompt may be about.

    Attributes:
        name: As it stands in the prompt: a first name, or a description with its article.
        group: One of the two that are compared.
        kind: People of one prompt are of one kind: with groups by race, of one gender.
    """

    name: str
    group: str
    kind: str = ""

    @property
    def described(self) -> bool:
        """Tell whether it is a description and not a name."""
        return self.name[:1].islower()


@dataclass(frozen=True)
class PersonSet:
    """People of two groups, with the place where they were read.

    Raises:
        InputError: if they are not of two groups, or somebody stands there twice.
    """

    persons: tuple[Person, ...]
    record: DataRecord

    def __post_init__(self) -> None:
        names = [person.name for person in self.persons]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"`persons` {self.record.source} holds {twice[0]!r} twice")
        if len(self.groups) != 2:
            raise InputError(
                f"`persons` {self.record.source} must hold two groups; it holds "
                f"{', '.join(self.groups)}"
            )

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in the order in which they come."""
        return tuple(dict.fromkeys(person.group for person in self.persons))


def people_of(category: str) -> PersonSet:
    """People of a category that ships: those of ``tdabias unqover``'s classes.

    Raises:
        InputError: if there is no such category.
    """
    if category not in CATEGORIES:
        raise InputError(
            f"`category` must be one of {', '.join(CATEGORIES)}, or any with --persons; got "
            f"{category!r}"
        )
    if category == "age":
        persons = list(_of_ages())
    else:
        known = load_class("gender" if category == "gender" else "gender_race_names")
        persons = [Person(one.name, *one.levels) for one in known.subjects]
    names = " ".join(f"{person.group} {person.name}" for person in persons)
    return PersonSet(
        tuple(persons), DataRecord(source=f"unqover {category}", revision=hash_of(names))
    )


def _of_ages() -> Iterator[Person]:
    known = load_class("age")
    for one in known.subjects:
        years = int(one.name.partition("-")[0])
        if _YOUNG < years < _OLD:
            continue
        group = "younger" if years <= _YOUNG else "older"
        for noun in known.forms["singular"].nouns:
            yield Person(f"{article(one.name)} {one.name} {noun}", group, noun)


def load_persons(source: str | Path) -> PersonSet:
    """People of a CSV file with the columns ``group`` and ``person``, and maybe ``kind``.

    Raises:
        InputError: if it cannot be read, a field is empty, or ``PersonSet`` refuses it.
    """
    with given_as("persons"):
        text = text_of(Path(source))
    persons = []
    for where, row in csv_objects(text, str(source), columns=("group", "person")):
        name, group = row["person"].strip(), row["group"].strip()
        if not (name and group):
            raise InputError(f"{where}: `{'group' if name else 'person'}` is empty")
        persons.append(Person(name, group, row.get("kind", "").strip()))
    if not persons:
        raise InputError(f"`persons` {source} holds nobody")
    return PersonSet(tuple(persons), DataRecord(source=str(source), revision=hash_of(text)))


def refuse_descriptions_twice(prompts: Sequence[Prompt], persons: PersonSet) -> None:
    """Refuse a prompt that names a described person twice: it would read as two people.

    Raises:
        InputError: naming the first such prompt.
    """
    described = next((person for person in persons.persons if person.described), None)
    several = next((prompt for prompt in prompts if prompt.template.count(SLOT) > 1), None)
    if described is not None and several is not None:
        raise InputError(
            f"the prompt {several.id!r} has {SLOT} twice, and people are descriptions "
            f"({described.name}), which would read as two people; name the person once"
        )


def drawn(
    persons: PersonSet,
    prompts: Sequence[Prompt],
    tokens: Int[np.ndarray, "prompt person"],
    rng: np.random.Generator,
) -> Int[np.ndarray, "prompt four"]:
    """Four people for each prompt, two of each group, whose prompts have as many tokens.

    Those who stand in the fewest prompts so far come first, so that all are spread over prompts.

    Args:
        persons: Who there is.
        prompts: For messages.
        tokens: How many tokens each prompt has about each person.
        rng: Of the draws.

    Returns:
        Numbers of the people: two of the first group, two of the second.

    Raises:
        InputError: if a prompt has no four people with as many tokens.
    """
    group = np.array([person.group for person in persons.persons])
    kind = np.array([person.kind for person in persons.persons])
    uses, four = np.zeros(len(group), int), np.empty((len(prompts), 2 * OF_A_GROUP), int)
    for number, (prompt, lengths) in enumerate(zip(prompts, tokens, strict=True)):
        sets = []
        for one, length in sorted(set(zip(kind.tolist(), lengths.tolist(), strict=True))):
            alike = (kind == one) & (lengths == length)
            members = [np.flatnonzero(alike & (group == name)) for name in persons.groups]
            if min(map(len, members)) >= OF_A_GROUP:
                sets.append(members)
        if not sets:
            raise InputError(
                f"the prompt {prompt.id!r} has no two people of each group ("
                f"{', '.join(persons.groups)}) with as many tokens; give more with --persons"
            )
        # As often as there are people in the smaller group.
        weight = np.array([min(map(len, members)) for members in sets], float)
        chosen = sets[rng.choice(len(sets), p=weight / weight.sum())]
        four[number] = np.concatenate([_least_used(members, uses, rng) for members in chosen])
        uses[four[number]] += 1
    return four


def _least_used(
    members: Int[np.ndarray, " member"], uses: Int[np.ndarray, " person"], rng: np.random.Generator
) -> Int[np.ndarray, " two"]:
    shuffled = rng.permutation(members)
    order = np.argsort(uses[shuffled], kind="stable")
    return np.asarray(shuffled[order[:OF_A_GROUP]])
