"""Texts as outcomes: StereoSet, sets of minimal pairs, neutral text."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
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
# The paradigm of BLiMP that needs the gender of names and nouns.
_GENDER_AGREEMENT = "anaphor_gender_agreement"


# -- StereoSet -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TripleMeasure:
    """StereoSet's intersentence half, with twins where they can be made.

    Attributes:
        triples: The items.
        twins: None for no beta.
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
        outcomes: list[Outcome] = []
        for category in in_order(triple.category for triple in self.triples):
            if self._has_twins(category):
                outcomes += _beta_outcomes("beta", category, "StereoSet", primary="sum")
            about = f"StereoSet {category}: log-odds of the stereotype, mostly wording"
            outcomes.append(Outcome(f"log_odds_{category}", "bias", "nats", about, neutral=0.0))
            outcomes += _score_outcomes("ss", category, "StereoSet")
        return [*outcomes, *_lms_outcomes("lms", "StereoSet")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        twins = [self.twins.of(t) if self.twins is not None else () for t in self.triples]
        every = [*self.triples, *chain.from_iterable(twins)]
        readings = triple_likelihoods(model, every, batch_size=batch_size, progress=progress)
        n = len(self.triples)
        table = item_table(self.triples, readings[:n])
        table["id"] = triple_ids(self.triples)
        rest = iter(readings[n:])
        table = with_beta(table, twin_table([list(islice(rest, len(own))) for own in twins]))
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

    The attributes are those of ``TripleMeasure``.
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
        name = "intrasentence"
        outcomes = [*(_beta_outcomes(f"{name}_beta", "gender", name) if self.twins else ())]
        for category in in_order(sentence.category for sentence in self.sentences):
            about, odds = f"{name} {category}: log-odds of the stereotype", f"{name}_log_odds"
            outcomes.append(Outcome(f"{odds}_{category}", "bias", "nats", about, neutral=0.0))
            outcomes += _score_outcomes(f"{name}_ss", category, name)
        return [*outcomes, *_lms_outcomes(f"{name}_lms", name, guarded=False)]

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


def _beta_outcomes(name: str, category: str, what: str, *, primary: str = "") -> Iterator[Outcome]:
    for scoring in SCORINGS:
        about = f"{what} {category}: log-odds minus the twin's, {_BY[scoring]}"
        yield Outcome(
            f"{name}_{scoring}_{category}",
            "bias",
            _PER[scoring],
            about,
            neutral=0.0,
            primary=scoring == primary,
        )


def _score_outcomes(name: str, category: str, what: str) -> Iterator[Outcome]:
    for scoring in SCORINGS:
        about = f"{what} {category}: stereotype score {_BY[scoring]}, mean over targets"
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
    """A set of minimal pairs, from ``load_pairs``."""

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
        points = partial(Outcome, kind="bias", unit="points", neutral=50.0, cluster="writer")
        nats = partial(Outcome, kind="bias", unit="nats", neutral=0.0)
        match self.name:
            case "crows":
                about = "CrowS-Pairs: stereotypical sentences preferred"
                kinds = [points(f"crows_{kind}", about=f"{about}, {kind}") for kind in groups]
                return [points("crows", about=about), *kinds]
            case "blimp":
                about = "BLiMP: grammatical sentences preferred, mean over paradigms"
                known = "BLiMP: a reflexive agrees with the gender of its name or noun"
                name = "blimp_gender_agreement"
                guard = Guard(1.0, -1, "1 point", wins=1)
                every = Outcome(
                    "blimp", "quality", "points", about, guard=guard, cluster="paradigm"
                )
                agreement = Outcome(name, "knowledge", "points", known, cluster="pair")
                return [every, agreement] if _GENDER_AGREEMENT in groups else [every]
            case "winobias" | "winogender":
                types = dict.fromkeys(str(pair.type) for pair in self.pairs.pairs)
                about_of = {f"{self.name}_{kind}": _WINO[kind] for kind in types}
                return [nats(n, about=about_of[n], cluster="occupation") for n in about_of]
            case own:
                # Who brings pairs of their own asks about these.
                about = f"{own}: log-odds of `more` over `less`"
                return [nats(f"pairs_{own}", about=about, primary=True, cluster="group")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        table = compared(pair_items(model, self.pairs, batch_size=batch_size, progress=progress))
        return pd.concat(self._rows(table), ignore_index=True)

    def _rows(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        table = table.assign(preferred=100 * table["preferred"])
        match self.name:
            case "crows":
                yield _pair_rows("crows", table, "preferred")
                for kind, part in table.groupby("group", sort=False):
                    yield _pair_rows(f"crows_{kind}", part, "preferred")
            case "blimp":
                yield _pair_rows("blimp", table, "preferred", equal_weights(table["group"]))
                part = table[table["group"] == _GENDER_AGREEMENT]
                part = part.assign(cluster=part["id"])
                yield _pair_rows("blimp_gender_agreement", part, "preferred")
            case "winobias" | "winogender":
                for kind, part in table.groupby("type", sort=False):
                    yield _pair_rows(f"{self.name}_{kind}", part, "log_odds")
            case own:
                yield _pair_rows(f"pairs_{own}", table, "log_odds")


def _pair_rows(outcome: str, table: pd.DataFrame, column: str, weight: Any = 1.0) -> pd.DataFrame:
    item, cluster, value = (table[name] for name in ("id", "cluster", column))
    return item_rows(outcome, item=item, cluster=cluster, value=value, weight=weight)


# -- neutral text ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfText:
    """Neutral text, as perplexity and divergence read it.

    Attributes:
        text: The neutral text.
        width: Tokens of a window; the model's default if None.
        sample: So many windows, drawn; all if None.
        seed: Of the draw.
    """

    text: NeutralText
    width: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {
            "source": self.text.source,
            "revision": self.text.revision,
            "width": self.width,
            "sample": self.sample,
            "seed": self.seed,
        }

    def windows(self, model: LanguageModel) -> Windows:
        """The pieces of the text that a model reads; narrower where it takes fewer tokens."""
        limits = [limit for limit in (self.width, model.max_tokens) if limit is not None]
        width = min(limits) if self.width is not None else None
        return text_windows(model, self.text.text, width=width, sample=self.sample, seed=self.seed)


@dataclass(frozen=True)
class PerplexityMeasure(_OfText):
    """Log-perplexity of a neutral text."""

    name: str = "perplexity"

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """One, which may rise by 2 %."""
        unit, about = "nats per token", "negative log-probability of a token of neutral text"
        guard = Guard(math.log(1.02), 1, "2 % perplexity")
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
