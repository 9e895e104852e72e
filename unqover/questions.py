"""Questions about pairs of subjects: which are asked, and how they read in English.

A design is a class or a sample of it that never looks at scores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field

from tda_bias.english import article, plural
from tda_bias.stats.seeds import generator
from tda_bias.store.record import RecordPart
from tda_bias.types import InputError
from unqover.classes import Attribute, Form, Frame, Subject, SubjectClass
from unqover.config import DesignConfig

T = TypeVar("T")


# -- which are asked -------------------------------------------------------------------------------


class DesignRecord(RecordPart):
    """The questions: sizes before sampling, and names of what was drawn.

    ``levels`` has each subject's level of every factor; attributes that are ``sensitive`` no
    summary prints.
    """

    name: str = Field(alias="class")
    source: str = ""
    subjects_available: int
    attributes_available: int
    factors: tuple[str, ...]
    subjects: tuple[str, ...] = Field(min_length=2)
    levels: tuple[tuple[str, ...], ...]
    templates: tuple[str, ...]
    attributes: tuple[str, ...] = Field(min_length=1)
    kinds: tuple[str, ...]
    sensitive: tuple[bool, ...]
    seed: int


@dataclass(frozen=True)
class Design:
    """Subjects, pairs of them (asked in both orders of mention), templates and attributes.

    ``asked`` is which template asks about which attribute.
    """

    subjects: tuple[Subject, ...]
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    templates: tuple[Template, ...]
    attributes: tuple[Attribute, ...]
    asked: Bool[np.ndarray, "template attribute"]
    record: DesignRecord

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of pairs, templates and attributes."""
        return len(self.first), len(self.templates), len(self.attributes)

    @property
    def n_questions(self) -> int:
        """Questions: every instance has two orders and two polarities."""
        return len(self.first) * int(self.asked.sum()) * 4


def sampled_design(chosen: SubjectClass, config: DesignConfig) -> Design:
    """The questions of a class.

    Subjects are drawn within their groups (whole levels where every combination is one subject,
    so that all combinations stay), attributes within their sets with kinds in proportion;
    templates are never drawn.

    Raises:
        InputError: if fewer than two subjects are left.
    """
    subjects = _subjects(chosen, config.subjects, generator(config.seed, 0))
    if len(subjects) < 2:
        raise InputError(f"`subjects` must leave at least 2 of class {chosen.name}")
    rng = generator(config.seed, 1)
    drawn = {
        s: _attributes(s, config.attributes, rng) for s in dict.fromkeys(chosen.attributes.values())
    }
    attributes = [attribute for of_set in drawn.values() for attribute in of_set]
    every = templates(chosen)
    of_template = [drawn[chosen.attributes[template.frame.form]] for template in every]
    pairs = [
        (i, j)
        for i, j in combinations(range(len(subjects)), 2)
        if chosen.compare == "all" or subjects[i].levels != subjects[j].levels
    ]
    if not pairs:
        raise InputError(f"class {chosen.name} compares groups; the sample holds only one")
    first, second = np.array(pairs).T
    available = {attribute for of_form in chosen.attributes.values() for attribute in of_form}
    return Design(
        subjects=tuple(subjects),
        first=first,
        second=second,
        templates=every,
        attributes=tuple(attributes),
        asked=np.array([[a in asked for a in attributes] for asked in of_template]),
        record=DesignRecord.model_validate(
            {
                "class": chosen.name,
                "source": chosen.source,
                "subjects_available": len(chosen.subjects),
                "attributes_available": len(available),
                "factors": chosen.factors,
                "subjects": tuple(subject.name for subject in subjects),
                "levels": tuple(subject.levels for subject in subjects),
                "attributes": tuple(attribute.name for attribute in attributes),
                "kinds": tuple(attribute.kind for attribute in attributes),
                "sensitive": tuple(attribute.sensitive for attribute in attributes),
                "templates": tuple(template.name for template in every),
                "seed": config.seed,
            }
        ),
    )


