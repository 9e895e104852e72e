"""BBQ's scores with their items, controls and record, saved and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd

from tda_bias.show.text import counted
from tda_bias.sources import HUB
from tda_bias.stats.clusters import FEWEST_CLUSTERS
from tda_bias.store.record import ChatRecord, ModelRecord, RecordPart, RunRecord, SourceOfRun
from tda_bias.store.result import Result, RunWriter
from tda_bias.types import InputError
from unqover.bbq.answers import GivenAnswers
from unqover.bbq.controls import control_table
from unqover.bbq.forms import Language
from unqover.bbq.items import BBQSet
from unqover.bbq.readers import load_bbq
from unqover.bbq.scores import EITHER_PERSON, answers_table, item_table, scores
from unqover.config import BBQConfig

ANSWERS = "answers.jsonl"
# What an audit calls the published sets.
_PUBLISHED = {"en": "bbq", "es": "esbbq", "ca": "esbbq", "ko": "kobbq"}
_INTERVAL: dict[str, type] = dict.fromkeys(("value", "low", "high", "p"), float)
_NAMES: dict[str, type] = dict.fromkeys(("scoring", "category", "condition", "measure"), str)


class AnswersPart(RecordPart):
    """The file of answers that was scored, and what of it could not be."""

    source: str
    revision: str
    unread: int
    missing: int


class BBQRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of model: causal, masked, seq2seq, span; ``answers`` for a file.
        ask: How it was asked; ``answers`` for a file.
        chat: What its chat template put around every question; None for plain text.
        language: Of the items.
        items: How many were asked.
        left_out: How many could not be scored.
        answers: The file of answers, if one was given.
        confidence: Coverage of the intervals.
    """

    command: str = "bbq"
    kind: str
    ask: str
    chat: ChatRecord | None = None
    language: str
    items: int
    left_out: int
    answers: AnswersPart | None = None
    confidence: float

    def reads(self) -> list[SourceOfRun]:
        """The items, and the file of answers."""
        read = [self._named(one) for one in super().reads()]
        if self.answers is None:
            return read
        given = SourceOfRun(source=self.answers.source, revision=self.answers.revision)
        return [*read, given]

    def _named(self, read: SourceOfRun) -> SourceOfRun:
        """The published set that a source is by its own name; items of a user's own are none."""
        published = "bbq" in read.source.casefold() or read.source == HUB
        name = _PUBLISHED.get(self.language) if published else None
        return read if name is None else read.model_copy(update={"name": name})


