"""Record of a run of ``tdabias unqover``, and the columns of its tables."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from tda_bias.runs.record import RecordPart, RunRecord
from unqover.config import AskConfig


class DesignRecord(RecordPart):
    """The questions: sizes before sampling, and what was drawn."""

    name: str = Field(alias="class")
    about: str = ""
    source: str = ""
    compare: str | None = None
    subjects_available: int
    attributes_available: int
    subjects: tuple[str, ...]
    attributes: tuple[str, ...]
    templates: tuple[str, ...]
    seed: int


class SubjectRecord(NamedTuple):
    """A subject, with its level of every factor."""

    name: str
    levels: tuple[str, ...]


class AttributeRecord(NamedTuple):
    """An attribute, its kind, and whether summaries leave it out."""

    name: str
    kind: str
    sensitive: bool


class ListsRecord(RecordPart):
    """Content of the table, in its order."""

    subjects: tuple[SubjectRecord, ...] = Field(min_length=2)
    factors: tuple[str, ...] = Field(min_length=1)
    templates: tuple[str, ...] = Field(min_length=1)
    attributes: tuple[AttributeRecord, ...] = Field(min_length=1)
    tokens: tuple[tuple[int, ...], ...]

    @model_validator(mode="after")
    def _of_one_size(self) -> ListsRecord:
        for name in ("subjects", "attributes"):
            names = [entry.name for entry in getattr(self, name)]
            if len(set(names)) < len(names):
                raise ValueError(f"{name} names one twice")
        if len(set(self.templates)) < len(self.templates):
            raise ValueError("templates names one twice")
        if any(len(subject.levels) != len(self.factors) for subject in self.subjects):
            raise ValueError("a subject lacks the level of a factor")
        sizes = {len(row) for row in self.tokens}
        if len(self.tokens) != len(self.templates) or sizes != {len(self.subjects)}:
            raise ValueError("tokens does not count every subject in every template")
        return self


class AnswersRecord(RunRecord):
    """Everything needed to ask the same questions again.

    Attributes:
        kind: Of language model.
        ask: How it was asked.
        ask_config: What was chosen about that.
        design: The questions.
        questions: Their number.
        notes: How texts were run.
        parts_reused: Saved parts that an earlier run had made.
        lists: What stands in the table.
        seconds: That asking took.
    """

    command: str = "unqover"
    kind: str | None = None
    ask: str
    ask_config: AskConfig | None = None
    design: DesignRecord
    questions: int
    notes: dict[str, Any] = Field(default_factory=dict)
    parts_reused: int = 0
    lists: ListsRecord | None = None
    seconds: float | None = None


KEYS = ("x1", "x2", "template", "attribute")
# Order of mention, polarity, whose score: the last three axes.
CELLS = tuple(
    f"lp_{order}_{polarity}_{subject}"
    for order, polarity, subject in product(("12", "21"), ("pos", "neg"), ("x1", "x2"))
)
MASSES = tuple(
    f"mass_{order}_{polarity}" for order, polarity in product(("12", "21"), ("pos", "neg"))
)
ANSWER_COLUMNS = {
    **{name: str for name in KEYS},
    **{name: float for name in (*CELLS, *MASSES)},
}
# One row per attribute, in the columns that head results are joined on.
BY_X_COLUMNS = {
    "x": str,
    **{name: float for name in ("r", "r_p", "r_v")},
    "s_.+": float,
}
