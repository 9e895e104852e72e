"""StereoSet's intrasentence half: whole sentences, and only the words in which they differ.

Whole sentences are what StereoSet's authors score with causal models, the differing words what they
score with masked ones; both are given for either. Their causal script puts the model's start token
in front of every sentence (``start="bos"``) and averages over tokens (scoring ``mean``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tda_bias.models.language_model import model_record
from tda_bias.models.load import LanguageModel
from tda_bias.pairs.pair import Scored
from tda_bias.pairs.stereoset import SentenceTriple
from tda_bias.progress import Progress
from tda_bias.runs.cache import OpenCache, texts_hash
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.text import counted
from tda_bias.scores.likelihood import Start, TextReader, TokenScores
from tda_bias.scores.stereoset import LENGTH_SPLIT, ROLE_COLUMNS, SCORES, length_split, scores
from tda_bias.scores.stereoset_scores import ScoredTextsRecord
from tda_bias.scores.texts import Contrast, tokenize
from tda_bias.twins import make_twins
from tda_bias.types import InputError, Triple

COMMAND = "stereoset intrasentence"
_HOW = dict.fromkeys(("reading", "scored"), str)


class SentenceRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        start: What stands in front of a causal model's texts.
        confidence: Coverage of the intervals.
    """

    command: str = COMMAND
    kind: str
    texts: ScoredTextsRecord
    start: str
    confidence: float


@dataclass(frozen=True)
class SentenceScores(SavedResult):
    """Result of ``sentence_scores``.

    Attributes:
        items: One row per reading, scored words and item: ``reading scored id category group
            source``, ``log_prob_`` and ``tokens_`` of the three sentences; NaN where no token of a
            sentence is scored.
        scores: As ``stereoset.scores``, with ``reading scored`` and ``undefined``: items left out
            because no token of a sentence is scored.
        length_split: As ``stereoset.length_split``, with ``reading scored``.
        record: Everything needed to repeat the run.
    """

    COMMAND = COMMAND
    RECORD = SentenceRecord
    TABLES = (
        (
            "items",
            "items.parquet",
            ROLE_COLUMNS | _HOW | dict.fromkeys(("id", "category", "group"), str),
        ),
        ("scores", "scores.csv", SCORES | _HOW | {"undefined": int}),
        ("length_split", "length_split.csv", LENGTH_SPLIT | _HOW),
    )
    SHOWN = (("scores, with intervals", "scores"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    record: SentenceRecord

    def __repr__(self) -> str:
        items = counted(self.record.texts.triples, "item")
        return f"SentenceScores({self.record.model.name}: {items})"


def sentence_scores(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    confidence: float = 0.95,
    progress: Progress | None = None,
    cache: OpenCache | None = None,
) -> SentenceScores:
    """Stereotype, language-model and idealised CAT scores of StereoSet's intrasentence half.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        sentences: From ``load_sentence_triples``.
        batch_size: Texts per forward pass.
        start: As in ``TextReader``.
        share_prefix: As in ``TextReader``.
        confidence: Coverage of the intervals.
        progress: Called with finished items and all, twice as many as there are sentences.
        cache: As in ``TextReader.read_saved``.

    Raises:
        InputError: if there is no item, or as ``TextReader.read_saved``.
        ShareDone: as there.
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
        cache=cache,
    )
    tables: list[pd.DataFrame] = []
    splits: list[pd.DataFrame] = []
    for (reading, scored), part in items.groupby(["reading", "scored"], sort=False):
        about = {"reading": str(reading), "scored": str(scored)}
        defined = part.dropna(subset=[f"log_prob_{role}" for role in "sau"])
        if defined.empty:
            continue
        undefined = len(part) - len(defined)
        tables.append(scores(defined, confidence=confidence).assign(**about, undefined=undefined))
        splits.append(length_split(defined).assign(**about))
    if not tables:
        raise InputError("no item has a token that can be scored")
    ids = [contrast.ids for contrast in tokenize(model, [Contrast(s.texts()) for s in sentences])]
    return SentenceScores(
        items=items,
        scores=pd.concat(tables, ignore_index=True),
        length_split=pd.concat(splits, ignore_index=True),
        record=SentenceRecord(
            model=model_record(model, weights=model.weight_hash()),
            kind=model.kind,
            texts=ScoredTextsRecord(triples=len(sentences), hash=texts_hash(ids)),
            start=start,
            confidence=confidence,
        ),
    )


def sentence_twins(sentences: Sequence[SentenceTriple]) -> dict[str, SentenceTriple]:
    """The same sentences about the other gender, by the name of the item.

    Only gender sentences that can be swapped have one: targets of other categories stand in the
    sentence with what is said of them and are not replaced.
    """
    gender = [sentence for sentence in sentences if sentence.category == "gender"]
    # The context of the triple is the stereotype: it has to change with the target.
    triples = [
        Triple(own.group, own.category, own.stereotype, *own.texts(), own.source) for own in gender
    ]
    made = make_twins(triples)
    return {
        own.id: replace(
            own,
            group=twin.group,
            stereotype=twin.stereotype,
            anti_stereotype=twin.anti_stereotype,
            unrelated=twin.unrelated,
        )
        for own, triple in zip(gender, triples, strict=True)
        for twin in made.of(triple)
    }


def sentence_items(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    share_prefix: str = "auto",
    which: Sequence[Scored] = ("whole", "difference"),
    progress: Progress | None = None,
    cache: OpenCache | None = None,
) -> pd.DataFrame:
    """The items of ``SentenceScores``; ``which`` words are scored, one after the other."""
    named = {
        f"{scored} of sentences": [Contrast(s.texts(), None, scored, s.source) for s in sentences]
        for scored in which
    }
    reader = TextReader(model, batch_size, start, share_prefix)
    read = reader.read_saved(named, cache, progress=progress)
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
            name: getattr(sentence, name) for name in ("id", "category", "group", "source")
        }
        for role, tokens in zip("sau", texts, strict=True):
            row[f"log_prob_{role}"] = float(tokens.sum()) if len(tokens) else np.nan
            row[f"tokens_{role}"] = len(tokens)
        rows.append(row)
    return pd.DataFrame(rows)
