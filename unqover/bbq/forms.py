"""The forms of BBQ's files: JSON Lines (BBQ, MBBQ), CSV (EsBBQ, CaBBQ), TSV (KoBBQ).

A row that does not fit is refused with file, line and key.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tda_bias.sources import visible_text
from tda_bias.store.files import json_objects, rows_of
from tda_bias.store.settings import validated
from tda_bias.types import InputError
from unqover.bbq.items import BBQItem, LeftOut, mentioned_first, normal, target_of, words_of

Language = Literal["en", "es", "ca", "ko", "nl", "tr"]
LANGUAGES: tuple[Language, ...] = get_args(Language)


# -- rows of any form ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """An item as its file has it: what all forms share.

    ``labels`` are the persons' by their places; the file names ``groups``, or the target itself.
    """

    id: str
    category: str
    template: str
    condition: str
    polarity: str
    context: str
    question: str
    answers: tuple[str, str, str]
    label: int
    unknown: int
    labels: Mapping[int, Sequence[str]]
    groups: Sequence[str]
    source: str
    target: int | None = None

    def item(self) -> BBQItem | LeftOut:
        """The item, or why there is none."""
        names = {place: self.answers[place] for place in self.labels}
        target = self.target if self.target is not None else target_of(self.groups, self.labels)
        condition: Literal["ambiguous", "disambiguated"] = (
            "ambiguous" if self.condition.startswith("amb") else "disambiguated"
        )
        if target is None:
            return LeftOut(self.category, self.id, "no single person of the stereotyped groups")
        if (self.label == self.unknown) != (condition == "ambiguous"):
            return LeftOut(self.category, self.id, f"the right answer is not of {condition} texts")
        return BBQItem(
            id=self.id,
            category=self.category,
            template=self.template,
            condition=condition,
            polarity="neg" if self.polarity == "neg" else "nonneg",
            context=self.context,
            question=self.question,
            answers=self.answers,
            label=self.label,
            unknown=self.unknown,
            target=target,
            first=mentioned_first(self.context, names, self.labels),
            source=self.source,
        )


def rows_of_text(text: str, source: str, language: Language) -> Iterator[Row]:
    """The rows of one file, whose form its first line shows."""
    heading = text.lstrip().partition("\n")[0]
    if heading.startswith("{"):
        _require(source, language, ("en", "es", "nl", "tr"), "BBQ's JSON Lines")
        for where, row in json_objects(text, source):
            yield bbq_row(row, where, language)
    elif "sample_id" in heading.split("\t"):
        _require(source, language, ("ko",), "KoBBQ's TSV")
        rows = rows_of(text, source, columns=_KOBBQ, delimiter="\t")
        yield from (_kobbq_row(row, f"{source} line {n}") for n, row in enumerate(rows, start=2))
    else:
        _require(source, language, ("es", "ca"), "EsBBQ's CSV")
        rows = rows_of(text, source, columns=_ESBBQ)
        for number, row in enumerate(rows):
            yield _esbbq_row(row, f"{source} line {number + 2}", number, language)


def _require(source: str, language: Language, languages: Sequence[str], form: str) -> None:
    said = language_in_name(Path(source))
    if language not in languages or (said is not None and said != language):
        there = said if said in languages else " or ".join(languages)
        raise InputError(
            f"`data` {source} is {form}{f' in {said}' if said else ''}; `language` is "
            f"{language!r}; give --language {there}"
        )


def language_in_name(path: Path) -> str | None:
    """The language that a file's name ends with: ``Religion_es.csv``."""
    last = path.name.split(".")[0].rpartition("_")[2].casefold()
    return last if last in LANGUAGES else None


# -- BBQ and MBBQ ----------------------------------------------------------------------------------


def number_as_text(value: Any) -> Any:
    """A whole number as a text; everything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Number = Annotated[str, BeforeValidator(number_as_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Three(_Strict):
    ans0: list[str]
    ans1: list[str]
    ans2: list[str]


class _About(_Strict):
    stereotyped_groups: list[str]


class _Line(_Strict):
    example_id: _Number
    question_index: _Number
    question_polarity: Literal["neg", "nonneg"]
    context_condition: Literal["ambig", "disambig"]
    category: str
    answer_info: _Three
    additional_metadata: _About
    context: str
    question: str
    ans0: str
    ans1: str
    ans2: str
    label: int = Field(ge=0, le=2)


def bbq_row(given: Mapping[str, Any], where: str, language: Language) -> Row:
    """A row of BBQ's JSON Lines, or of the hub; other keys are passed over."""
    try:
        line = validated(_Line, given, given_as="file")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    answers = _texts(where, ("ans0", "ans1", "ans2"), (line.ans0, line.ans1, line.ans2))
    labels = [line.answer_info.ans0, line.answer_info.ans1, line.answer_info.ans2]
    unknown = _unknown(answers, labels, language, where)
    _refuse_other_language(answers[unknown], language, where)
    context, question = _texts(where, ("context", "question"), (line.context, line.question))
    return Row(
        id=line.example_id,
        category=line.category,
        template=line.question_index,
        condition=line.context_condition,
        polarity=line.question_polarity,
        context=context,
        question=question,
        answers=(answers[0], answers[1], answers[2]),
        label=line.label,
        unknown=unknown,
        labels={place: own for place, own in enumerate(labels) if place != unknown},
        groups=line.additional_metadata.stereotyped_groups,
        source=where,
    )


