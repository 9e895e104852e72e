"""StereoSet as outcomes: beta, log-odds, stereotype and language-model scores, item by item."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import Guard, Outcome, equal_weights, item_rows
from tda_bias.progress import Progress
from tda_bias.scores.beta import log_odds, twin_table, with_beta
from tda_bias.scores.intrasentence import sentence_items
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.scores.stereoset import SCORINGS, item_table, wins
from tda_bias.triples import triple_ids
from tda_bias.twins import make_twins
from tda_bias.types import CATEGORIES, Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs.pair import Scored
    from tda_bias.pairs.stereoset import SentenceTriple
    from tda_bias.twins import Twins

_PER = {"sum": "nats", "mean": "nats per token"}
_BY = {"sum": "by sums", "mean": "per token"}
# Sign of the difference in tokens, stereotype minus anti-stereotype.
_LONGER = {1: "longer", 0: "equal", -1: "shorter"}
# Both meaningful continuations are compared with the unrelated one.
_LMS_GUARD = Guard(1.0, -1, "1 point", wins=2)


@dataclass(frozen=True)
class TripleMeasure:
    """StereoSet's intersentence half, with twins where they can be made.

    Attributes:
        triples: The items.
        twins: The same texts about other targets; None for no beta.
        source: Where the triples were read, and what pins them.
        name: Of the measure.
    """

    triples: Sequence[Triple]
    twins: Twins | None
    source: Mapping[str, Any]
    name: str = "stereoset"

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {
            **self.source,
            "ids": triple_ids(self.triples),
            "twins": None if self.twins is None else self.twins.only(self.triples).hash(),
        }

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Beta of every category is what a comparison is about."""
        outcomes = []
        for category in _categories(self.triples):
            if self._has_twins(category):
                for scoring in SCORINGS:
                    about = f"StereoSet {category}: log-odds minus the twin's, {_BY[scoring]}"
                    outcomes.append(
                        Outcome(
                            f"beta_{scoring}_{category}",
                            "bias",
                            _PER[scoring],
                            about,
                            neutral=0.0,
                            primary=scoring == "sum",
                        )
                    )
            outcomes.append(
                Outcome(
                    f"log_odds_{category}",
                    "bias",
                    "nats",
                    f"StereoSet {category}: log-odds of the stereotype, mostly wording",
                    neutral=0.0,
                )
            )
            outcomes += _score_outcomes("ss", category, f"StereoSet {category}")
        return [*outcomes, *_lms_outcomes("lms", "StereoSet")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        twins = [self.twins.of(t) if self.twins is not None else () for t in self.triples]
        every = [*self.triples, *(twin for several in twins for twin in several)]
        readings = triple_likelihoods(model, every, batch_size=batch_size, progress=progress)
        table = item_table(self.triples, readings[: len(self.triples)])
        table["id"] = triple_ids(self.triples)
        rest = iter(readings[len(self.triples) :])
        table = with_beta(
            table, twin_table([[next(rest) for _ in its_twins] for its_twins in twins])
        )
        rows = [*_score_rows("ss", table), *_lms_rows("lms", table)]
        for category, part in table.groupby("category", sort=False):
            rows.append(_rows(f"log_odds_{category}", part, log_odds(part, "sum")))
            if self._has_twins(str(category)):
                twinned = part[part["twins"] > 0]
                rows += [
                    _rows(f"beta_{scoring}_{category}", twinned, twinned[f"beta_{scoring}"])
                    for scoring in SCORINGS
                ]
        return pd.concat(rows, ignore_index=True)

    def _has_twins(self, category: str) -> bool:
        of_category = (t for t in self.triples if t.category == category)
        return self.twins is not None and any(self.twins.of(triple) for triple in of_category)


@dataclass(frozen=True)
class SentenceMeasure:
    """StereoSet's intrasentence half: whole sentences, with the same about the other gender.

    Attributes:
        sentences: The items.
        source: Where they were read, and what pins them.
        name: Of the measure.
    """

    sentences: Sequence[SentenceTriple]
    source: Mapping[str, Any]
    name: str = "intrasentence"

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        texts = [list(twin.texts()) for twin in self.twins.values()]
        return {
            **self.source,
            "ids": [sentence.id for sentence in self.sentences],
            "twins": _hash(texts),
        }

    @cached_property
    def twins(self) -> dict[str, SentenceTriple]:
        """Of the sentences of category gender that can be swapped, by the name of the item.

        Targets of other categories stand in the sentence with what is said of them and are not
        replaced.
        """
        gender = [sentence for sentence in self.sentences if sentence.category == "gender"]
        as_triples = [_as_triple(sentence) for sentence in gender]
        made = make_twins(as_triples)
        return {
            sentence.id: _as_sentence(sentence, made.of(triple)[0])
            for sentence, triple in zip(gender, as_triples, strict=True)
            if made.of(triple)
        }

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Beta, log-odds and scores of whole sentences."""
        outcomes = []
        if self.twins:
            for scoring in SCORINGS:
                about = f"intrasentence gender: log-odds minus the twin's, {_BY[scoring]}"
                name = f"intrasentence_beta_{scoring}_gender"
                outcomes.append(Outcome(name, "bias", _PER[scoring], about, neutral=0.0))
        for category in _categories(self.sentences):
            about = f"intrasentence {category}: log-odds of the stereotype"
            name = f"intrasentence_log_odds_{category}"
            outcomes.append(Outcome(name, "bias", "nats", about, neutral=0.0))
            outcomes += _score_outcomes("intrasentence_ss", category, f"intrasentence {category}")
        return [*outcomes, *_lms_outcomes("intrasentence_lms", "intrasentence", guarded=False)]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``; masked models by the words in which sentences differ."""
        scored: Scored = "difference" if model.kind == "masked" else "whole"
        every = [*self.sentences, *self.twins.values()]
        table = sentence_items(
            model, every, which=(scored,), batch_size=batch_size, progress=progress
        )
        table = table[table["reading"] == table["reading"].iloc[0]]
        n = len(self.sentences)
        odds = {scoring: log_odds(table, scoring) for scoring in SCORINGS}
        originals, of_twin = (
            table.iloc[:n],
            dict(zip(self.twins, range(n, len(every)), strict=True)),
        )
        rows = []
        for scoring in SCORINGS if of_twin else ():
            place = np.array(
                [i for i, sentence in enumerate(self.sentences) if sentence.id in of_twin]
            )
            twin = np.array([of_twin[self.sentences[i].id] for i in place])
            value = odds[scoring][place] - odds[scoring][twin]
            rows.append(_rows(f"intrasentence_beta_{scoring}_gender", originals.iloc[place], value))
        originals = originals.dropna(subset=[f"log_prob_{role}" for role in "sau"])
        rows += [
            *_score_rows("intrasentence_ss", originals),
            *_lms_rows("intrasentence_lms", originals),
        ]
        for category, part in originals.groupby("category", sort=False):
            name = f"intrasentence_log_odds_{category}"
            rows.append(_rows(name, part, log_odds(part, "sum")))
        return pd.concat(rows, ignore_index=True)


def _as_triple(sentence: SentenceTriple) -> Triple:
    """A triple whose context is the stereotype sentence, which has to change with the target."""
    stereotype, anti, unrelated = sentence.texts()
    return Triple(
        sentence.group, sentence.category, stereotype, stereotype, anti, unrelated, sentence.source
    )


def _as_sentence(sentence: SentenceTriple, twin: Triple) -> SentenceTriple:
    return replace(
        sentence,
        group=twin.group,
        stereotype=twin.stereotype,
        anti_stereotype=twin.anti_stereotype,
        unrelated=twin.unrelated,
    )


def _hash(texts: Sequence[Any]) -> str:
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()


# -- scores ----------------------------------------------------------------------------------------


def _categories(items: Sequence[Triple] | Sequence[SentenceTriple]) -> list[str]:
    present = {item.category for item in items}
    return [category for category in CATEGORIES if category in present]


def _score_outcomes(name: str, category: str, what: str) -> Iterator[Outcome]:
    """The stereotype score of a category by both scorings, and by which text is longer."""
    for scoring in SCORINGS:
        about = f"{what}: stereotype score {_BY[scoring]}, mean over targets"
        outcome = f"{name}_{scoring}_{category}"
        yield Outcome(outcome, "bias", "points", about, neutral=50.0)
        for length in _LONGER.values():
            about = f"{what}: the same where the stereotype is the {length} text, over items"
            yield Outcome(f"{outcome}_{length}", "bias", "points", about, neutral=50.0)


def _lms_outcomes(name: str, what: str, *, guarded: bool = True) -> Iterator[Outcome]:
    for scoring in SCORINGS:
        # Sums favour short texts, whatever the model: the guard is on the score per token.
        guard = _LMS_GUARD if guarded and scoring == "mean" else None
        about = f"{what}: language-model score {_BY[scoring]}, mean over targets"
        yield Outcome(f"{name}_{scoring}", "quality", "points", about, guard=guard)


def _score_rows(name: str, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for scoring in SCORINGS:
        won = wins(table, scoring=scoring)
        for category, of_category in won.groupby("category", sort=False):
            where = table.loc[of_category.index]
            value, outcome = 100 * of_category["stereotype"], f"{name}_{scoring}_{category}"
            yield _rows(outcome, where, value, equal_weights(where["group"]))
            for sign, length in _LONGER.items():
                part = of_category.index[of_category["longer"] == sign]
                yield _rows(f"{outcome}_{length}", table.loc[part], value.loc[part])


def _lms_rows(name: str, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    # The same word can be a target of two categories.
    target = table["category"] + " " + table["group"]
    for scoring in SCORINGS:
        value = 100 * wins(table, scoring=scoring)["language"]
        yield _rows(f"{name}_{scoring}", table, value, equal_weights(target))


def _rows(
    outcome: str, table: pd.DataFrame, value: pd.Series[Any] | np.ndarray, weight: Any = 1.0
) -> pd.DataFrame:
    cluster = table["category"] + " " + table["group"]
    return item_rows(outcome, item=table["id"], cluster=cluster, value=value, weight=weight)
