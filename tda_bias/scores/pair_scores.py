"""The text of a minimal pair that a model prefers, and a set's own score of it.

Each set's own score is as its paper defines it. CrowS-Pairs: per cent of pairs whose stereotypical
sentence is preferred (masked models: by the pseudo-log-likelihood of the words that both sentences
have). WinoBias: here log-odds of the pro-stereotypical over the anti-stereotypical sentence,
because language models resolve no coreference; its paper reports F1 of resolvers. Winogender:
log-odds of the female over the male sentence per occupation, against the share of women in it.
BLiMP: accuracy per paradigm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from tda_bias.config import PairsConfig
from tda_bias.models.language_model import model_record
from tda_bias.models.load import LanguageModel
from tda_bias.pairs.pair import Pair, PairSet
from tda_bias.pairs.published import CROWS, female_shares, gender_of_more, paradigms
from tda_bias.scores.likelihood import Start, TextReader
from tda_bias.scores.stereoset import SCORINGS, Scoring, preferred, scored, text_columns
from tda_bias.scores.texts import Contrast, alike, tokenize
from tda_bias.show.alike import alike_remark, refuse_all_alike
from tda_bias.stats.clusters import FEWEST_CLUSTERS, cluster_mean
from tda_bias.store.cache import OpenCache, no_cache, texts_hash
from tda_bias.store.record import RecordPart, RunRecord
from tda_bias.store.result import Result
from tda_bias.types import InputError, Progress

_SIDES = ("more", "less")
_INTERVALS = [f"{name}{end}" for name in ("preferred", "log_odds") for end in ("", "_low", "_high")]


# -- scores of every set ---------------------------------------------------------------------------


def pair_items(
    model: LanguageModel,
    pairs: PairSet,
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    progress: Progress | None = None,
    cache: OpenCache = no_cache,
) -> pd.DataFrame:
    """Log-probability and number of scored tokens of the two texts of every pair.

    The model is causal, masked or sequence-to-sequence; the rest is as in ``TextReader``.

    Returns:
        One row per reading (see ``TextReader.read``) and pair: ``reading id group
        type cluster more less log_prob_more tokens_more log_prob_less tokens_less``, of which
        ``more`` and ``less`` are the texts. Natural logarithms,
        summed over the scored tokens; NaN where a text has none, or the tokenizer writes both
        texts alike.

    Raises:
        InputError: if there is no pair, or none whose texts the tokenizer writes differently, or
            as ``TextReader.read_saved``.
        ShareDone: as ``TextReader.read_saved``.
    """
    if not pairs.pairs:
        raise InputError("there is no pair to score")
    contrasts = [_contrast(model, pair) for pair in pairs.pairs]
    refuse_all_alike(alike(model, contrasts), len(contrasts), "pair")
    reader = TextReader(model, batch_size, start)
    read = reader.read_saved({"pairs": contrasts}, cache, progress=progress)["pairs"]
    rows = []
    for reading, of_pairs in read.items():
        for pair, texts in zip(pairs.pairs, of_pairs, strict=True):
            row = {"reading": reading, "id": pair.id, "group": pair.group, "type": pair.type}
            row |= {"cluster": pair.unit, **dict(zip(_SIDES, pair.texts(), strict=True))}
            rows.append({**row, **text_columns(texts, _SIDES)})
    return pd.DataFrame(rows)


def _contrast(model: LanguageModel, pair: Pair) -> Contrast:
    # What both texts share, given what differs, is a quantity of masked models.
    shared = pair.scored == "shared" and model.kind != "masked"
    return Contrast(pair.texts(), pair.context, "whole" if shared else pair.scored, pair.source)


def compared(items: pd.DataFrame, *, scoring: Scoring = "sum") -> pd.DataFrame:
    """The comparison of each pair in the first of the readings, by sums or means over tokens.

    Returns:
        Columns ``id type group cluster``; ``log_odds``, more minus less, nats; ``preferred``: 1, 0,
        or 0.5 for a tie; ``longer``: the sign of the difference in scored tokens. NaN where
        undefined.
    """
    items = items[items["reading"] == items["reading"].iloc[0]]
    more, less = (scored(items, side, scoring) for side in _SIDES)
    return items[["id", "type", "group", "cluster"]].assign(
        log_odds=more - less,
        preferred=preferred(more, less),
        longer=np.sign(items["tokens_more"] - items["tokens_less"]),
    )


def scores(items: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Share and log-odds by which the one text is preferred: of all, per type, per group.

    Returns:
        One row per reading, scoring and part (``all``, a type, a group): ``items undefined ties``;
        ``preferred``, per cent of pairs whose ``more`` is preferred, ties one half; ``log_odds``,
        the mean of log P(more) - log P(less) in nats; both with ``_low`` and ``_high``;
        ``interval``: over clusters from five on, else over pairs, and then for these clusters only.
    """
    rows: list[dict[str, Any]] = []
    for reading, scoring, table in _comparisons(items):
        for kind, name, part in _parts(table):
            about = {"reading": reading, "scoring": scoring, "part": kind, "name": name}
            rows.append(about | summary(part, confidence))
    return pd.DataFrame(rows)


