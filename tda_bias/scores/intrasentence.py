"""StereoSet's intrasentence half: whole sentences, and only the words in which they differ.

Whole sentences are what StereoSet's authors score with causal models, the differing words what they
score with masked ones; both are given for either. Their causal script puts the model's start token
in front of every sentence (``start="bos"``) and averages over tokens (scoring ``mean``).

Scores that others have published per item are read here too: where only the scores are known, they
are compared as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.models.load import LanguageModel
from tda_bias.pairs.pair import Scored, words
from tda_bias.pairs.stereoset import SentenceTriple
from tda_bias.progress import Progress
from tda_bias.runs.cache import Store, texts_hash
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import counted
from tda_bias.scores.stereoset import length_split, scores
from tda_bias.scores.stereoset_scores import SCORE_COLUMNS, SPLIT_COLUMNS, ScoredTextsRecord
from tda_bias.scores.text_likelihood import (
    Contrast,
    Start,
    TokenScores,
    tokenize,
)
from tda_bias.scores.text_parts import TextReader
from tda_bias.types import InputError

SCORED: tuple[Scored, ...] = ("whole", "difference")
_ROLES = ("s", "a", "u")
_PUBLISHED = ("category", "target", "stereotype", "anti_stereotype", "unrelated")


@dataclass(frozen=True)
class SentenceScores:
    """Result of ``sentence_scores``.

    Attributes:
        items: One row per reading, scored words and item: ``reading scored id category group
            source``, ``log_prob_`` and ``tokens_`` of the three sentences; NaN where no token of a
            sentence is scored.
        scores: As ``stereoset.scores``, with ``reading scored`` and ``undefined``: items left out
            because no token of a sentence is scored.
        length_split: As ``stereoset.length_split``, with ``reading scored``.
        texts_hash: Of the token ids.
    """

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    texts_hash: str


def sentence_scores(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    store: Store | None = None,
) -> SentenceScores:
    """Stereotype, language-model and idealised CAT scores of StereoSet's intrasentence half.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        sentences: From ``load_sentence_triples``.
        batch_size: Texts per forward pass.
        start: As in ``text_log_probs``.
        share_prefix: As in ``text_log_probs``.
        n_resamples: Bootstrap resamples of the intervals.
        confidence: Their coverage.
        seed: Of the resamples.
        progress: Called with finished items and all, twice as many as there are sentences.
        store: As in ``text_parts.TextReader``.

    Raises:
        InputError: if there is no item, or as ``TextReader.read``.
        ShareDone: as ``TextReader.read``.
    """
    if not sentences:
        raise InputError("there is no item to score")
    items = sentence_items(
        model,
        sentences,
        batch_size=batch_size,
        start=start,
        share_prefix=share_prefix,
        progress=progress,
        store=store,
    )
    drawn: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
    tables: list[pd.DataFrame] = []
    splits: list[pd.DataFrame] = []
    for (reading, scored), part in items.groupby(["reading", "scored"], sort=False):
        about = {"reading": str(reading), "scored": str(scored)}
        defined = part.dropna(subset=[f"log_prob_{role}" for role in _ROLES])
        if defined.empty:
            continue
        undefined = len(part) - len(defined)
        tables.append(scores(defined, **drawn).assign(**about, undefined=undefined))
        splits.append(length_split(defined).assign(**about))
    if not tables:
        raise InputError("no item has a token that can be scored")
    ids = [contrast.ids for contrast in tokenize(model, [Contrast(s.texts()) for s in sentences])]
    return SentenceScores(
        items=items,
        scores=pd.concat(tables, ignore_index=True),
        length_split=pd.concat(splits, ignore_index=True),
        texts_hash=texts_hash(ids),
    )


def sentence_items(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    which: Sequence[Scored] = SCORED,
    progress: Progress | None = None,
    store: Store | None = None,
) -> pd.DataFrame:
    """The items of ``SentenceScores``; ``which`` words are scored, one after the other."""
    reader = TextReader(model, batch_size, start, share_prefix, store, progress)
    read = reader.read(
        {
            f"{scored} of sentences": [
                Contrast(sentence.texts(), None, scored, sentence.source) for sentence in sentences
            ]
            for scored in which
        }
    )
    tables = []
    for scored, readings in zip(which, read.values(), strict=True):
        for reading, values in readings.items():
            table = _item_table(sentences, values)
            table.insert(0, "scored", scored)
            table.insert(0, "reading", reading)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _item_table(sentences: Sequence[SentenceTriple], values: Sequence[TokenScores]) -> pd.DataFrame:
    rows = []
    for sentence, texts in zip(sentences, values, strict=True):
        row: dict[str, Any] = {
            "id": sentence.id,
            "category": sentence.category,
            "group": sentence.group,
        }
        row["source"] = sentence.source
        for role, tokens in zip(_ROLES, texts, strict=True):
            row[f"log_prob_{role}"] = float(tokens.sum()) if len(tokens) else np.nan
            row[f"tokens_{role}"] = len(tokens)
        rows.append(row)
    return pd.DataFrame(rows)


# -- published items -------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedScores:
    """Scores of a model from what somebody published per item.

    Attributes:
        scores: As ``stereoset.scores``; ``scoring`` is ``published``.
        length_split: As ``stereoset.length_split``, by words; empty without texts.
    """

    scores: pd.DataFrame
    length_split: pd.DataFrame


def read_published(path: str | Path, *, model: str | None = None) -> pd.DataFrame:
    """A table of published scores per item, of one model.

    Args:
        path: A CSV with the columns ``category target stereotype anti_stereotype unrelated`` and,
            where it holds several models, ``model``. Larger scores are more probable texts.
        model: Which model; may be left out where there is one.

    Raises:
        InputError: if the file cannot be read, lacks a column, or does not hold the model.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"`published` {path} cannot be read as a table ({error})") from None
    missing = [name for name in _PUBLISHED if name not in table]
    if missing:
        raise InputError(
            f"`published` {path} has no column `{missing[0]}`; it needs {', '.join(_PUBLISHED)}"
        )
    names = list(table["model"].unique()) if "model" in table else []
    if model is None and len(names) > 1:
        raise InputError(f"`published` {path} holds several models; choose of {', '.join(names)}")
    if model is not None and names:
        if model not in names:
            raise InputError(f"`model` must be one of {', '.join(names)} in {path}; got {model!r}")
        table = table[table["model"] == model]
    return table.reset_index(drop=True)


