"""Subjects, attributes and frames of questions, from the class files of the package or a user.

A class is one YAML file. Its frames are sentences about two subjects that do not say which of them
an attribute holds for; its forms say how a subject is written in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tda_bias.runs.files import read_text
from tda_bias.runs.settings import parse_yaml, validated
from tda_bias.types import InputError

NAMED = (
    "gender", "nationality", "ethnicity", "religion", "education", "age", "gender_race",
    "gender_race_names",
)  # fmt: skip
ATTRIBUTE_SETS = ("occupations", "professions", "conduct", "places")
_SUBJECT_SLOTS = ("{subject}", "{adjective}")


@dataclass(frozen=True)
class Subject:
    """Whom a question may be about.

    Attributes:
        name: Unique in its class.
        adjective: Of a country's people; the name where there is none.
        levels: Its level of each factor of the class.
    """

    name: str
    adjective: str
    levels: tuple[str, ...]

    @property
    def group(self) -> str:
        """Its levels in one string."""
        return " ".join(self.levels)


@dataclass(frozen=True)
class Attribute:
    """Attribute of a question.

    Attributes:
        name: Unique in its set.
        kind: What it is sampled and summarised by.
        says: Predicate in the past tense; ``{a} noun`` where it is a noun with its article.
        negated: The same with "not".
        antonym: Its opposite.
        sensitive: Says something bad of a person: kept out of summaries.
    """

    name: str
    kind: str
    says: str
    negated: str
    antonym: str
    sensitive: bool


class Form(BaseModel):
    """How a subject is written in a frame, and in an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mention: str
    answer: str
    nouns: tuple[str, ...] = Field(("",), min_length=1)
    number: Literal["singular", "plural"] = "singular"
    attributes: str | None = None

    @field_validator("mention", "answer")
    @classmethod
    def _names_the_subject(cls, value: str) -> str:
        if sum(value.count(slot) for slot in _SUBJECT_SLOTS) != 1:
            raise ValueError(f"must have {' or '.join(_SUBJECT_SLOTS)} once; got {value!r}")
        return value

    @model_validator(mode="after")
    def _noun_for_its_slot(self) -> Form:
        if ("{noun}" in self.mention + self.answer) != (self.nouns != ("",)):
            raise ValueError("a form with {noun} needs `nouns`, and only such a form")
        return self


class Frame(BaseModel):
    """A sentence about two subjects, and the question behind it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: str
    context: str
    question: str = "Who {attribute}?"

    @model_validator(mode="after")
    def _has_its_slots(self) -> Frame:
        wanted = [(self.context, "{first}"), (self.context, "{second}")]
        for text, slot in [*wanted, (self.question, "{attribute}")]:
            if text.count(slot) != 1:
                fault = "lacks" if slot not in text else "has more than one"
                raise ValueError(f"the template {fault} {slot}: {text!r}")
        return self


@dataclass(frozen=True)
class SubjectClass:
    """A class of subjects with its frames.

    Attributes:
        name: Of the class, or the file's.
        about: What it compares.
        source: Where the lists come from.
        factors: What subjects differ in; several make a joint class.
        compare: ``across`` groups only, or ``all`` pairs.
        subjects: The subjects.
        forms: How they are written.
        frames: The sentences.
        attributes: Attributes by form.
        crossed: Whether every combination of levels is one subject.
    """

    name: str
    about: str
    source: str
    factors: tuple[str, ...]
    compare: Literal["across", "all"]
    subjects: tuple[Subject, ...]
    forms: Mapping[str, Form]
    frames: tuple[Frame, ...]
    attributes: Mapping[str, tuple[Attribute, ...]]
    crossed: bool


class _Predicate(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = "attribute"
    says: str = Field(min_length=1)
    negated: str = Field(alias="not", min_length=1)
    antonym: str = Field(min_length=1)


class _AttributeSet(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = "given in the class file"
    sensitive: bool = False
    nouns: tuple[str, ...] = ()
    predicates: tuple[_Predicate, ...] = ()

    @model_validator(mode="after")
    def _not_empty(self) -> _AttributeSet:
        if bool(self.nouns) == bool(self.predicates):
            raise ValueError("must have either `nouns` or `predicates`, and at least one of them")
        return self

    def attributes(self) -> tuple[Attribute, ...]:
        named = [
            _Predicate.model_validate(
                {
                    "kind": "occupation",
                    "says": f"was {{a}} {noun}",
                    "not": f"was not {{a}} {noun}",
                    "antonym": f"could never be {{a}} {noun}",
                }
            )
            for noun in self.nouns
        ]
        names = [*self.nouns, *(predicate.says for predicate in self.predicates)]
        _refuse_repeated(names, "attributes")
        return tuple(
            Attribute(
                name,
                predicate.kind,
                predicate.says,
                predicate.negated,
                predicate.antonym,
                self.sensitive,
            )
            for name, predicate in zip(names, [*named, *self.predicates], strict=True)
        )


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[str, ...]
    members: tuple[str, ...] = Field(min_length=1)


class _ClassFile(BaseModel):
    """A class file as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str = ""
    source: str = "given by the user"
    factors: tuple[str, ...] = ()
    compare: Literal["across", "all"]
    subjects: list[str] | dict[str, str] | dict[str, list[str]] | list[dict[str, Any]] | None = None
    cross: dict[str, list[str]] | None = None
    forms: dict[str, Form] = Field(min_length=1)
    frames: tuple[Frame, ...] = Field(min_length=1)
    attributes: str | dict[str, Any]

    @model_validator(mode="after")
    def _consistent(self) -> _ClassFile:
        if (self.subjects is None) == (self.cross is None):
            raise ValueError("must have either `subjects` or `cross`")
        if self.cross is not None and self.factors:
            raise ValueError("`factors` are the keys of `cross`; leave them out")
        if self.cross is None and not self.factors:
            raise ValueError("`factors` is missing: name what the subjects differ in")
        unknown = sorted({frame.form for frame in self.frames} - set(self.forms))
        if unknown:
            raise ValueError(f"a frame has the form {unknown[0]!r}; `forms` has no such entry")
        return self


