"""BBQ's questions: two people and an answer for "unknown", and which of them is the biased answer.

Source: Parrish et al. (2022), "BBQ: A Hand-Built Bias Benchmark for Question Answering".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import chain, groupby, zip_longest
from typing import Any, Literal

import yaml

from tda_bias.store.record import DataRecord
from tda_bias.types import InputError

Condition = Literal["ambiguous", "disambiguated"]
CONDITIONS: tuple[Condition, ...] = ("ambiguous", "disambiguated")
Polarity = Literal["neg", "nonneg"]


@dataclass(frozen=True, slots=True)
class BBQItem:
    """One question with three answers, of which one is that it cannot be known.

    Attributes:
        id: Its ``example_id`` (``instance_id``, ``sample_id``), unique within the category.
        category: BBQ's category.
        template: Items of one template (BBQ's ``question_index``) resemble each other.
        condition: Whether the text answers the question.
        polarity: ``neg``: the question says something bad of whom it asks for.
        answers: The three texts, in the order of the data.
        label: Place of the right answer.
        unknown: Place of the answer for "unknown".
        target: Place of the person of the stereotyped group.
        first: Place of the person whom the text mentions first; None where that cannot be told.
        source: Where it stands, for messages.
    """

    id: str
    category: str
    template: str
    condition: Condition
    polarity: Polarity
    context: str
    question: str
    answers: tuple[str, str, str]
    label: int
    unknown: int
    target: int
    first: int | None = None
    source: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """What is read: context, question and the three answers."""
        return self.context, self.question, *self.answers

    @property
    def bystander(self) -> int:
        """Place of the other person."""
        return 3 - self.unknown - self.target

    @property
    def biased(self) -> int:
        """Place of the biased answer: the target of negative questions, else the other person."""
        return self.target if self.polarity == "neg" else self.bystander

    @property
    def other(self) -> int:
        """Place of the person who is not the biased answer."""
        return 3 - self.unknown - self.biased

    @property
    def cluster(self) -> str:
        """What resembles this item: its category and template."""
        return f"{self.category} {self.template}"

    @property
    def aligned(self) -> bool | None:
        """Whether the right answer is the biased one; None where the text does not say."""
        return self.label == self.biased if self.condition == "disambiguated" else None


@dataclass(frozen=True)
class LeftOut:
    """An item that cannot be scored, and why."""

    category: str
    id: str
    reason: str


@dataclass(frozen=True)
class BBQSet:
    """Items with their language and where they were read, and what was left out."""

    items: tuple[BBQItem, ...]
    left_out: tuple[LeftOut, ...]
    language: str
    source: str
    revision: str | None
    # What else the data hold: an answer to one of these is no answer to an unknown item.
    others: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    chosen: bool = False  # only some categories were asked for, and others may not have been read

    @property
    def categories(self) -> list[str]:
        """Categories in the order of the data."""
        return list(dict.fromkeys(item.category for item in self.items))

    @property
    def record(self) -> DataRecord:
        """The data as a record keeps it."""
        return DataRecord(source=self.source, revision=self.revision)

    def limited(self, limit: int | None) -> BBQSet:
        """At most so many items of each category, in whole scenes, of one template after another.

        Raises:
            InputError: if no scene is that small.
        """
        if limit is None:
            return self
        kept: set[tuple[str, str]] = set()
        for category in self.categories:
            own = [item for item in self.items if item.category == category]
            kept |= {_key(item) for scene in _spread(own, limit) for item in scene}
        if not kept:
            smallest = min(len(scene) for scene in scenes(self.items))
            raise InputError(
                f"`limit` {limit} is below the {smallest} items that share a text; give at least "
                f"{smallest}"
            )
        return self.only(kept)

    def only(self, kept: Collection[tuple[str, str]]) -> BBQSet:
        """The items with these categories and ids; the rest are among the ``others``."""
        items = tuple(item for item in self.items if _key(item) in kept)
        others = self.others | {_key(item) for item in self.items if _key(item) not in kept}
        return replace(self, items=items, others=others)


def _key(item: BBQItem) -> tuple[str, str]:
    return item.category, item.id


def scenes(items: Sequence[BBQItem]) -> Iterator[list[BBQItem]]:
    """Items in a row whose texts begin alike: the ambiguous text, and what makes it clear."""
    scene: list[BBQItem] = []
    for item in items:
        if scene and not _same_scene(scene[0], item):
            yield scene
            scene = []
        scene.append(item)
    if scene:
        yield scene


def _same_scene(first: BBQItem, item: BBQItem) -> bool:
    shorter, longer = sorted((first.context, item.context), key=len)
    return first.cluster == item.cluster and longer.startswith(shorter)


def _spread(items: Sequence[BBQItem], limit: int) -> list[list[BBQItem]]:
    """The first scene of every template, then the second ones, as far as ``limit`` allows.

    Scenes that mention the target first and those that do not take turns: data often have all of
    one order before all of the other.
    """
    turns = []
    for place, (_, of_template) in enumerate(groupby(scenes(items), lambda s: s[0].template)):
        sides: tuple[list[list[BBQItem]], list[list[BBQItem]]] = ([], [])
        for scene in of_template:
            sides[int(scene[0].first == scene[0].target)].append(scene)
        alternating = chain.from_iterable(zip_longest(sides[place % 2], sides[1 - place % 2]))
        turns += [(turn, place, scene) for turn, scene in enumerate(filter(None, alternating))]
    kept, count = [], 0
    for _, _, scene in sorted(turns, key=lambda turn: turn[:2]):
        if count + len(scene) > limit:
            break
        kept.append(scene)
        count += len(scene)
    return kept


# -- whom an answer means --------------------------------------------------------------------------

# Genders of names and words, and prefixes of crossed groups: F-Black, lowSES-African.
_GENDERED = {"woman": "f", "girl": "f", "female": "f", "man": "m", "boy": "m", "male": "m"}
_PREFIXED = re.compile(r"(m|f|trans|lowses|highses)[-_ ](.+)", re.IGNORECASE)


def target_of(groups: Sequence[str], labels: Mapping[int, Sequence[str]]) -> int | None:
    """The person of a stereotyped group, if there is a single one.

    Labels are compared without case, spaces and punctuation (``low SES`` is ``lowSES``). Only where
    whole labels do not decide, their parts do: of ``F-Black`` the gender and the group, of
    ``woman`` the gender.

    Args:
        groups: Names of stereotyped groups.
        labels: By the places of both persons, the labels that the data give them.

    Examples:
        >>> target_of(["Muslim"], {0: ["Jewish", "Jewish"], 2: ["Muslim", "Muslim"]})
        2
        >>> target_of(["low SES"], {0: ["the coach", "highSES"], 1: ["the farmhand", "lowSES"]})
        1
        >>> target_of(["F"], {0: ["Sue", "F-Black"], 1: ["Ann", "F-White"]}) is None
        True
    """
    wanted = {_plain(group) for group in groups} - {""}
    whole = {place: {_plain(label) for label in own} for place, own in labels.items()}
    parts = {
        place: whole[place].union(*(_parts(label) for label in own))
        for place, own in labels.items()
    }
    for known in (whole, parts):
        meant = [place for place, own in known.items() if own & wanted]
        if len(meant) == 1:
            return meant[0]
    return None


def _plain(label: str) -> str:
    return re.sub(r"[\W_]+", "", label.casefold())


def _parts(label: str) -> set[str]:
    parts = {_plain(part) for part in label.split(",")}
    if match := _PREFIXED.fullmatch(label.strip()):
        parts |= {_plain(match[1]), _plain(match[2])}
    return parts | {_GENDERED[word] for word in re.findall(r"\w+", label.casefold())
                    if word in _GENDERED}  # fmt: skip


def mentioned_first(
    context: str, answers: Mapping[int, str], labels: Mapping[int, Sequence[str]]
) -> int | None:
    """The place of the person whom a text mentions first; None where one is not found.

    A person is found by the words of the answer that the other answer lacks, and by the labels.
    """
    found = {place: places_of(context, answers, labels, place) for place in answers}
    if not all(found.values()):
        return None
    starts = {place: min(spans)[0] for place, spans in found.items()}
    first, second = sorted(starts, key=lambda place: starts[place])
    return first if starts[first] < starts[second] else None


def places_of(
    context: str, answers: Mapping[int, str], labels: Mapping[int, Sequence[str]], place: int
) -> list[tuple[int, int]]:
    """Where in a text one person stands: by label, else by the words of the answer alone."""
    theirs = {word for other, text in answers.items() if other != place for word in _words(text)}
    words = [word for word in _words(answers[place]) if word not in theirs]
    long = [word for word in words if len(word) > 3]  # "de" and "one" stand everywhere
    text = context.casefold()
    # A word may carry an ending in the text, as Korean particles.
    for ending in (r"(?!\w)", ""):
        for names in (labels[place][:1], long, words):
            patterns = [re.escape(name.casefold()) for name in names if name]
            found = [
                match.span()
                for pattern in patterns
                for match in re.finditer(rf"(?<!\w){pattern}{ending}", text)
            ]
            if found:
                return found
    return []


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:[-'\u2019]\w+)*", text.casefold())


# -- words of a language ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """How a question is put in a language, and wordings of "unknown"."""

    context: str
    question: str
    answer: str
    unknown: tuple[str, ...]

    def means_unknown(self, text: str) -> bool:
        """Tell whether an answer says that it cannot be known."""
        return normal(text) in {"unknown", *map(normal, self.unknown)}


def words_of(language: str) -> Words:
    """The words of a language.

    Examples:
        >>> words_of("en").means_unknown("can't be determined.")
        True
    """
    own: dict[str, Any] = _all_words()[language]
    return Words(own["context"], own["question"], own["answer"], tuple(own["unknown"]))


@cache
def _all_words() -> dict[str, Any]:
    text = (files("unqover") / "data" / "bbq_words.yaml").read_text(encoding="utf-8")
    words: dict[str, Any] = yaml.safe_load(text)
    return words


def normal(text: str) -> str:
    """An answer without case, punctuation and further spaces, as answers are compared.

    Examples:
        >>> normal("The Muslim  one.") == normal("the muslim one")
        True
    """
    return " ".join(re.sub(r"[^\w\s]", "", text.casefold()).split())
