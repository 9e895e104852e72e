"""Prompts about a person: templates that ship, and a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from tda_bias.show.text import is_visible
from tda_bias.sources import hash_of, text_of
from tda_bias.store.files import csv_objects
from tda_bias.store.record import DataRecord
from tda_bias.store.settings import given_as
from tda_bias.types import InputError

SLOT = "[PERSON]"
BUNDLED = "bundled"
_SENTENCE_ENDS = (".", "!", "?")


@dataclass(frozen=True)
class Prompt:
    """A template about a person.

    Attributes:
        id: Its name in tables.
        kind: What is asked for: letter, story, persona, advice, decision; ``own`` where a user's
            file does not say.
        template: The text, with ``SLOT`` where the person stands.
        choices: The answer that is good for the person, and the other one; empty without a
            decision.
    """

    id: str
    kind: str
    template: str
    choices: tuple[str, ...] = ()

    def about(self, person: str) -> str:
        """The text about a person; a description that begins a sentence has a capital letter.

        Examples:
            >>> Prompt("a", "own", "[PERSON] waits. Who is [PERSON]?").about("a 30-year-old man")
            'A 30-year-old man waits. Who is a 30-year-old man?'
        """
        text = ""
        for number, piece in enumerate(self.template.split(SLOT)):
            if number:
                before = text.rstrip()
                begins = not before or before.endswith(_SENTENCE_ENDS)
                text += person[:1].upper() + person[1:] if begins else person
            text += piece
        return text


@dataclass(frozen=True)
class PromptSet:
    """Prompts with the place where they were read."""

    prompts: tuple[Prompt, ...]
    record: DataRecord


def load_prompts(source: str | Path = BUNDLED, *, limit: int | None = None) -> PromptSet:
    """Prompts that ship, or those of a CSV file.

    Args:
        source: ``bundled``, or a file with the columns ``id`` and ``template``, which holds
            ``[PERSON]``; maybe ``kind``, and ``choices`` (``yes|no``, the answer that is good for
            the person first) where a decision is asked for.
        limit: At most so many, spread over the kinds.

    Raises:
        InputError: if the file cannot be read, or a row does not fit.
    """
    if str(source) == BUNDLED:
        text = files("tda_bias.data").joinpath("responses.csv").read_text(encoding="utf-8")
    else:
        with given_as("prompts"):
            text = text_of(Path(source))
    prompts: list[Prompt] = []
    seen: dict[str, str] = {}
    for where, row in csv_objects(text, str(source), columns=("id", "template")):
        prompt = _checked(row, where)
        if prompt.id in seen:
            raise InputError(f"{where}: the id {prompt.id!r} stands in {seen[prompt.id]} too")
        seen[prompt.id] = where
        prompts.append(prompt)
    if not prompts:
        raise InputError(f"`prompts` {source} holds no prompt")
    record = DataRecord(source=_named(source), revision=hash_of(text))
    return PromptSet(tuple(spread(prompts, limit)), record)


def _named(source: str | Path) -> str:
    return "respond prompts" if str(source) == BUNDLED else str(source)


def _checked(row: dict[str, str], where: str) -> Prompt:
    name, template = row["id"].strip(), row["template"].strip()
    if not is_visible(name):
        raise InputError(f"{where}: `id` is empty")
    if SLOT not in template:
        raise InputError(
            f"{where}: the template has no {SLOT}, where the person is to stand; got {template!r}"
        )
    said = row.get("choices", "").strip()
    choices = tuple(answer.strip() for answer in said.split("|")) if said else ()
    different = {answer.casefold() for answer in choices if answer}
    if choices and (len(choices) != 2 or len(different) != 2):
        raise InputError(
            f"{where}: `choices` must be two different answers with | between them, as yes|no; "
            f"got {said!r}"
        )
    return Prompt(name, row.get("kind", "").strip() or "own", template, choices)


def spread(prompts: Sequence[Prompt], limit: int | None) -> list[Prompt]:
    """At most so many prompts, in turn of each kind, in their order.

    Examples:
        >>> several = [Prompt(i, kind, SLOT) for i, kind in ("ax", "bx", "cy", "dy", "ez")]
        >>> [prompt.id for prompt in spread(several, 4)]
        ['a', 'b', 'c', 'e']
    """
    of_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        of_kind.setdefault(prompt.kind, []).append(prompt)
    in_turn = [p for turn in zip_longest(*of_kind.values()) for p in turn if p is not None]
    kept = set(in_turn[:limit])
    return [prompt for prompt in prompts if prompt in kept]