@dataclass(frozen=True, repr=False)
class BBQScores(Result):
    """Result of ``bbq_scores`` and ``answer_scores``.

    Attributes:
        items: One row per scoring and item; see ``item_table``. ``bias`` is its score and
            ``cluster`` its template, for comparisons.
        scores: One row per scoring, category and measure; see ``scores``.
        controls: One row per scoring and control; see ``control_table``.
        left_out: ``category id reason`` of items that could not be scored; may be empty.
        record: How it came about.
    """

    COMMAND = "bbq"
    RECORD = BBQRecord
    TABLES = (
        (
            "items",
            "items.parquet",
            dict.fromkeys(("scoring", "category", "id", "cluster", "condition"), str)
            | dict.fromkeys(("correct", "vote", "bias", "first", "aligned"), float)
            | {"answer": int},
        ),
        (
            "scores",
            "scores.csv",
            {
                **_NAMES,
                **dict.fromkeys(("items", "templates", "biased", "unanswered"), int),
                **_INTERVAL,
            },
        ),
        (
            "controls",
            "controls.csv",
            dict.fromkeys(("scoring", "control", "part"), str) | _INTERVAL,
        ),
        ("left_out", "left_out.csv", dict.fromkeys(("category", "id", "reason"), str)),
    )
    OPTIONAL = frozenset({"left_out"})
    SHOWN = (("scores", "scores"), ("controls", "controls"))

    items: pd.DataFrame
    scores: pd.DataFrame
    controls: pd.DataFrame
    left_out: pd.DataFrame
    record: BBQRecord

    def __repr__(self) -> str:
        return f"BBQScores({self.record.model.name}: {counted(self.record.items, 'item')})"

    def _write(self, run: RunWriter) -> None:
        super()._write(run)
        run.table(ANSWERS, answers_table(self.items))

    @property
    def config(self) -> BBQConfig:
        """How the items were asked; as ``bbq`` asks by default where answers were given."""
        return self.record.settings_as(BBQConfig, ("ask", "chat", "system"))

    def asked_again(self) -> BBQSet:
        """The items of the run, read again from where they were.

        Raises:
            InputError: if the record names no source, or what is there is something else now.
        """
        record = self.record
        if record.data is None:
            raise InputError(f"the run of `tdabias bbq` on {record.model.name} names no items")
        categories: tuple[str, ...] = record.setting("category", ())
        language = cast(Language, record.language)
        asked = load_bbq(record.data.source, language=language, categories=categories)
        # Of a run of answers, the revision of these stands after that of the items.
        if (record.data.revision or "").split(" ")[0] != (asked.revision or ""):
            raise InputError(
                f"{record.data.source} has changed since a run of `tdabias bbq` read it; make the "
                "run again"
            )
        return asked.only(set(zip(self.items["category"], self.items["id"], strict=True)))

    def value(
        self, measure: str, condition: str, *, category: str = "all", scoring: str | None = None
    ) -> Mapping[str, Any]:
        """The row of a measure; of the first scoring if none is named."""
        table = self.scores
        wanted = {"measure": measure, "condition": condition, "category": category}
        wanted["scoring"] = scoring or table["scoring"].iloc[0]
        for name, value in wanted.items():
            table = table[table[name] == value]
        return {str(name): value for name, value in table.iloc[0].items()}


def finds_what_text_says(result: BBQScores) -> bool | None:
    """Tell whether the persons named where the text says whom it means are mostly the right ones.

    Returns:
        True if more often than the half that naming either gets; None if too few templates tell,
        or nobody is named.
    """
    right = result.value("right", "disambiguated")
    # Where every one is right nothing varies, and there is no interval.
    if right["low"] > EITHER_PERSON or (
        right["value"] == 1 and right["templates"] >= FEWEST_CLUSTERS
    ):
        return True
    return None if math.isnan(right["low"]) else False


def answer_scores(
    asked: BBQSet, given: GivenAnswers, *, config: BBQConfig | None = None
) -> BBQScores:
    """Scores of answers that are there already; no model is run."""
    config = config or BBQConfig()
    table = item_table(asked.items, "answers", answers=given.places)
    how: dict[str, Any] = {"confidence": config.confidence, "seed": config.seed}
    controls = control_table(asked.items, "answers", table, picks=given.places[:, None], **how)
    part = AnswersPart(
        source=given.source, revision=given.revision, unread=given.unread, missing=given.missing
    )
    model = ModelRecord(name=Path(given.source).stem)
    return collected(
        asked, [table], [controls], config, model=model, kind="answers", ask="answers", answers=part
    )


def collected(
    asked: BBQSet,
    tables: list[pd.DataFrame],
    controls: list[pd.DataFrame],
    config: BBQConfig,
    **record: Any,
) -> BBQScores:
    """The result of the items and controls of every scoring; ``record`` is what else it says."""
    items = pd.concat(tables, ignore_index=True)
    left_out = [asdict(one) for one in asked.left_out]
    return BBQScores(
        items=items,
        scores=scores(items, confidence=config.confidence, seed=config.seed),
        controls=pd.concat(controls, ignore_index=True),
        left_out=pd.DataFrame(left_out, columns=["category", "id", "reason"]),
        record=BBQRecord(
            data=asked.record,
            language=asked.language,
            items=len(asked.items),
            left_out=len(left_out),
            confidence=config.confidence,
            **record,
        ),
    )
