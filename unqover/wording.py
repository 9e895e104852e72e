"""Subjects, attributes and frames to English sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from unqover.classes import Attribute, Form, Frame, Subject
from unqover.config import Negation

if TYPE_CHECKING:
    import inflect


@dataclass(frozen=True)
class Template:
    """A frame with one of its form's nouns.

    Attributes:
        frame: The sentence and the question.
        form: How subjects are written.
        noun: The noun behind an adjective; empty where the form has none.
    """

    frame: Frame
    form: Form
    noun: str

    @property
    def name(self) -> str:
        """Property that tells it from the others of its class."""
        return self.frame.context + (f" [{self.noun}]" if self.noun else "")

    def context(self, first: Subject, second: Subject) -> str:
        """The sentence that mentions two subjects in this order."""
        return self.context_with_places(first, second)[0]

    def context_with_places(
        self, first: Subject, second: Subject
    ) -> tuple[str, tuple[tuple[slice, slice], tuple[slice, slice]]]:
        """The same, and where each of them stands in it: the mention, and the subject itself."""
        text, places = "", {}
        for piece in re.split(r"(\{first\}|\{second\})", self.frame.context):
            if piece not in ("{first}", "{second}"):
                text += piece
                continue
            before, name, after = self._mention(first if piece == "{first}" else second)
            start = len(text)
            place = slice(start + len(before), start + len(before) + len(name))
            text += before + name + after
            places[piece] = (slice(start, len(text)), place)
        return _capital(text), (places["{first}"], places["{second}"])

    def question(self, attribute: Attribute, negation: Negation | None) -> str:
        """Whom the attribute, or its denial, holds for."""
        # "Who" takes a singular verb, also where groups are meant.
        said = _predicate(attribute, negation, "singular")
        return _capital(self.frame.question.replace("{attribute}", said))

    def answer(self, subject: Subject) -> tuple[str, slice]:
        """The subject as an answer, and where in it the subject itself stands."""
        before, name, after = _parts(self.form.answer, subject, self.noun)
        start = len(before)
        return _capital(before + name + after), slice(start, start + len(name))

    def statement(
        self, subject: Subject, attribute: Attribute, negation: Negation | None
    ) -> tuple[str, slice]:
        """A sentence that says the attribute, or denies it, and where in it the subject stands."""
        answer, place = self.answer(subject)
        return f"{answer} {_predicate(attribute, negation, self.form.number)}.", place

    def _mention(self, subject: Subject) -> tuple[str, str, str]:
        before, name, after = _parts(self.form.mention, subject, self.noun)
        return before.replace("{a}", article(name + after)), name, after


def templates(frames: tuple[Frame, ...], forms: dict[str, Form]) -> tuple[Template, ...]:
    """Every frame with every noun of its form."""
    return tuple(
        Template(frame, forms[frame.form], noun)
        for frame in frames
        for noun in forms[frame.form].nouns
    )


@cache
def article(noun: str) -> str:
    """The article by the sound behind it: an 80-year-old, a European, an hour."""
    number = re.match(r"\d+", noun)
    spoken = str(_english().number_to_words(number[0])) + noun[number.end() :] if number else noun
    return str(_english().a(spoken)).split(" ", 1)[0]


@cache
def _plural(noun: str) -> str:
    return str(_english().plural_noun(noun) or noun)


@cache
def _english() -> inflect.engine:
    import inflect

    return inflect.engine()


def _predicate(attribute: Attribute, negation: Negation | None, number: str) -> str:
    chosen = {None: attribute.says, "not": attribute.negated, "antonym": attribute.antonym}
    before, has_noun, noun = chosen[negation].partition("{a} ")
    if number == "singular":
        return f"{before}{article(noun)} {noun}" if has_noun else before
    before = re.sub(r"^was\b", "were", before)
    return before + _plural(noun) if has_noun else before


def _parts(form: str, subject: Subject, noun: str) -> tuple[str, str, str]:
    """Text before a subject, the subject, and the text after it."""
    slot = "{subject}" if "{subject}" in form else "{adjective}"
    before, after = form.replace("{noun}", noun).split(slot)
    return before, subject.name if slot == "{subject}" else subject.adjective, after


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
