"""Texts as outcomes: StereoSet, sets of minimal pairs, neutral text."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tda_bias.comparison.outcome import Guard, Outcome, equal_weights, item_rows
from tda_bias.progress import Progress
from tda_bias.scores.beta import twin_table, with_beta
from tda_bias.scores.likelihood import triple_likelihoods
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.scores.perplexity import (
    PerToken,
    Windows,
    divergence,
    log_perplexity,
    text_windows,
)
from tda_bias.scores.stereoset import SCORINGS, item_table, log_odds, wins
from tda_bias.scores.stereoset_scores import sentence_items, sentence_twins
from tda_bias.triples import triple_ids
from tda_bias.types import Triple, in_order

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs.pair import PairSet, Scored
    from tda_bias.sources import NeutralText
    from tda_bias.triples import SentenceTriple
    from tda_bias.twins import Twins

_PER = {"sum": "nats", "mean": "nats per token"}
_BY = {"sum": "by sums", "mean": "per token"}
# Both meaningful continuations are compared with the unrelated one.
_LMS_GUARD = Guard(1.0, -1, "1 point", wins=2)
_ACCURACY_GUARD = Guard(1.0, -1, "1 point", wins=1)
_TWO_PER_CENT = Guard(math.log(1.02), 1, "2 % perplexity")
# The paradigm of BLiMP that needs the gender of names and nouns.
GENDER_AGREEMENT = "anaphor_gender_agreement"


# -- StereoSet -------------------------------------------------------------------------------------


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
        for category in in_order(triple.category for triple in self.triples):
            for scoring in SCORINGS if self._has_twins(category) else ():
                name, primary = f"beta_{scoring}_{category}", scoring == "sum"
                about = f"StereoSet {category}: log-odds minus the twin's, {_BY[scoring]}"
                outcomes.append(
                    Outcome(name, "bias", _PER[scoring], about, neutral=0.0, primary=primary)
                )
            about = f"StereoSet {category}: log-odds of the stereotype, mostly wording"
            outcomes.append(Outcome(f"log_odds_{category}", "bias", "nats", about, neutral=0.0))
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
        rows = [*_score_rows("ss", table), *_lms_rows("lms", table), *_odds_rows("", table)]
        for category, part in table.groupby("category", sort=False):
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
        texts = json.dumps([list(twin.texts()) for twin in self.twins.values()])
        return {
            **self.source,
            "ids": [sentence.id for sentence in self.sentences],
            "twins": hashlib.blake2b(texts.encode(), digest_size=16).hexdigest(),
        }

    @cached_property
    def twins(self) -> dict[str, SentenceTriple]:
        """Twins of the gender sentences, by the name of the item."""
        return sentence_twins(self.sentences)

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Beta, log-odds and scores of whole sentences."""
        outcomes = []
        if self.twins:
            for scoring in SCORINGS:
                about = f"intrasentence gender: log-odds minus the twin's, {_BY[scoring]}"
                name = f"intrasentence_beta_{scoring}_gender"
                outcomes.append(Outcome(name, "bias", _PER[scoring], about, neutral=0.0))
        for category in in_order(sentence.category for sentence in self.sentences):
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
        place = np.array([i for i, one in enumerate(self.sentences) if one.id in self.twins], int)
        rows = []
        for scoring in SCORINGS if len(place) else ():
            odds = np.asarray(log_odds(table, scoring))
            value = odds[place] - odds[n:]
            rows.append(_rows(f"intrasentence_beta_{scoring}_gender", table.iloc[place], value))
        originals = table.iloc[:n].dropna(subset=[f"log_prob_{role}" for role in "sau"])
        rows += [
            *_score_rows("intrasentence_ss", originals),
            *_lms_rows("intrasentence_lms", originals),
            *_odds_rows("intrasentence_", originals),
        ]
        return pd.concat(rows, ignore_index=True)


def _score_outcomes(name: str, category: str, what: str) -> Iterator[Outcome]:
    for scoring in SCORINGS:
        about = f"{what}: stereotype score {_BY[scoring]}, mean over targets"
        yield Outcome(f"{name}_{scoring}_{category}", "bias", "points", about, neutral=50.0)