def _texts(where: str, names: Sequence[str], values: Sequence[Any]) -> list[str]:
    return [visible_text(value, name, where).strip()
            for name, value in zip(names, values, strict=True)]  # fmt: skip


def _unknown(
    answers: Sequence[str], labels: Sequence[Sequence[str]], language: str, where: str
) -> int:
    """The place of the answer for "unknown": as the labels say, else as the answers read."""
    words = words_of(language)
    marked = [place for place, own in enumerate(labels) if "unknown" in map(normal, own)]
    if len(marked) != 1:
        marked = [place for place, text in enumerate(answers) if words.means_unknown(text)]
    if len(marked) != 1:
        raise InputError(f'{where}: one of three answers must be that of "unknown" ({language})')
    return marked[0]


def _refuse_other_language(unknown: str, language: str, where: str) -> None:
    """Make sure that "unknown" is not called as it is in another language alone."""
    own = words_of(language).means_unknown(unknown)
    others = [other for other in LANGUAGES if words_of(other).means_unknown(unknown)]
    if not own and others:
        raise InputError(
            f"{where}: {unknown!r} is of the language {others[0]}, and `language` is {language!r}; "
            f"give --language {others[0]}"
        )


# -- EsBBQ and CaBBQ -------------------------------------------------------------------------------

_ESBBQ = (
    "instance_id", "template_id", "question_polarity", "context_condition", "category",
    "stereotyped_groups", "answer_info.ans0", "answer_info.ans1", "answer_info.ans2",
    "context", "question", "ans0", "ans1", "ans2", "label",
)  # fmt: skip


def _esbbq_row(row: Mapping[str, str], where: str, number: int, language: Language) -> Row:
    """A row whose answer "unknown" is put into words, the wordings of the language in turn."""
    names, wordings = ("ans0", "ans1", "ans2"), words_of(language).unknown
    texts = {name: row[name] for name in names}
    for name, text in texts.items():
        if normal(text) == "unknown":
            texts[name] = wordings[number % len(wordings)]
    asis = ("question_polarity", "context_condition", "category", "context", "question")
    given: dict[str, Any] = {
        **{key: row[key] for key in asis},
        **texts,
        "example_id": row["instance_id"],
        "question_index": row["template_id"],
        "answer_info": {name: _list(row, f"answer_info.{name}", where) for name in names},
        "additional_metadata": {"stereotyped_groups": _list(row, "stereotyped_groups", where)},
        "label": int(row["label"]) if row["label"].strip().isdecimal() else row["label"],
    }
    return bbq_row(given, where, language)


def _list(row: Mapping[str, str], key: str, where: str) -> list[str]:
    """A list of texts in Python's notation."""
    try:
        value = ast.literal_eval(row[key])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InputError(f"{where}: `{key}` must be a list of texts; got {row[key][:60]!r}")
    return value


# -- KoBBQ -----------------------------------------------------------------------------------------

_KOBBQ = ("sample_id", "context", "question", "choices", "biased_answer", "answer")


def _kobbq_row(row: Mapping[str, str], where: str) -> Row:
    """A row whose ``sample_id`` says template, condition and whether bias and question agree.

    ``bsd`` asks for what the stereotype says of the target, ``cnt`` for the contrary: the biased
    answer is the target there and the other person here.
    """
    parts = row["sample_id"].rsplit("-", 4)
    if len(parts) != 5 or parts[3] not in ("amb", "dis") or parts[4] not in ("bsd", "cnt"):
        raise InputError(
            f"{where}: `sample_id` must be CATEGORY-TEMPLATE-VARIANT-amb|dis-bsd|cnt; got "
            f"{row['sample_id']!r}"
        )
    choices = _list(row, "choices", where)
    if len(choices) != 3 or len(set(choices)) != 3:
        raise InputError(f"{where}: `choices` must hold three answers; got {len(choices)}")
    answers = _texts(where, ["choices"] * 3, choices)
    for key in ("biased_answer", "answer"):
        if row[key].strip() not in answers:
            raise InputError(f"{where}: `{key}` must be one of `choices`; got {row[key]!r}")
    unknown = _unknown(answers, [[]] * 3, "ko", where)
    biased, label = (answers.index(row[key].strip()) for key in ("biased_answer", "answer"))
    context, question = _texts(where, ("context", "question"), (row["context"], row["question"]))
    return Row(
        id=row["sample_id"],
        category=parts[0],
        # The letter of 001a and 001b is the order of mention.
        template=parts[1].rstrip("abcdefgh"),
        condition={"amb": "ambig", "dis": "disambig"}[parts[3]],
        polarity="neg" if parts[4] == "bsd" else "nonneg",
        context=context,
        question=question,
        answers=(answers[0], answers[1], answers[2]),
        label=label,
        unknown=unknown,
        labels={place: [text] for place, text in enumerate(answers) if place != unknown},
        groups=(),
        source=where,
        target=biased if parts[4] == "bsd" else 3 - unknown - biased,
    )