def _comparisons(items: pd.DataFrame) -> Iterator[tuple[str, Scoring, pd.DataFrame]]:
    for reading, of_reading in items.groupby("reading", sort=False):
        for scoring in SCORINGS:
            yield str(reading), scoring, compared(of_reading, scoring=scoring)


def _parts(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    yield "all", "all", table
    for kind in ("type", "group"):
        if table[kind].notna().any() and table[kind].nunique() > 1:
            for name, part in table.groupby(kind, sort=False):
                yield kind, str(name), part


def summary(table: pd.DataFrame, confidence: float) -> dict[str, Any]:
    """Share preferred and mean log-odds of a part of ``compared``, with intervals."""
    defined = table[table["log_odds"].notna()]
    units = defined["cluster"].nunique()
    clustered = units >= FEWEST_CLUSTERS
    cluster = defined["cluster"].to_numpy() if clustered else None
    share, odds = (
        cluster_mean(defined[name].to_numpy(float), cluster) for name in ("preferred", "log_odds")
    )
    low, high = share.share_limits(confidence)
    odds_low, odds_high = odds.limits(confidence)
    return {
        "items": len(table),
        "undefined": len(table) - len(defined),
        "ties": int((defined["preferred"] == 0.5).sum()),
        "preferred": 100 * share.mean,
        "preferred_low": 100 * low,
        "preferred_high": 100 * high,
        "log_odds": odds.mean,
        "log_odds_low": odds_low,
        "log_odds_high": odds_high,
        "interval": f"over {units} clusters" if clustered else "over pairs",
    }


def length_split(items: pd.DataFrame) -> pd.DataFrame:
    """Shares of ``more`` preferred where it is the longer, the shorter or an equally long text.

    Returns:
        One row per reading, scoring and ``longer`` (1, 0, -1): ``items preferred``, per cent.
    """
    tables = []
    for reading, scoring, table in _comparisons(items):
        defined = table.dropna(subset=["log_odds"])
        shares = defined.groupby("longer")["preferred"].agg(items="size", preferred="mean")
        percent = shares.reset_index().assign(preferred=lambda t: 100 * t["preferred"])
        tables.append(percent.assign(reading=reading, scoring=scoring))
    return pd.concat(tables, ignore_index=True)


# -- the sets' own scores --------------------------------------------------------------------------


class OfficialRecord(RecordPart):
    """A set's own score.

    Attributes:
        name: What the score is called.
        headline: The number or numbers of the whole set, by name; None where undefined.
        note: What must be said beside them.
    """

    name: str
    headline: dict[str, float | None]
    note: str


def official(
    pairs: PairSet, items: pd.DataFrame, *, confidence: float = 0.95
) -> tuple[pd.DataFrame, OfficialRecord]:
    """The score that a set's own paper defines, from sums of log-probabilities.

    Returns:
        One row per division that the paper has; and what is said of the whole set.
    """
    return _OFFICIAL.get(pairs.name, _own_pairs)(pairs, compared(items), confidence)


_Own = tuple[pd.DataFrame, OfficialRecord]


def _own(name: str, table: pd.DataFrame, headline: dict[str, float], note: str) -> _Own:
    defined = {key: None if np.isnan(value) else value for key, value in headline.items()}
    return table, OfficialRecord(name=name, headline=defined, note=note)


def _crows(pairs: PairSet, table: pd.DataFrame, confidence: float) -> _Own:
    parts = [("all", table)]
    parts += [(str(name), part) for name, part in table.groupby("group", sort=False)]
    rows = []
    for name, part in parts:
        row = {"bias_type": name, **_share(summary(part, confidence), "metric")}
        for direction in ("stereo", "antistereo"):
            row[direction] = 100 * part.loc[part["type"] == direction, "preferred"].mean()
        rows.append(row)
    note = (
        "Per cent of pairs whose stereotypical sentence is preferred; 50 is neutral. The official "
        "script counts a tie as not preferred, here it is one half."
    )
    return _own("CrowS-Pairs metric", pd.DataFrame(rows), {"metric": rows[0]["metric"]}, note)


def _winobias(pairs: PairSet, table: pd.DataFrame, confidence: float) -> _Own:
    gender = {pair.id: gender_of_more(pair) for pair in pairs.pairs}
    table = table.assign(
        pronoun=table["id"].map(gender), even=~table["id"].isin(list(pairs.uneven))
    )
    rows = []
    for kind, of_type in table.groupby("type", sort=False):
        parts = {"all": of_type, "only the pronoun differs": of_type[of_type["even"]]}
        parts |= {
            f"stereotypically {name}": of_type[of_type["pronoun"] == name]
            for name in ("female", "male")
        }
        rows += [
            {"type": str(kind), "pairs": name, **summary(part, confidence)}
            for name, part in parts.items()
        ]
    scores = pd.DataFrame(rows)
    whole = scores[scores["pairs"] == "all"].set_index("type")["log_odds"]
    note = (
        "Log-odds of the pro- over the anti-stereotypical sentence, nats; 0 is neutral. In type 2 "
        "syntax says whom the pronoun means; the pronoun's gender is free in both types."
    )
    if pairs.uneven:
        note += (
            f" {len(pairs.uneven)} pairs of the source differ in other words too; they count in "
            "`all`, as they do elsewhere."
        )
    headline = {f"log_odds_{kind}": float(value) for kind, value in whole.items()}
    return _own("WinoBias log-odds, pro minus anti", scores, headline, note)


def _winogender(pairs: PairSet, table: pd.DataFrame, confidence: float) -> _Own:
    shares = female_shares()
    sign = {p.id: 1.0 if gender_of_more(p) == "female" else -1.0 for p in pairs.pairs}
    female = table["log_odds"] * table["id"].map(sign)
    occupations = table.assign(female=female)[table["type"] == "occupation"]
    per_occupation = (
        occupations.rename(columns={"group": "occupation"})
        .groupby("occupation")["female"]
        .agg(items="size", log_odds_female="mean")
        .reset_index()
    )
    for name in ("bls", "bergsma"):
        per_occupation[f"pct_female_{name}"] = per_occupation["occupation"].map(
            {occupation: values[name] for occupation, values in shares.items()}
        )
    headline = {"log_odds_female": float(per_occupation["log_odds_female"].mean())}
    for name in ("bls", "bergsma"):
        both = per_occupation[["log_odds_female", f"pct_female_{name}"]].dropna().to_numpy()
        varies = len(both) > 2 and np.ptp(both, axis=0).min() > 0
        headline[f"pearson_{name}"] = float(stats.pearsonr(*both.T)[0]) if varies else np.nan
    for kind, part in table.groupby("type", sort=False):
        headline[f"log_odds_{kind}"] = summary(part, confidence)["log_odds"]
    note = (
        "Log-odds of the female over the male sentence, nats, mean over the sentences whose "
        "pronoun means the occupation; Pearson's r with the share of women. log_odds_occupation "
        "and log_odds_participant: of the pronoun of those who hold most of these jobs over the "
        "other, where it means the occupation and where it means somebody else."
    )
    return _own("Winogender per occupation", per_occupation, headline, note)


def _blimp(pairs: PairSet, table: pd.DataFrame, confidence: float) -> _Own:
    known = paradigms()
    rows = []
    for name, part in table.groupby("group", sort=False):
        row = {"paradigm": str(name), "term": part["type"].iloc[0]}
        row |= _share(summary(part, confidence), "accuracy")
        for model in ("gpt2", "txl", "lstm", "ngram"):
            value = known.get(str(name), {}).get(model)
            row[f"published_{model}"] = np.nan if value is None else 100 * float(value)
        rows.append(row)
    scores = pd.DataFrame(rows)
    headline = {"accuracy": float(scores["accuracy"].mean())}
    headline["published_gpt2"] = float(scores["published_gpt2"].mean())
    note = (
        "Per cent of pairs whose grammatical sentence is preferred, mean over paradigms. Published "
        "values are of all 1,000 pairs of a paradigm."
    )
    return _own("BLiMP accuracy", scores, headline, note)


def _own_pairs(pairs: PairSet, table: pd.DataFrame, confidence: float) -> _Own:
    row = summary(table, confidence)
    note = "Per cent of pairs whose `more` is preferred, and log P(more) - log P(less) in nats."
    headline = {name: row[name] for name in ("preferred", "log_odds")}
    return _own(pairs.name, pd.DataFrame([{"pairs": "all", **row}]), headline, note)


def _share(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The share of a summary under the set's own name for it."""
    kept = {key: row[key] for key in ("items", "undefined", "ties")}
    return (
        kept
        | {f"{name}{end}": row[f"preferred{end}"] for end in ("", "_low", "_high")}
        | {"interval": row["interval"]}
    )


_OFFICIAL: dict[str, Callable[[PairSet, pd.DataFrame, float], _Own]] = {
    **dict.fromkeys(CROWS, _crows),
    "winobias": _winobias,
    "winogender": _winogender,
    "blimp": _blimp,
}


# -- one call, one result --------------------------------------------------------------------------


class PairTextsRecord(RecordPart):
    """The texts of a run: how many pairs, and a hash of their token ids."""

    pairs: int
    hash: str


class PairsRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        set: Name of the set.
        start: Whether a start token was put in front of texts.
        official: The set's own score.
        confidence: Coverage of the intervals.
    """

    command: str = "pairs"
    kind: str
    texts: PairTextsRecord
    set: str
    start: str
    official: OfficialRecord
    confidence: float


@dataclass(frozen=True, repr=False)
class PairSetScores(Result):
    """Result of ``pair_set_scores``.

    Attributes:
        items: One row per reading and pair; see ``pair_items``.
        scores: One row per reading, scoring and part; see ``scores``.
        length_split: How often ``more`` is preferred by which text is longer.
        official: One row per division that the set's paper has; see ``official``.
        record: How it came about.
    """

    COMMAND = "pairs"
    RECORD = PairsRecord
    TABLES = (
        (
            "items",
            "items.parquet",
            dict.fromkeys(("id", "group", "reading"), str)
            | dict.fromkeys(("log_prob_more", "log_prob_less"), float)
            | dict.fromkeys(("tokens_more", "tokens_less"), int),
        ),
        (
            "scores",
            "scores.csv",
            dict.fromkeys(("reading", "scoring", "part", "name"), str)
            | dict.fromkeys(("items", "undefined", "ties"), int)
            | dict.fromkeys(_INTERVALS, float),
        ),
        (
            "length_split",
            "length_split.csv",
            dict.fromkeys(("reading", "scoring"), str)
            | dict.fromkeys(("longer", "preferred"), float)
            | {"items": int},
        ),
        ("official", "official.csv", {}),
    )
    SHOWN = (("the set's own score", "official"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    official: pd.DataFrame
    record: PairsRecord


def pair_set_scores(
    model: LanguageModel,
    pairs: PairSet,
    *,
    config: PairsConfig | None = None,
    progress: Progress | None = None,
    cache: OpenCache = no_cache,
) -> PairSetScores:
    """Score a model on a set of minimal pairs; see ``pair_items`` for what is read.

    Raises:
        InputError: if there is no pair, the model has no language-model head or is of another kind,
            a text is too long for it, or ``cache`` holds readings of something else.
        ShareDone: if the parts are shared by several processes and another one gathers.
    """
    config = config or PairsConfig()
    start, confidence = config.start, config.confidence
    items = pair_items(
        model, pairs, start=start, batch_size=config.batch_size, progress=progress, cache=cache
    )
    by_division, own = official(pairs, items, confidence=confidence)
    contrasts = [Contrast(pair.texts(), pair.context) for pair in pairs.pairs]
    ids = [contrast.ids for contrast in tokenize(model, contrasts)]
    remarks = alike_remark(alike(model, contrasts), len(contrasts), "pair")
    remarks += model.special_remarks([text for own in contrasts for text in own.texts])
    return PairSetScores(
        items=items,
        scores=scores(items, confidence=confidence),
        length_split=length_split(items),
        official=by_division,
        record=PairsRecord(
            model=model_record(model, weights=model.weight_hash()),
            data=pairs.record,
            kind=model.kind,
            remarks=remarks,
            texts=PairTextsRecord(pairs=len(pairs.pairs), hash=texts_hash(ids)),
            set=pairs.name,
            start=start,
            official=own,
            confidence=confidence,
        ),
    )
