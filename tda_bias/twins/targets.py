"""Targets by kind, with their forms; and another target of the same kind in a triple."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import regex
from pydantic import BaseModel, ConfigDict, Field

from tda_bias.script import whole_word
from tda_bias.store.files import read_text
from tda_bias.store.settings import parse_yaml, validated
from tda_bias.twins.twins import content, text_fields, with_texts
from tda_bias.twins.words import gender_words, in_case_of, replaced, word_set
from tda_bias.types import InputError, Triple

# Of ``regex``, which has no types.
Pattern = Any
Form = Literal["place", "faith", "adjective", "noun", "nouns"]


@dataclass(frozen=True)
class Target:
    """A target of a kind, with its forms.

    Attributes:
        name: As triples call it.
        kind: Of which another target can take its place.
        written: From a form to how a twin spells it; a form that English lacks is not there.
        read: From a spelling in lower case to the forms it may be.
        masculine: Whether it cannot be a woman.
        elsewhere: Phrases in which its words mean something else.
        spellings: Its spellings, with the capitals that they have within a sentence.
    """

    name: str
    kind: str
    written: Mapping[Form, str]
    read: Mapping[str, frozenset[Form]]
    masculine: bool = False
    elsewhere: tuple[str, ...] = ()
    spellings: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> Pattern:
        """Any of its spellings as a whole word."""
        return _whole_words(self.read)

    def means_something_else_in(self, text: str) -> bool:
        """Tell whether a text has one of the phrases in which it does."""
        return bool(self.elsewhere) and _whole_words(self.elsewhere).search(text) is not None


def _whole_words(phrases: Iterable[str]) -> Pattern:
    alternatives = "|".join(
        r"\s+".join(map(regex.escape, phrase.split()))
        for phrase in sorted(phrases, key=len, reverse=True)
    )
    return regex.compile(whole_word(alternatives), regex.IGNORECASE)


# Targets by their names, casefolded.
Kinds = Mapping[str, Target]


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
    return targets


def _target(name: str, kind_name: str, kind: _Kind, forms: tuple[str | None, ...]) -> Target:
    written: dict[Form, str] = {}
    read: dict[str, set[Form]] = {}
    spelled: list[str] = []
    for form, spellings in zip(kind.forms, forms, strict=True):
        if spellings is None:
            continue
        first, *others = (spelling.strip() for spelling in spellings.split("|"))
        written[form] = first
        spelled += [first, *others]
        for spelling in (first, *others):
            read.setdefault(spelling.lower(), set()).add(form)
    return Target(
        name=name,
        kind=kind_name,
        written=written,
        read={spelling: frozenset(forms) for spelling, forms in read.items()},
        masculine=name in kind.masculine,
        elsewhere=kind.elsewhere.get(name, ()),
        spellings=tuple(spelled),
    )


# -- in a text -------------------------------------------------------------------------------------

# What a noun does not stand before: "the Japanese have", "the Japanese garden" has it otherwise.
_NOT_A_NOUN = word_set(
    "a an the this that these those and or but nor so if because although though while when where "
    "until since than as about above across after against along among around at before behind "
    "below beside between beyond by despite down during except for from in inside into like near "
    "of off on onto out outside over past through to toward towards under up upon with within "
    "without who whom whose which what why how is was are were be been being am has had have "
    "having do does did can could will would shall should may might must not never always often "
    "sometimes also too i you he she it we they there here now then today yesterday tomorrow "
    "come comes came go goes went get gets got make makes made take takes took give gives gave "
    "say says said see sees saw know knows knew think thinks thought love loves like likes live "
    "lives eat eats ate speak speaks spoke enjoy enjoys sit sits sat stand stands stood set sets "
    "tend tends seem seems look looks work works bring brings brought sent smelled"
)


Place = tuple[int, int, Form]


def places(text: str, target: Target) -> list[Place]:
    """Start, end and form of every place of a target in a text, in any of its forms."""
    return [(*match.span(), _form(text, match, target)) for match in target.pattern.finditer(text)]


def _form(text: str, match: Any, target: Target) -> Form:
    """The form, from the words around it where the spelling leaves it open."""
    possible = target.read[" ".join(match.group().lower().split())]
    if len(possible) == 1:
        return next(iter(possible))
    nouns: list[Form] = [form for form in ("noun", "nouns") if form in possible]
    if "adjective" in possible and (not nouns or not _is_noun(text, match)):
        return "adjective"
    return nouns[0]


def _is_noun(text: str, match: Any) -> bool:
    """Tell whether an article or a number word stands before, and no noun after."""
    behind = re.match(r"\s+(\w+)", text[match.end() :])
    if behind is not None:
        word = behind.group(1).lower()
        if word not in _NOT_A_NOUN and not word.endswith("ed"):
            return False
    before = text[: match.start()]
    if not before.strip():
        return behind is not None
    return (
        re.search(
            r"\b(?:an?|the|this|that|these|those|another|every|each|some|any|all|many|most|few|several|"
            r"other|one|two|three|\d+)\s+$",
            before,
            re.IGNORECASE,
        )
        is not None
    )


# -- one triple ------------------------------------------------------------------------------------


def with_target(triple: Triple, own: Target, other: Target) -> Triple:
    """The triple about another target: in all four texts, with articles and apostrophes to fit."""
    texts = []
    for text in text_fields(triple):
        changes = []
        for start, end, form in places(text, own):
            changes.append((start, end, _in_place_of(text, start, end, own, other.written[form])))
        texts.append(replaced(text, changes))
    return with_texts(triple, other.name, texts)


# Behind it a sentence begins.
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?])[\s\"'\u201c\u2018(]*$")


def _in_place_of(text: str, start: int, end: int, own: Target, new: str) -> str:
    """A word for a target's place in a text, in capitals where the text has them, not the target.

    The capitals of a target's own ("CEO", "Arab") say nothing of another word in its place.
    """
    old, rest = text[start:end], text[:start] + text[end:]
    if rest.isupper() and old.isupper():
        return new.upper()
    if old in own.spellings or old in own.written.values():
        begins = _SENTENCE_BEGINS.search(text[:start]) and not old.islower()
        return new[:1].upper() + new[1:] if begins else new
    # Names lose their capitals too where the original has none: "the arab man".
    return new.lower() if old.islower() else in_case_of(new, old)


def fitting(triple: Triple, own: Target, others: Iterable[Target]) -> list[Target]:
    """Those of some targets that can take the place of a triple's own.

    One must have each form that is needed, must not stand in the texts already ("Lebanon borders
    Syria"), and if it is a man's, no word of the texts may be a woman's.
    """
    texts = text_fields(triple)
    forms = {form for text in texts for _, _, form in places(text, own)}
    whole = "\n".join(texts)
    of_a_woman = _feminine().search(whole) is not None
    return [
        other
        for other in others
        if other.name != own.name
        and forms <= set(other.written)
        and not (other.masculine and of_a_woman)
        and other.pattern.search(whole) is None
    ]


@cache
def _feminine() -> Pattern:
    return _whole_words({*gender_words().feminine, "her", "hers"})


# -- which others ----------------------------------------------------------------------------------


def pool(kinds: Kinds, kind: str, present: set[str], k: int) -> list[Target]:
    """The targets that may be drawn for a kind: those of the data, or all where these are too few.

    Raises:
        InputError: if even these are.
    """
    everything = [target for target in kinds.values() if target.kind == kind]
    if len(everything) == 1:
        raise InputError(
            f"the kind {kind!r} has a single target, {everything[0].name}; a twin needs another "
            "one to put in its place"
        )
    if k >= len(everything):
        raise InputError(
            f"`k` must be at most {len(everything) - 1}, the other targets of the kind {kind!r}; "
            f"got {k}"
        )
    of_the_data = [target for target in everything if target.name in present]
    return of_the_data if len(of_the_data) > k else everything


def drawn(
    items: Sequence[tuple[Triple, Target]],
    others: Sequence[Target],
    *,
    k: int,
    rng: np.random.Generator,
) -> list[tuple[Target, ...]]:
    """K other targets for each item (fewer where fewer fit), so that all serve about equally often.

    Items come in a random order that does not depend on the order given; each takes, among those
    that fit, the targets that have served least, ties at random.
    """
    order = sorted(range(len(items)), key=lambda i: content(items[i][0]))
    served = {target.name: 0 for target in others}
    chosen: list[tuple[Target, ...]] = [()] * len(items)
    for position in rng.permutation(len(items)):
        index = order[position]
        triple, own = items[index]
        fit = fitting(triple, own, others)
        shuffled = [fit[i] for i in rng.permutation(len(fit))]
        picked = sorted(shuffled, key=lambda target: served[target.name])[:k]
        for target in picked:
            served[target.name] += 1
        # In an order of their own: the first is as good a draw as any.
        chosen[index] = tuple(picked[i] for i in rng.permutation(len(picked)))
    return chosen
