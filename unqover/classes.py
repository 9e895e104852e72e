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

from tda_bias.store.files import read_text
from tda_bias.store.settings import parse_yaml, validated
from tda_bias.types import InputError

NAMED = (
    "gender", "nationality", "ethnicity", "religion", "education", "age", "gender_race",
    "gender_race_names",
)  # fmt: skip
_SUBJECT_SLOTS = ("{subject}", "{adjective}")


@dataclass(frozen=True)
class Subject:
    """Whom a question may be about.

    ``adjective`` is that of a country's people, or the name again; ``levels`` has its level of
    each factor of the class.
    """

    name: str
    adjective: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    """Attribute of a question.

    Attributes:
        kind: What it is sampled and summarised by.
        says: Predicate in the past tense; ``{a} noun`` where it is a noun with its article.
        antonym: Its opposite, which denies it.
        sensitive: Says something bad of a person: kept out of summaries.
    """

    name: str
    kind: str
    says: str
    antonym: str
    sensitive: bool


@dataclass(frozen=True)
class SubjectClass:
    """A class of subjects with its frames.

    Attributes:
        factors: What subjects differ in; several make a joint class.
        compare: ``across`` groups only, or ``all`` pairs.
        attributes: Attributes by form.
        crossed: Every combination of levels is one subject.
    """

    name: str
    source: str
    factors: tuple[str, ...]
    compare: Literal["across", "all"]
    subjects: tuple[Subject, ...]
    forms: Mapping[str, Form]
    frames: tuple[Frame, ...]
    attributes: Mapping[str, tuple[Attribute, ...]]
    crossed: bool


# -- files -----------------------------------------------------------------------------------------


class _FilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Form(_FilePart):
    """The way a subject is written in a frame, and in an answer."""

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


class Frame(_FilePart):
    """A sentence about two subjects, and its question."""

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


class _Predicate(_FilePart):
    kind: str = "attribute"
    says: str = Field(min_length=1)
    antonym: str = Field(min_length=1)


class _AttributeSet(_FilePart):
    sensitive: bool = False
    nouns: tuple[str, ...] = ()
    predicates: tuple[_Predicate, ...] = ()

    @model_validator(mode="after")
    def _not_empty(self) -> _AttributeSet:
        if bool(self.nouns) == bool(self.predicates):
            raise ValueError("must have either `nouns` or `predicates`, and at least one of them")
        return self

    def attributes(self) -> tuple[Attribute, ...]:
        listed = [
            *((n, "occupation", f"was {{a}} {n}", f"could never be {{a}} {n}") for n in self.nouns),
            *((p.says, p.kind, p.says, p.antonym) for p in self.predicates),
        ]
        _refuse_repeated([name for name, *_ in listed], "attributes")
        return tuple(Attribute(*parts, self.sensitive) for parts in listed)


class _Group(_FilePart):
    levels: tuple[str, ...]
    members: tuple[str, ...] = Field(min_length=1)


class _ClassFile(_FilePart):
    """A class file as it is written."""

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
        attribute_set: Another set of attributes than the class's own: ``occupations``,
            ``professions``, ``conduct`` or ``places``.

    Raises:
        InputError: if there is no such class or file, a key or value in it is wrong, a template
            lacks a slot, or a list is empty or holds something twice.
    """
    if source in NAMED:
        text = _packaged(f"{source}.yaml")
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


def _packaged(file: str) -> str:
    return files("unqover").joinpath("data", file).read_text(encoding="utf-8")


def _class(name: str, given: _ClassFile, attribute_set: str | None) -> SubjectClass:
    subjects = tuple(_subjects(given))
    factors = given.factors or tuple(given.cross or ())
    if len(subjects) < 2:
        raise InputError(f"`subjects` must name at least 2; got {len(subjects)}")
    _refuse_repeated([subject.name for subject in subjects], "subjects")
    if any(len(subject.levels) != len(factors) for subject in subjects):
        raise InputError("every entry of `subjects` needs one level for each of `factors`")
    if given.compare == "across" and len({subject.levels for subject in subjects}) < 2:
        raise InputError("`compare` across needs at least 2 groups of subjects")
    forms = {form: given.forms[form] for form in sorted({frame.form for frame in given.frames})}
    return SubjectClass(
        name=Path(name).stem,
        source=given.source,
        factors=factors,
        compare=given.compare,
        subjects=subjects,
        forms=forms,
        frames=given.frames,
        attributes={
            form: attributes_of(attribute_set or about.attributes or given.attributes)
            for form, about in forms.items()
        },
        crossed=given.cross is not None,
    )


def _subjects(given: _ClassFile) -> list[Subject]:
    if given.cross is not None:
        for factor, levels in given.cross.items():
            if len(levels) < 2:
                raise InputError(f"`cross` needs at least 2 levels of {factor}")
        combined = product(*given.cross.values())
        return [Subject(" ".join(levels), " ".join(levels), levels) for levels in combined]
    subjects: list[Subject] = []
    if isinstance(given.subjects, dict):
        for key, value in given.subjects.items():
            if isinstance(value, str):  # a country and its adjective
                subjects.append(Subject(key, value, (key,)))
            elif not value:
                raise InputError(f"`subjects`: the list of {key} is empty")
            else:
                subjects += [Subject(name, name, (key,)) for name in value]
        return subjects
    for item in given.subjects or ():
        if isinstance(item, str):
            subjects.append(Subject(item, item, (item,)))
        else:
            group = validated(_Group, item, given_as="file")
            subjects += [Subject(name, name, group.levels) for name in group.members]
    return subjects


def attributes_of(given: str | dict[str, Any]) -> tuple[Attribute, ...]:
    """The attributes of a set of the package, by its name, or of a class file's own.

    Raises:
        InputError: if there is no such set, or one of a file is malformed.
    """
    if isinstance(given, str):
        sets = _packaged_sets()
        if given not in sets:
            raise InputError(f"`attributes` must be one of {', '.join(sets)}; got {given!r}")
        return attributes_of(sets[given])
    return validated(_AttributeSet, given, given_as="file").attributes()


@cache
def _packaged_sets() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(_packaged("attributes.yaml"))
    return content


def _refuse_repeated(names: list[str], what: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"`{what}` holds {repeated[0]!r} twice; a pair would compare it to itself")
