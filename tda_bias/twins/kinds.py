"""Kinds of targets: what may stand in a target's place, in which forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tda_bias.runs.files import read_text
from tda_bias.runs.settings import parse_yaml, validated
from tda_bias.types import InputError

Form = Literal["place", "faith", "adjective", "noun", "nouns"]


@dataclass(frozen=True)
class Target:
    """A target with its forms.

    Attributes:
        name: As triples call it.
        kind: The kind it belongs to.
        written: From a form to how a twin spells it; a form that English lacks is not there.
        read: From a spelling in lower case to the forms it may be.
        masculine: Whether it cannot be a woman.
        elsewhere: Phrases in which its words mean something else.
    """

    name: str
    kind: str
    written: Mapping[Form, str]
    read: Mapping[str, frozenset[Form]]
    masculine: bool = False
    elsewhere: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Any of its spellings as a whole word."""
        return _whole_words(self.read)

    def means_something_else_in(self, text: str) -> bool:
        """Tell whether a text has one of the phrases in which it does."""
        return bool(self.elsewhere) and _whole_words(self.elsewhere).search(text) is not None


@cache
def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    alternatives = "|".join(
        r"\s+".join(map(re.escape, phrase.split()))
        for phrase in sorted(phrases, key=len, reverse=True)
    )
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


def _whole_words(phrases: Mapping[str, object] | tuple[str, ...]) -> re.Pattern[str]:
    return _pattern(tuple(phrases))


class Kinds:
    """Targets by kind.

    Args:
        targets: All of them; no name stands twice.
    """

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self._by_name = {target.name.casefold(): target for target in targets}
        self._by_kind: dict[str, list[Target]] = {}
        for target in targets:
            self._by_kind.setdefault(target.kind, []).append(target)

    def target(self, name: str) -> Target | None:
        """A target by name, in whatever case; None if it is not known."""
        return self._by_name.get(name.casefold())

    def of_kind(self, kind: str) -> list[Target]:
        """All targets of a kind, in the order of the file."""
        return self._by_kind[kind]


class _Kind(BaseModel):
    model_config = ConfigDict(extra="forbid")
    forms: tuple[Form, ...] = Field(min_length=1)
    targets: dict[str, tuple[str | None, ...]] = Field(min_length=1)
    masculine: tuple[str, ...] = ()
    elsewhere: dict[str, tuple[str, ...]] = {}


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kinds: dict[str, _Kind] = Field(min_length=1)


@cache
def shipped_kinds() -> Kinds:
    """The kinds that ship with the package: all targets of StereoSet and of the starter triples."""
    text = files("tda_bias.data").joinpath("twins_targets.yaml").read_text(encoding="utf-8")
    return _parsed(text, "twins_targets.yaml")


def load_kinds(path: Path) -> Kinds:
    """Kinds from a file of the form of ``twins_targets.yaml``.

    Raises:
        InputError: if it cannot be read, names a target twice or of a kind that lacks it, or gives
            a target more or fewer forms than its kind has.
    """
    return _parsed(read_text(path, setting="kinds", named=("a YAML file",)), str(path))


def _parsed(text: str, where: str) -> Kinds:
    content = parse_yaml(text, f"`kinds` {where}")
    if not isinstance(content, dict):
        raise InputError(f"`kinds` {where} must hold `kinds:` with one entry for each kind")
    try:
        file = validated(_File, content, given_as="file")
    except InputError as error:
        raise InputError(f"`kinds` {where}: {error}") from None
    targets: dict[str, Target] = {}
    for kind_name, kind in file.kinds.items():
        for name in {*kind.masculine, *kind.elsewhere} - set(kind.targets):
            raise InputError(f"`kinds` {where}: {kind_name} has no target {name!r}")
        for name, forms in kind.targets.items():
            if len(forms) != len(kind.forms) or not any(forms):
                raise InputError(
                    f"`kinds` {where}: {name} needs {len(kind.forms)} forms "
                    f"({', '.join(kind.forms)}; ~ for none); got {len(forms)}"
                )
            if name.casefold() in targets:
                raise InputError(f"`kinds` {where}: the target {name} stands twice")
            targets[name.casefold()] = _target(name, kind_name, kind, forms)
    return Kinds(tuple(targets.values()))


def _target(name: str, kind_name: str, kind: _Kind, forms: tuple[str | None, ...]) -> Target:
    written: dict[Form, str] = {}
    read: dict[str, set[Form]] = {}
    for form, spellings in zip(kind.forms, forms, strict=True):
        if spellings is None:
            continue
        first, *others = (spelling.strip() for spelling in spellings.split("|"))
        written[form] = first
        for spelling in (first, *others):
            read.setdefault(spelling.lower(), set()).add(form)
    return Target(
        name=name,
        kind=kind_name,
        written=written,
        read={spelling: frozenset(forms) for spelling, forms in read.items()},
        masculine=name in kind.masculine,
        elsewhere=kind.elsewhere.get(name, ()),
    )