def load_class(source: str | Path, *, attribute_set: str | None = None) -> SubjectClass:
    """A class of subjects.

    Args:
        source: A name of ``NAMED``, or a YAML file (docs/method/unqover.md describes it).
        attribute_set: Attributes of another set of ``ATTRIBUTE_SETS`` than the class's own.

    Raises:
        InputError: if there is no such class or file, a key or value in it is wrong, a template
            lacks a slot, or a list is empty or holds something twice.
    """
    if source in NAMED:
        text = files("unqover.data").joinpath(f"{source}.yaml").read_text(encoding="utf-8")
    else:
        text = read_text(source, setting="class", named=NAMED)
    where = f"`class` {source}"
    content = parse_yaml(text, where)
    if not isinstance(content, dict):
        raise InputError(f"{where} must hold `key: value` lines")
    try:
        file = validated(_ClassFile, content, given_as="file")
        return _class(str(source), file, attribute_set)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _class(name: str, given: _ClassFile, attribute_set: str | None) -> SubjectClass:
    subjects = _subjects(given)
    if len(subjects) < 2:
        raise InputError(f"`subjects` must name at least 2; got {len(subjects)}")
    _refuse_repeated([subject.name for subject in subjects], "subjects")
    if any(len(subject.levels) != len(given.factors or given.cross or ()) for subject in subjects):
        raise InputError("every entry of `subjects` needs one level for each of `factors`")
    if given.compare == "across" and len({subject.group for subject in subjects}) < 2:
        raise InputError("`compare` across needs at least 2 groups of subjects")
    used = {frame.form for frame in given.frames}
    attributes: dict[str, tuple[Attribute, ...]] = {}
    for form in sorted(used):
        wanted = attribute_set or given.forms[form].attributes or given.attributes
        attributes[form] = (
            attributes_of(wanted)
            if isinstance(wanted, str)
            else validated(_AttributeSet, wanted, given_as="file").attributes()
        )
    return SubjectClass(
        name=Path(name).stem,
        about=given.about,
        source=given.source,
        factors=given.factors or tuple(given.cross or ()),
        compare=given.compare,
        subjects=subjects,
        forms={form: given.forms[form] for form in sorted(used)},
        frames=given.frames,
        attributes=attributes,
        crossed=given.cross is not None,
    )


def _subjects(given: _ClassFile) -> tuple[Subject, ...]:
    if given.cross is not None:
        for factor, levels in given.cross.items():
            if len(levels) < 2:
                raise InputError(f"`cross` needs at least 2 levels of {factor}")
        combined = product(*given.cross.values())
        return tuple(Subject(" ".join(levels), " ".join(levels), levels) for levels in combined)
    if isinstance(given.subjects, dict):
        return _named_or_grouped(given.subjects)
    subjects: list[Subject] = []
    for item in given.subjects or ():
        if isinstance(item, str):
            subjects.append(Subject(item, item, (item,)))
        else:
            group = validated(_Group, item, given_as="file")
            subjects += [Subject(name, name, group.levels) for name in group.members]
    return tuple(subjects)


def _named_or_grouped(entries: Mapping[str, Any]) -> tuple[Subject, ...]:
    """Subjects with their adjectives, or lists of subjects by group."""
    if all(isinstance(value, str) for value in entries.values()):
        return tuple(Subject(name, adjective, (name,)) for name, adjective in entries.items())
    for group, members in entries.items():
        if not members:
            raise InputError(f"`subjects`: the list of {group} is empty")
    return tuple(Subject(n, n, (g,)) for g, members in entries.items() for n in members)


@cache
def attributes_of(name: str) -> tuple[Attribute, ...]:
    """The attributes of a set of the package.

    Raises:
        InputError: if there is no such set.
    """
    text = files("unqover.data").joinpath("attributes.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    if name not in content:
        raise InputError(f"`attributes` must be one of {', '.join(ATTRIBUTE_SETS)}; got {name!r}")
    return validated(_AttributeSet, content[name], given_as="file").attributes()


def _refuse_repeated(names: list[str], what: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"`{what}` holds {repeated[0]!r} twice; a pair would compare it to itself")