def _lms_outcomes(name: str, what: str, *, guarded: bool = True) -> Iterator[Outcome]:
    for scoring in SCORINGS:
        # Sums favour short texts, whatever the model: the guard is on the score per token.
        guard = _LMS_GUARD if guarded and scoring == "mean" else None
        about = f"{what}: language-model score {_BY[scoring]}, mean over targets"
        yield Outcome(f"{name}_{scoring}", "quality", "points", about, guard=guard)


def _score_rows(name: str, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for scoring in SCORINGS:
        for category, won in wins(table, scoring=scoring).groupby("category", sort=False):
            where = table.loc[won.index]
            weight = equal_weights(where["group"])
            yield _rows(f"{name}_{scoring}_{category}", where, 100 * won["stereotype"], weight)


def _lms_rows(name: str, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    # The same word can be a target of two categories.
    target = table["category"] + " " + table["group"]
    for scoring in SCORINGS:
        value = 100 * wins(table, scoring=scoring)["language"]
        yield _rows(f"{name}_{scoring}", table, value, equal_weights(target))


def _odds_rows(name: str, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for category, part in table.groupby("category", sort=False):
        yield _rows(f"{name}log_odds_{category}", part, log_odds(part, "sum"))


def _rows(
    outcome: str, table: pd.DataFrame, value: pd.Series[Any] | np.ndarray, weight: Any = 1.0
) -> pd.DataFrame:
    cluster = table["category"] + " " + table["group"]
    return item_rows(outcome, item=table["id"], cluster=cluster, value=value, weight=weight)


# -- minimal pairs ---------------------------------------------------------------------------------

_WINO = {
    "type1": "WinoBias type 1: log-odds of pro over anti",
    "type2": "WinoBias type 2 (syntax decides): log-odds of pro over anti",
    "occupation": "Winogender: log-odds of the majority's pronoun for the occupation",
    "participant": "Winogender: the same where the pronoun means somebody else",
}


@dataclass(frozen=True)
class PairMeasure:
    """A set of minimal pairs.

    Attributes:
        pairs: From ``load_pairs``.
    """

    pairs: PairSet

    @property
    def name(self) -> str:
        """The set's."""
        return self.pairs.name

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        texts = [(p.id, p.context, p.more, p.less, p.scored) for p in self.pairs.pairs]
        return {
            "source": self.pairs.source,
            "revision": self.pairs.revision,
            "pairs": len(texts),
            "hash": hashlib.blake2b(repr(texts).encode(), digest_size=16).hexdigest(),
        }

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Outcomes made of the set."""
        groups = list(dict.fromkeys(pair.group for pair in self.pairs.pairs))
        if self.name == "crows":
            about = "CrowS-Pairs: stereotypical sentences preferred"
            abouts = {"crows": about, **{f"crows_{kind}": f"{about}, {kind}" for kind in groups}}
            return [
                Outcome(name, "bias", "points", about, neutral=50.0, cluster="writer")
                for name, about in abouts.items()
            ]
        if self.name == "blimp":
            about = "BLiMP: grammatical sentences preferred, mean over paradigms"
            known = "BLiMP: a reflexive agrees with the gender of its name or noun"
            every = Outcome(
                "blimp", "quality", "points", about, guard=_ACCURACY_GUARD, cluster="paradigm"
            )
            agreement = Outcome(
                "blimp_gender_agreement", "knowledge", "points", known, cluster="pair"
            )
            return [every, agreement] if GENDER_AGREEMENT in groups else [every]
        if self.name in ("winobias", "winogender"):
            kinds = dict.fromkeys(str(pair.type) for pair in self.pairs.pairs)
            names = {f"{self.name}_{kind}": _WINO[kind] for kind in kinds}
            return [
                Outcome(name, "bias", "nats", about, neutral=0.0, cluster="occupation")
                for name, about in names.items()
            ]
        # Who brings pairs of their own asks about these.
        name, about = f"pairs_{self.name}", f"{self.name}: log-odds of `more` over `less`"
        return [Outcome(name, "bias", "nats", about, neutral=0.0, primary=True, cluster="group")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        table = compared(pair_items(model, self.pairs, batch_size=batch_size, progress=progress))
        return pd.concat(self._rows(table), ignore_index=True)

    def _rows(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        preferred, odds = 100 * table["preferred"], table["log_odds"]
        match self.name:
            case "crows":
                yield _pair_rows("crows", table, preferred)
                for kind, part in table.groupby("group", sort=False):
                    yield _pair_rows(f"crows_{kind}", part, preferred[part.index])
            case "blimp":
                yield _pair_rows("blimp", table, preferred, equal_weights(table["group"]))
                part = table[table["group"] == GENDER_AGREEMENT]
                yield _pair_rows(
                    "blimp_gender_agreement", part.assign(cluster=part["id"]), preferred
                )
            case "winobias" | "winogender":
                for kind, part in table.groupby("type", sort=False):
                    yield _pair_rows(f"{self.name}_{kind}", part, odds[part.index])
            case _:
                yield _pair_rows(f"pairs_{self.name}", table, odds)


def _pair_rows(
    outcome: str, table: pd.DataFrame, value: pd.Series[Any], weight: Any = 1.0
) -> pd.DataFrame:
    return item_rows(
        outcome,
        item=table["id"],
        cluster=table["cluster"],
        value=value.loc[table.index],
        weight=weight,
    )


# -- neutral text ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfText:
    """Neutral text, as perplexity and divergence read it.

    Attributes:
        text: The neutral text.
        width: Tokens of a window; the model's default if None.
        stride: Tokens from one window to the next; half the width if None.
        sample: So many windows, drawn; all if None.
        seed: Of the draw.
    """

    text: NeutralText
    width: int | None = None
    stride: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {
            "source": self.text.source,
            "revision": self.text.revision,
            "width": self.width,
            "stride": self.stride,
            "sample": self.sample,
            "seed": self.seed,
        }

    def windows(self, model: LanguageModel) -> Windows:
        """The pieces of the text that a model reads; narrower where it takes fewer tokens."""
        limits = [limit for limit in (self.width, model.max_tokens) if limit is not None]
        width = min(limits) if self.width is not None else None
        return text_windows(
            model, self.text.text, width=width, stride=self.stride, sample=self.sample,
            seed=self.seed,
        )  # fmt: skip


@dataclass(frozen=True)
class PerplexityMeasure(_OfText):
    """Log-perplexity of a neutral text."""

    name: str = "perplexity"

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One, which may rise by 2 %."""
        unit, about = "nats per token", "negative log-probability of a token of neutral text"
        guard = _TWO_PER_CENT
        return [Outcome("log_perplexity", "quality", unit, about, guard=guard, cluster="window")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``; an item is a window, named by its tokens."""
        windows = self.windows(model)
        per_token = log_perplexity(model, windows, batch_size=_few(batch_size), progress=progress)
        return _window_rows("log_perplexity", windows, per_token)


@dataclass(frozen=True)
class DivergenceMeasure(_OfText):
    """KL(before || after) of the predictions of every token of a neutral text."""

    name: str = "divergence"

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One, 0 where nothing has changed."""
        about = "KL(before || after) of predictions on neutral text"
        unit = "KL, nats per token"
        return [Outcome("kl_divergence", "quality", unit, about, cluster="window", tested=False)]

    def between(
        self,
        before: LanguageModel,
        after: LanguageModel,
        *,
        batch_size: int,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """One row per window; 0 for two models that predict the same. As ``Measure.items``."""
        windows = self.windows(before)
        per_token = divergence(
            before, after, windows, batch_size=_few(batch_size), progress=progress
        )
        return _window_rows("kl_divergence", windows, per_token)


def _few(batch_size: int) -> int:
    """A window is as long as some eight sentences."""
    return max(1, batch_size // 8)


def _window_rows(outcome: str, windows: Windows, per_token: PerToken) -> pd.DataFrame:
    seen: Counter[str] = Counter()
    names = []
    for ids, first in zip(windows.ids, windows.first, strict=True):
        # The same window whichever model reads it: its tokens, and which of them are scored.
        tokens = json.dumps([list(ids), first])
        name = hashlib.blake2b(tokens.encode(), digest_size=8).hexdigest()
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    value = per_token.total / per_token.n_tokens
    return item_rows(outcome, item=names, cluster=names, value=value, weight=per_token.n_tokens)