def published_scores(
    table: pd.DataFrame,
    *,
    texts: Mapping[Any, tuple[str, str, str]] | None = None,
    key: str = "triple",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> PublishedScores:
    """StereoSet's scores and the length split from published scores of items.

    Args:
        table: From ``read_published``.
        texts: The three texts of an item by what ``key`` says of it; with them, lengths are counted
            in words.
        key: The column that names an item.
        n_resamples: Bootstrap resamples of the intervals.
        confidence: Their coverage.
        seed: Of the resamples.

    Raises:
        InputError: if an item's texts are not given.
    """
    items = pd.DataFrame({"category": table["category"], "group": table["target"]})
    for role, name in zip(_ROLES, _PUBLISHED[2:], strict=True):
        # Scores are compared, never divided by these counts.
        items[f"log_prob_{role}"] = table[name].to_numpy(float)
        items[f"tokens_{role}"] = 1
    if texts is not None:
        if key not in table:
            raise InputError(f"the published table has no column `{key}` to find its texts by")
        unknown = [value for value in table[key] if value not in texts]
        if unknown:
            raise InputError(f"the published item {unknown[0]!r} is not among the texts")
        for place, role in enumerate(_ROLES):
            items[f"tokens_{role}"] = [len(words(texts[value][place])) for value in table[key]]
    scored = scores(items, n_resamples=n_resamples, confidence=confidence, seed=seed)
    split = length_split(items) if texts is not None else pd.DataFrame()
    return PublishedScores(_as_they_are(scored), _as_they_are(split))


def _as_they_are(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that compare scores without dividing them."""
    if table.empty:
        return table
    kept = table[table["scoring"] == "sum"].reset_index(drop=True)
    return kept.assign(scoring="published")


COMMAND = "stereoset intrasentence"


class SentenceRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        start: What stands in front of a causal model's texts.
        n_resamples: Of the bootstrap.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = COMMAND
    kind: str
    texts: ScoredTextsRecord
    start: str
    n_resamples: int
    confidence: float
    seed: int


_HOW = {"reading": str, "scored": str}
_ITEMS = {
    **_HOW,
    **{name: str for name in ("id", "category", "group")},
    **{f"log_prob_{role}": float for role in ("s", "a", "u")},
    **{f"tokens_{role}": int for role in ("s", "a", "u")},
}
# Attribute of ``SentenceRun``, file and columns.
_TABLES = (
    ("items", "items.parquet", _ITEMS),
    ("scores", "scores.csv", {**SCORE_COLUMNS, **_HOW, "undefined": int}),
    ("length_split", "length_split.csv", {**SPLIT_COLUMNS, **_HOW}),
)


@dataclass(frozen=True)
class SentenceRun(SavedResult):
    """Intrasentence scores with their record.

    Attributes:
        items: As in ``SentenceScores``.
        scores: As there.
        length_split: As there.
        record: Everything needed to repeat the run.
    """

    COMMAND = COMMAND
    RECORD = SentenceRecord
    TABLES = _TABLES
    SHOWN = (("scores, with intervals", "scores"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    record: SentenceRecord

    def __repr__(self) -> str:
        return (
            f"SentenceRun({self.record.model.name}: {counted(self.record.texts.triples, 'item')})"
        )

    @classmethod
    def of(cls, scored: SentenceScores, **about: Any) -> SentenceRun:
        """Scores and what is known of how they came about."""
        n = int(scored.items.groupby(["reading", "scored"]).size().iloc[0])
        record = SentenceRecord(texts=ScoredTextsRecord(triples=n, hash=scored.texts_hash), **about)
        return cls(scored.items, scored.scores, scored.length_split, record)
