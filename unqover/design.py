"""Which questions are asked: a class, or a sample of it that never looks at scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tda_bias.types import InputError
from unqover.classes import Attribute, Subject, SubjectClass
from unqover.config import DesignConfig
from unqover.wording import Template, templates


@dataclass(frozen=True)
class Design:
    """Subjects, pairs of them, templates and attributes.

    Attributes:
        name: Of the class.
        factors: What subjects differ in.
        subjects: The subjects.
        first: First subject of each pair.
        second: Second subject of each pair; both orders of mention are asked.
        templates: The templates.
        attributes: The attributes, each once.
        asked: Which template asks about which attribute.
        record: Sizes before sampling, and what was drawn.
    """

    name: str
    factors: tuple[str, ...]
    subjects: tuple[Subject, ...]
    first: Int[np.ndarray, " pair"]
    second: Int[np.ndarray, " pair"]
    templates: tuple[Template, ...]
    attributes: tuple[Attribute, ...]
    asked: Bool[np.ndarray, "template attribute"]
    record: dict[str, Any]

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
    rng = np.random.default_rng([config.seed, 0])
    subjects = _subjects(chosen, config.subjects, rng)
    if len(subjects) < 2:
        raise InputError(f"`subjects` must leave at least 2 of class {chosen.name}")
    rng = np.random.default_rng([config.seed, 1])
    drawn: dict[tuple[Attribute, ...], list[Attribute]] = {}
    for of_form in chosen.attributes.values():
        if of_form not in drawn:
            drawn[of_form] = _attributes(of_form, config.attributes, rng)
    attributes = [attribute for of_form in drawn.values() for attribute in of_form]
    every = templates(chosen.frames, dict(chosen.forms))
    by_form = {id(form): drawn[chosen.attributes[name]] for name, form in chosen.forms.items()}
    asked = np.array([[a in by_form[id(t.form)] for a in attributes] for t in every])
    pairs = [
        (i, j)
        for i, j in combinations(range(len(subjects)), 2)
        if chosen.compare == "all" or subjects[i].group != subjects[j].group
    ]
    if not pairs:
        raise InputError(f"class {chosen.name} compares groups; the sample holds only one")
    first, second = np.array(pairs).T
    available = {attribute for of_form in chosen.attributes.values() for attribute in of_form}
    return Design(
        name=chosen.name,
        factors=chosen.factors,
        subjects=tuple(subjects),
        first=first,
        second=second,
        templates=every,
        attributes=tuple(attributes),
        asked=asked,
        record={
            "class": chosen.name,
            "about": chosen.about,
            "source": chosen.source,
            "compare": chosen.compare,
            "subjects_available": len(chosen.subjects),
            "attributes_available": len(available),
            "subjects": [subject.name for subject in subjects],
            "attributes": [attribute.name for attribute in attributes],
            "templates": [template.name for template in every],
            "seed": config.seed,
        },
    )


def _subjects(chosen: SubjectClass, most: int, rng: np.random.Generator) -> list[Subject]:
    subjects = chosen.subjects
    if chosen.crossed:
        return _whole_levels(chosen, most, rng)
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, subject in enumerate(subjects):
        groups.setdefault(subject.levels, []).append(index)
    if len(groups) == len(subjects):
        groups = {(): list(range(len(subjects)))}
    kept = [i for members in groups.values() for i in _drawn(members, most, rng)]
    return [subjects[i] for i in sorted(kept)]


def _whole_levels(chosen: SubjectClass, most: int, rng: np.random.Generator) -> list[Subject]:
    """All combinations of some levels of the factor with the most levels."""
    levels = [
        list(dict.fromkeys(s.levels[f] for s in chosen.subjects))
        for f in range(len(chosen.factors))
    ]
    longest = int(np.argmax([len(names) for names in levels]))
    others = len(chosen.subjects) // len(levels[longest])
    kept = _drawn(levels[longest], max(2, most // others), rng)
    return [s for s in chosen.subjects if s.levels[longest] in kept]


def _attributes(
    available: Sequence[Attribute], most: int, rng: np.random.Generator
) -> list[Attribute]:
    """At most so many, every kind in proportion (largest remainders)."""
    if most >= len(available):
        return list(available)
    kinds = list(dict.fromkeys(attribute.kind for attribute in available))
    sizes = np.array([sum(attribute.kind == kind for attribute in available) for kind in kinds])
    share = most * sizes / sizes.sum()
    number = np.floor(share).astype(int)
    for place in np.argsort(number - share, kind="stable")[: most - number.sum()]:
        number[place] += 1
    kept: set[str] = set()
    for kind, size in zip(kinds, number, strict=True):
        kept |= set(
            _drawn(
                [attribute.name for attribute in available if attribute.kind == kind],
                int(size),
                rng,
            )
        )
    return [attribute for attribute in available if attribute.name in kept]


def _drawn(items: Sequence[Any], most: int, rng: np.random.Generator) -> list[Any]:
    """A random part of a list, in its order."""
    if most >= len(items):
        return list(items)
    return [items[i] for i in sorted(rng.choice(len(items), most, replace=False))]
