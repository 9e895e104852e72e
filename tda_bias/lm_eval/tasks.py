"""Documents and metrics of the tasks, which the YAML files beside this one name.

A document is one context with its continuations. A triple and each of its twins are documents of
their own, because their contexts differ; the metrics put them together again. lm-eval gives sums of
log-probabilities, so every number here is that of ``sum`` scoring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.pairs.load import load_pairs
from tda_bias.scores.beta import TwinSets
from tda_bias.scores.stereoset import icat as icat_of
from tda_bias.scores.stereoset import log_odds as odds_of
from tda_bias.scores.stereoset import preferred as wins_of
from tda_bias.scores.stereoset import wins
from tda_bias.stats.clusters import FEWEST_CLUSTERS, cluster_mean
from tda_bias.store.files import json_objects, read_text
from tda_bias.triples import load_sentence_triples
from tda_bias.types import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from tda_bias.pairs.pair import PairSet

# What a document says of its texts to the metrics.
_ABOUT = ("item", "twin", "category", "target")


# -- documents -------------------------------------------------------------------------------------


def stereoset_intersentence(data: str | None = None, **_: Any) -> dict[str, Dataset]:
    """Triples with their twins, as ``tdabias twins --as lm-eval`` writes them."""
    path = _given(data, "what `tdabias twins --as lm-eval` wrote")
    text = read_text(path, setting="data", named=())
    return _documents([row for _, row in json_objects(text, path)])


def stereoset_intrasentence(data: str | None = None, **_: Any) -> dict[str, Dataset]:
    """Whole sentences with their twins: StereoSet's own form or JSON Lines; else the hub's."""
    from tda_bias.scores.stereoset_scores import sentence_twins

    sentences = load_sentence_triples(data or "stereoset")[0]
    twins = sentence_twins(sentences)
    rows = []
    for number, sentence in enumerate(sentences):
        about = {"item": number, "category": sentence.category, "target": sentence.group}
        rows.append({**about, "twin": False, "context": "", "texts": list(sentence.texts())})
        if twin := twins.get(sentence.id):
            # Only originals are compared with the unrelated text.
            rows.append({**about, "twin": True, "context": "", "texts": list(twin.texts()[:2])})
    return _documents(rows)


def winobias(**_: Any) -> dict[str, Dataset]:
    """Pro- against anti-stereotypical sentences of WinoBias's development half, which ships."""
    return _of_pairs(load_pairs("winobias"))


def winogender(**_: Any) -> dict[str, Dataset]:
    """Sentences with the pronoun of those who hold most of these jobs, against the other one."""
    return _of_pairs(load_pairs("winogender"))


def own_pairs(data: str | None = None, **_: Any) -> dict[str, Dataset]:
    """Pairs of a file that ``tdabias pairs`` reads."""
    return _of_pairs(load_pairs(_given(data, "pairs as `tdabias pairs` reads them")))


def _of_pairs(pairs: PairSet) -> dict[str, Dataset]:
    rows = []
    for number, pair in enumerate(pairs.pairs):
        context = (pair.context or "").strip()
        # The words of a continuation stand after one space.
        before = " " if context else ""
        texts = [before + text.strip() for text in (pair.more, pair.less)]
        rows.append(
            {"item": number, "twin": False, "category": pairs.name,
             "target": pair.unit, "context": context, "texts": texts}
        )  # fmt: skip
    return _documents(rows)


def _documents(rows: Sequence[Mapping[str, Any]]) -> dict[str, Dataset]:
    from datasets import Dataset

    return {"test": Dataset.from_list(list(rows))}


def _given(data: str | None, what: str) -> str:
    if data is None:
        raise InputError(f"""`data` is missing: give --metadata '{{"data": "FILE"}}', {what}""")
    return data


# -- metrics ---------------------------------------------------------------------------------------

Reading = Mapping[str, Any]
# Of every text its log-probability, and whether it is what the model would write.
Results = Sequence[tuple[float, bool]]


def read(doc: Mapping[str, Any], results: Results) -> Reading:
    """The texts of a document, what they are about, with their log-probabilities."""
    about = {name: doc[name] for name in _ABOUT}
    return about | {"log_prob": [float(value) for value, _ in results]}


def of_triples(doc: Mapping[str, Any], results: Results) -> dict[str, Reading]:
    """Give every metric of triples the document's reading."""
    return dict.fromkeys(_OF_TRIPLES, read(doc, results))


def of_pairs(doc: Mapping[str, Any], results: Results) -> dict[str, Reading]:
    """Give every metric of pairs the document's reading."""
    return dict.fromkeys(("preferred", "preferred_stderr", *_LOG_ODDS), read(doc, results))


