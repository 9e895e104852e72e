"""Record of a run of ``tdabias pvf``, and the columns of its tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pvf.config import RiskConfig, ScoreConfig
from tda_bias.runs.record import RecordPart, RunRecord


class SourceRecord(RecordPart):
    """A list of words: its name, and where it comes from."""

    name: str
    source: str


class WordsRecord(RecordPart):
    """The words of a run.

    Attributes:
        x: Those whose preferences were read.
        y: Those that were read, by class.
        shared_by_classes: Listed in several classes.
        not_read: Listed and left out, with the reason.
        tokens_of_each: Of every word of y, the number of tokens of each written form.
        tokens_of_x: Tokens that each x adds to a prompt; not in runs of the first versions.
        continued: Pairs of words of which the first begins the second.
    """

    x: SourceRecord
    y: SourceRecord
    shared_by_classes: tuple[str, ...] = ()
    not_read: dict[str, str] = Field(default_factory=dict)
    tokens_of_each: dict[str, Annotated[tuple[int, ...], Field(min_length=1)]]
    tokens_of_x: dict[str, int] | None = None
    continued: tuple[tuple[str, str], ...] = ()


class TemplateRecord(RecordPart):
    """A template, with its count."""

    template: str
    count: float = Field(gt=0, allow_inf_nan=False)


class ReadRecord(RecordPart):
    """Content of the tables, in their order."""

    x: tuple[str, ...] = Field(min_length=1)
    templates: tuple[TemplateRecord, ...] = Field(min_length=1)
    classes: dict[str, tuple[str, ...]] = Field(min_length=2)

    @model_validator(mode="after")
    def _each_once(self) -> ReadRecord:
        words = [word for members in self.classes.values() for word in members]
        for name, listed in (("x", self.x), ("classes", words)):
            if len(set(listed)) < len(listed):
                raise ValueError(f"{name} names a word twice")
        if not all(self.classes.values()):
            raise ValueError("a class has no word")
        return self


class PreferencesRecord(RunRecord):
    """Everything needed to read the same preferences again.

    Attributes:
        kind: Of language model.
        read_config: How it was read.
        words: The words.
        prompts: Number, tokens and hash of the prompts, and how they were run.
        read: What stands in the tables.
        seconds: That reading took.
    """

    command: str = "pvf"
    kind: str | None = None
    read_config: ScoreConfig | None = None
    words: WordsRecord
    prompts: dict[str, Any] = Field(default_factory=dict)
    read: ReadRecord | None = None
    seconds: float | None = None


class RiskRecord(RunRecord):
    """A run of ``tdabias pvf risk``: risks in a folder of their own.

    Attributes:
        run: Folder of the preferences they were computed from.
    """

    command: Literal["pvf risk"] = "pvf risk"
    run: str


class RiskSettings(RecordPart):
    """Content of ``risk.json``: how risks were computed, and what must be read beside them.

    Attributes:
        config: How.
        x_weights: Of each x, in the order of the preferences; None for uniform ones.
        controls: As in ``RiskReport``.
    """

    config: RiskConfig
    x_weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = None
    controls: dict[str, Any] = Field(default_factory=dict)


WORD_COLUMNS = {
    **{name: str for name in ("x", "template", "word", "class")},
    "log_prob": float,
    "continued": float,
}
CLASS_COLUMNS = {
    **{name: str for name in ("x", "template")},
    "p_.+": float,
    "union_mass": float,
}
# One row per x: the columns that other commands join on, and a signed mean for every class.
BY_X_COLUMNS = {
    "x": str,
    **{name: float for name in ("r", "r_p", "r_v")},
    "s_.+": float,
}