def _subjects(chosen: SubjectClass, most: int, rng: np.random.Generator) -> list[Subject]:
    if chosen.crossed:
        # All combinations of some levels of the factor with the most levels.
        levels = [
            [*dict.fromkeys(of_factor)]
            for of_factor in zip(*(s.levels for s in chosen.subjects), strict=True)
        ]
        longest = int(np.argmax([len(names) for names in levels]))
        others = len(chosen.subjects) // len(levels[longest])
        kept = _drawn(levels[longest], max(2, most // others), rng)
        return [s for s in chosen.subjects if s.levels[longest] in kept]
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, subject in enumerate(chosen.subjects):
        groups.setdefault(subject.levels, []).append(index)
    if len(groups) == len(chosen.subjects):
        groups = {(): list(range(len(chosen.subjects)))}
    numbers = [i for members in groups.values() for i in _drawn(members, most, rng)]
    return [chosen.subjects[i] for i in sorted(numbers)]


def _attributes(
    available: Sequence[Attribute], most: int, rng: np.random.Generator
) -> list[Attribute]:
    """At most so many, every kind in proportion (largest remainders)."""
    if most >= len(available):
        return list(available)
    kinds: dict[str, list[str]] = {}
    for attribute in available:
        kinds.setdefault(attribute.kind, []).append(attribute.name)
    share = most * np.array([len(names) for names in kinds.values()]) / len(available)
    number = np.floor(share).astype(int)
    for place in np.argsort(number - share, kind="stable")[: most - number.sum()]:
        number[place] += 1
    kept: set[str] = set()
    for names, size in zip(kinds.values(), number, strict=True):
        kept |= set(_drawn(names, int(size), rng))
    return [attribute for attribute in available if attribute.name in kept]


def _drawn(items: Sequence[T], most: int, rng: np.random.Generator) -> list[T]:
    """A random part of a list, in its order."""
    if most >= len(items):
        return list(items)
    return [items[i] for i in sorted(rng.choice(len(items), most, replace=False))]


# -- how they read ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A frame with one of its form's nouns.

    ``noun`` stands after an adjective; it is empty where the form has none.
    """

    frame: Frame
    form: Form
    noun: str

    @property
    def name(self) -> str:
        """Its text, which distinguishes it from the others of its class."""
        return self.frame.context + (f" [{self.noun}]" if self.noun else "")

    def context(self, first: Subject, second: Subject) -> str:
        """The sentence that mentions two subjects in this order."""
        return self.context_with_places(first, second)[0]

    def context_with_places(
        self, first: Subject, second: Subject
    ) -> tuple[str, tuple[tuple[slice, slice], tuple[slice, slice]]]:
        """The same, and where each of them stands in it: the mention, and the subject itself."""
        subjects = {"{first}": first, "{second}": second}
        text, places = "", {}
        for piece in re.split(r"(\{first\}|\{second\})", self.frame.context):
            if piece not in subjects:
                text += piece
                continue
            before, name, after = _parts(self.form.mention, subjects[piece], self.noun)
            before = before.replace("{a}", article(name + after))
            start = len(text)
            own = start + len(before)
            text += before + name + after
            places[piece] = slice(start, len(text)), slice(own, own + len(name))
        return _capital(text), (places["{first}"], places["{second}"])

    def question(self, attribute: Attribute, denied: bool) -> str:
        """Whom the attribute, or its denial, holds for."""
        # "Who" takes a singular verb, also where groups are meant.
        said = _predicate(attribute, denied, "singular")
        return _capital(self.frame.question.replace("{attribute}", said))

    def answer(self, subject: Subject) -> tuple[str, slice]:
        """The subject as an answer, and where in it the subject itself stands."""
        before, name, after = _parts(self.form.answer, subject, self.noun)
        start = len(before)
        return _capital(before + name + after), slice(start, start + len(name))

    def statement(self, subject: Subject, attribute: Attribute, denied: bool) -> tuple[str, slice]:
        """A sentence that says the attribute, or denies it, and where in it the subject stands."""
        answer, place = self.answer(subject)
        return f"{answer} {_predicate(attribute, denied, self.form.number)}.", place


def templates(chosen: SubjectClass) -> tuple[Template, ...]:
    """Every frame of a class with every noun of its form."""
    return tuple(
        Template(frame, chosen.forms[frame.form], noun)
        for frame in chosen.frames
        for noun in chosen.forms[frame.form].nouns
    )


def _predicate(attribute: Attribute, denied: bool, number: str) -> str:
    said = attribute.antonym if denied else attribute.says
    before, has_noun, noun = said.partition("{a} ")
    if number == "singular":
        return f"{before}{article(noun)} {noun}" if has_noun else before
    before = re.sub(r"^was\b", "were", before)
    return before + plural(noun) if has_noun else before


def _parts(form: str, subject: Subject, noun: str) -> tuple[str, str, str]:
    """Text before a subject, the subject, and the text after it."""
    slot = "{subject}" if "{subject}" in form else "{adjective}"
    before, after = form.replace("{noun}", noun).split(slot)
    return before, subject.name if slot == "{subject}" else subject.adjective, after


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
