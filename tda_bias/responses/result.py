"""What ``respond`` found, with its record, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tda_bias.responses.persons import USUAL_CATEGORY
from tda_bias.responses.prompt_correlations import CORRELATION_COLUMNS
from tda_bias.responses.word_shifts import WORD_COLUMNS
from tda_bias.show.text import counted
from tda_bias.store.record import ChatRecord, RunRecord, SourceOfRun
from tda_bias.store.result import Result

# The measure that the finding is about.
HEADLINE = "without echo"
DECISION, RATIO = "log-odds of the good answer", "impact ratio"
EFFECT_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("measure", "kind"), str),
    "prompts": int,
    **dict.fromkeys(("twins", "placebos", "value", "low", "high", "p"), float),
    **dict.fromkeys(("smallest", "per_token"), float),
}


class RespondRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        persons: Where the people were read.
        people: How many there are to draw from.
        groups: The first group, and the second, as tables call them.
        prompts: How many there are.
        samples: Responses for each prompt and person.
        tokens: Of a response at most.
        ends: Token ids that end a response.
        greedy: Whether responses are the likeliest ones.
        chat: What its chat template put around every prompt; None for plain text.
        confidence: Coverage of the intervals.
    """

    command: str = "respond"
    persons: SourceOfRun
    people: int
    groups: tuple[str, str]
    prompts: int
    samples: int
    tokens: int
    ends: tuple[int, ...] = ()
    greedy: bool
    chat: ChatRecord | None = None
    confidence: float

    @property
    def category(self) -> str | None:
        """The category of its people; None for a user's own, where no other than the usual one."""
        category = self.settings.get("category")
        own = self.settings.get("persons") is not None and category == USUAL_CATEGORY
        return None if category is None or own else str(category)

    def reads(self) -> list[SourceOfRun]:
        """The prompts, and the people."""
        return [*super().reads(), self.persons]


@dataclass(frozen=True, repr=False)
class Responses(Result):
    """Result of ``respond``.

    Attributes:
        effects: One row per measure and kind of prompts; see ``result_tables``.
        prompts: One row per prompt.
        decisions: One row per prompt that asks for a decision; may be empty.
        words: One row per word; see ``word_table``; may be empty.
        correlations: Of numbers of prompts; see ``prompt_correlations``; empty in older runs.
        responses: One row per response; see ``response_table``.
        record: How it came about.
    """

    COMMAND = "respond"
    RECORD = RespondRecord
    TABLES = (
        ("effects", "effects.csv", EFFECT_COLUMNS),
        (
            "prompts",
            "prompts.csv",
            dict.fromkeys(("id", "kind", "first", "second"), str)
            | dict.fromkeys(("tokens", "twins", "placebos", "effect", "echo", "sampled"), float),
        ),
        (
            "decisions",
            "decisions.csv",
            dict.fromkeys(("id", "kind"), str)
            | dict.fromkeys(("p_first", "p_second", "difference", "mass"), float),
        ),
        ("words", "words.csv", WORD_COLUMNS),
        ("correlations", "correlations.csv", CORRELATION_COLUMNS),
        (
            "responses",
            "responses.parquet",
            dict.fromkeys(("prompt", "kind", "person", "group", "text"), str)
            | {"number": int, "seed": int, "ended": bool}
            | dict.fromkeys(("tokens", "twins", "placebos", "effect", "echo"), float),
        ),
    )
    OPTIONAL = frozenset({"decisions", "words", "correlations"})
    SHOWN = (("effects", "effects"), ("words", "words"))

    effects: pd.DataFrame
    prompts: pd.DataFrame
    decisions: pd.DataFrame
    words: pd.DataFrame
    correlations: pd.DataFrame
    responses: pd.DataFrame
    record: RespondRecord

    def __repr__(self) -> str:
        return f"Responses({self.record.model.name}: {counted(self.record.prompts, 'prompt')})"

    @property
    def other_words(self) -> pd.DataFrame:
        """Words that are no echo."""
        words = self.words
        return words[~words["echo"].astype(bool)] if len(words) else words

    def effect(self, measure: str = HEADLINE, kind: str = "all") -> Mapping[str, Any] | None:
        """The row of a measure over prompts of a kind; None if there is none."""
        table = self.effects
        rows = table[(table["measure"] == measure) & (table["kind"] == kind)]
        return None if rows.empty else {str(k): v for k, v in rows.iloc[0].items()}