# A standard error follows its metric, beside which lm-eval has written "N/A" by then.
_LOG_ODDS = ("log_odds", "log_odds_stderr")
_OF_TRIPLES = (
    "ss", "ss_stderr", "lms", "lms_stderr", "icat", *_LOG_ODDS, "beta", "beta_stderr",
)  # fmt: skip


def ss(readings: Sequence[Reading]) -> float:
    """Stereotype score: mean over terms of the percentage of stereotypes preferred."""
    return _official(readings)[1]


def lms(readings: Sequence[Reading]) -> float:
    """Language-model score: mean over terms of the percentage of comparisons won."""
    return _official(readings)[0]


def icat(readings: Sequence[Reading]) -> float:
    """Idealised CAT score."""
    return _official(readings)[2]


def log_odds(readings: Sequence[Reading]) -> float:
    """Mean over items of log P(stereotype) - log P(anti-stereotype), in nats."""
    return float(odds_of(_items(readings), "sum").mean())


def preferred(readings: Sequence[Reading]) -> float:
    """Percentage of pairs whose first text is preferred, a tie as one half."""
    return float(_preferred(_items(readings)).mean())


def beta(readings: Sequence[Reading]) -> float:
    """Mean over items with twins of the target effect, in nats; NaN without twins."""
    values = _beta(readings)[0]
    return float(values.mean()) if len(values) else float("nan")


def ss_stderr(readings: Sequence[Reading]) -> float:
    """Standard error of ``ss`` over terms."""
    return _of_terms(readings, "stereotype")


def lms_stderr(readings: Sequence[Reading]) -> float:
    """Standard error of ``lms`` over terms."""
    return _of_terms(readings, "language")


def log_odds_stderr(readings: Sequence[Reading]) -> float:
    """Standard error of ``log_odds`` over targets with all their items."""
    items = _items(readings)
    return standard_error(odds_of(items, "sum"), _targets(items))


def preferred_stderr(readings: Sequence[Reading]) -> float:
    """Standard error of ``preferred`` over targets with all their items."""
    items = _items(readings)
    return standard_error(_preferred(items), _targets(items))


def beta_stderr(readings: Sequence[Reading]) -> float:
    """Standard error of ``beta`` over targets with all their items."""
    return standard_error(*_beta(readings))


def standard_error(values: Float[np.ndarray, " item"], target: Sequence[Any]) -> float:
    """Standard error of a mean over whole targets, cluster-robust.

    Returns:
        NaN for fewer than ``FEWEST_CLUSTERS`` targets.
    """
    if len(set(target)) < FEWEST_CLUSTERS:
        return float("nan")
    return cluster_mean(values, target).error


def _items(readings: Sequence[Reading], *, twins: bool = False) -> pd.DataFrame:
    """One row per triple, or per twin, in the columns that ``tda_bias.scores`` reads."""
    rows = [
        {**{name: reading[name] for name in _ABOUT if name != "target"}, "group": reading["target"]}
        | {f"log_prob_{role}": value
           for role, value in zip("sau", reading["log_prob"], strict=False)}
        | {f"tokens_{role}": 1 for role in "sau"}
        for reading in readings
        if reading["twin"] == twins
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _preferred(items: pd.DataFrame) -> Float[np.ndarray, " item"]:
    return np.asarray(100 * wins_of(items["log_prob_s"], items["log_prob_a"]))


def _targets(items: pd.DataFrame) -> list[str]:
    """Names of what is resampled; the same word in two categories is two targets."""
    return [
        f"{category} {group}"
        for category, group in zip(items["category"], items["group"], strict=True)
    ]


def _official(readings: Sequence[Reading]) -> tuple[float, float, float]:
    items = _items(readings)
    won = wins(items).groupby(_targets(items))
    lms, ss = (100 * float(won[name].mean().mean()) for name in ("language", "stereotype"))
    return lms, ss, icat_of(lms, ss)


def _of_terms(readings: Sequence[Reading], name: str) -> float:
    items = _items(readings)
    means = (100 * wins(items)[name]).groupby(_targets(items)).mean()
    return standard_error(means.to_numpy(float), list(means.index))


def _beta(readings: Sequence[Reading]) -> tuple[Float[np.ndarray, " item"], list[str]]:
    """Beta of every item that has twins, and its target."""
    items, twins = _items(readings), _items(readings, twins=True)
    if twins.empty:
        return np.zeros(0), []
    row = {item: number for number, item in enumerate(items["item"])}
    twins = twins.assign(item=twins["item"].map(row))
    values = TwinSets.of(items, twins, "sum").contrasts[:, 0]
    known = np.isfinite(values)
    return values[known], [name for name, has in zip(_targets(items), known, strict=True) if has]
