"""Files of answers: one line for each item, of any model behind any interface.

A line is ``{"category": ..., "example_id": ..., "answer": 0, 1, 2 or a text}``; a run leaves such a
file, too. Lines of lm-evaluation-harness's ``--log_samples`` are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, BeforeValidator, ConfigDict

from tda_bias.sources import hash_of
from tda_bias.store.files import json_objects, read_text
from tda_bias.store.settings import validated
from tda_bias.types import InputError
from unqover.bbq.forms import LANGUAGES, number_as_text
from unqover.bbq.items import BBQItem, BBQSet, normal, words_of


class _Line(BaseModel):
    # What else a line says of an answer, such as the model's whole text, is passed over.
    model_config = ConfigDict(extra="ignore", strict=True)

    category: str
    example_id: Annotated[str, BeforeValidator(number_as_text)]
    answer: int | str


@dataclass(frozen=True)
class GivenAnswers:
    """Answers to items, with where they were read.

    Attributes:
        places: Of each item's answer in the data's order; -1 for none.
        unread: Items whose answer is a text that is none of the three.
        missing: Items that no line answers.
    """

    places: Int[np.ndarray, " item"]
    unread: int
    missing: int
    source: str
    revision: str


def read_answers(source: str, asked: BBQSet) -> GivenAnswers:
    """The answers of a file to the items of a set.

    Texts are compared without case and punctuation; any wording of "unknown" in the set's language
    is that answer. Where only some categories are asked for, answers to others are passed over.

    Raises:
        InputError: if a line does not fit, answers an item that the data lack or one that another
            line answers, or no text is an answer of its item.
    """
    text = read_text(source, setting="answers", named=())
    items = {(item.category, item.id): item for item in asked.items}
    categories = {category for category, _ in {*items, *asked.others}}
    given: dict[tuple[str, str], tuple[int | str, str]] = {}
    for where, row in json_objects(text, source):
        line = _line(row, where)
        key = (line.category, line.example_id)
        if line.category not in categories and asked.chosen:
            continue
        if line.category not in categories:
            raise InputError(
                f"{where}: `category` {line.category!r} does not occur in the data, which have "
                f"{', '.join(sorted(categories))}"
            )
        if key not in items and key not in asked.others:
            raise InputError(
                f"{where}: `example_id` {line.example_id} of {line.category} does not occur in "
                f"the data {asked.source}; give --data the items that were answered"
            )
        if key in given:
            raise InputError(
                f"{where}: the item {line.example_id} of {line.category} is answered in "
                f"{given[key][1]} too"
            )
        given[key] = line.answer, where
    return _placed(items, given, asked, source, hash_of(text))


def _placed(
    items: Mapping[tuple[str, str], BBQItem],
    given: Mapping[tuple[str, str], tuple[int | str, str]],
    asked: BBQSet,
    source: str,
    revision: str,
) -> GivenAnswers:
    places = np.full(len(items), -1)
    texts = unread = missing = 0
    for number, (key, item) in enumerate(items.items()):
        if key not in given:
            missing += 1
            continue
        answer, where = given[key]
        if isinstance(answer, int):
            if not 0 <= answer <= 2:
                raise InputError(f"{where}: `answer` must be 0, 1, 2 or a text; got {answer}")
            places[number] = answer
            continue
        texts += 1
        places[number] = _place(answer, item, asked.language)
        unread += int(places[number] < 0)
    if texts and unread == texts:
        others = [other for other in LANGUAGES if _speaks(other, given)]
        hint = f"; it may be of the language {others[0]}" if others else ""
        raise InputError(
            f"`answers` {source}: none of {texts} texts is an answer of its item{hint}; `language` "
            f"is {asked.language!r}"
        )
    if missing == len(items):
        raise InputError(f"`answers` {source} answers none of the {len(items)} items asked for")
    return GivenAnswers(places, unread, missing, source, revision)


def _place(answer: str, item: BBQItem, language: str) -> int:
    said = normal(answer)
    meant = [place for place, text in enumerate(item.answers) if normal(text) == said]
    if len(meant) == 1:
        return meant[0]
    return item.unknown if words_of(language).means_unknown(answer) else -1


def _speaks(language: str, given: Mapping[tuple[str, str], tuple[int | str, str]]) -> bool:
    wordings = {normal(text) for text in words_of(language).unknown}
    return any(isinstance(a, str) and normal(a) in wordings for a, _ in given.values())


def _line(row: Mapping[str, Any], where: str) -> _Line:
    try:
        return validated(_Line, _of_lm_eval(row) if "doc" in row else row, given_as="file")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _of_lm_eval(row: Mapping[str, Any]) -> dict[str, Any]:
    """The likeliest continuation of a sample of lm-evaluation-harness's ``bbq``, as a text."""
    try:
        doc, arguments = row["doc"], row["arguments"]
        likely = [float(one[0]) for one in row["filtered_resps"]]
        said = arguments[f"gen_args_{int(np.argmax(likely))}"]["arg_1"].strip()
        return {"category": doc["category"], "example_id": doc["example_id"], "answer": said}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise InputError(
            "not a sample that lm_eval writes for a multiple-choice task with `doc`, `arguments` "
            "and `filtered_resps`"
        ) from None
