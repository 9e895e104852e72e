"""A model's scores on a set of minimal pairs: one call, one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.models.record import model_record
from tda_bias.pairs.pair import PairSet, Scored
from tda_bias.progress import Progress
from tda_bias.runs.cache import Store, texts_hash
from tda_bias.runs.record import DataRecord, RecordPart, RunRecord
from tda_bias.runs.result import SavedResult, Table
from tda_bias.scores.pair_official import Official, official
from tda_bias.scores.pair_scores import length_split, pair_items, scores
from tda_bias.scores.text_likelihood import Contrast, Start, tokenize

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel


class PairTextsRecord(RecordPart):
    """The texts of a run: how many pairs, and a hash of their token ids."""

    pairs: int
    hash: str


class OfficialRecord(RecordPart):
    """A set's own score; see ``pair_official.Official``."""

    name: str
    headline: dict[str, float | None]
    note: str


class PairsRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        set: Name of the set.
        licence: Of its texts, where it is known.
        uneven: Pairs whose texts differ in more than what is tested.
        scored: Which words are scored; None: as each pair says.
        start: Whether a start token was put in front of texts.
        official: The set's own score.
        n_resamples: Of the bootstrap.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = "pairs"
    kind: str
    texts: PairTextsRecord
    set: str
    licence: str | None = None
    uneven: tuple[str, ...] = ()
    scored: str | None = None
    start: str
    official: OfficialRecord
    n_resamples: int
    confidence: float
    seed: int


_INTERVALS = [f"{name}{end}" for name in ("preferred", "log_odds") for end in ("", "_low", "_high")]
_ITEMS = {
    "id": str,
    "group": str,
    **{f"logprob_{side}": float for side in ("more", "less")},
    **{f"tokens_{side}": int for side in ("more", "less")},
    "reading": str,
    "undefined": str,
}
_SCORES = {
    **{name: str for name in ("reading", "scoring", "part", "name")},
    **{name: int for name in ("items", "undefined", "ties")},
    **{name: float for name in _INTERVALS},
}
_SPLIT = {
    "type": str,
    "longer": float,
    "items": int,
    "preferred": float,
    "reading": str,
    "scoring": str,
}
_TABLES: tuple[Table, ...] = (
    ("items", "items.parquet", _ITEMS),
    ("scores", "scores.csv", _SCORES),
    ("length_split", "length_split.csv", _SPLIT),
    ("official", "official.csv", {}),
)


@dataclass(frozen=True)
class PairSetScores(SavedResult):
    """Result of ``pair_set_scores``.

    Attributes:
        items: One row per pair; see ``pair_scores.pair_items``.
        scores: One row per reading, scoring and part; see ``pair_scores.scores``.
        length_split: How often ``more`` is preferred by which text is longer.
        official: One row per division that the set's paper has; see ``pair_official``.
        record: Everything needed to repeat the run.
    """

    COMMAND = "pairs"
    RECORD = PairsRecord
    TABLES = _TABLES
    SHOWN = (("the set's own score", "official"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    official: pd.DataFrame
    record: PairsRecord

    def __repr__(self) -> str:
        return f"PairSetScores({self.record.model.name}: {len(self.items)} of {self.record.set})"


def pair_set_scores(
    model: LanguageModel,
    pairs: PairSet,
    *,
    scored: Scored | None = None,
    start: Start = "tokenizer",
    batch_size: int = 32,
    share_prefix: str = "auto",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    store: Store | None = None,
) -> PairSetScores:
    """Score a model on a set of minimal pairs.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        pairs: From ``load_pairs``.
        scored: Which words are scored; what each pair says if None.
        start: As in ``text_likelihood.text_log_probs``.
        batch_size: Texts per forward pass.
        share_prefix: ``auto`` or ``never``: run what both texts share once.
        n_resamples: Bootstrap resamples of the intervals.
        confidence: Their coverage.
        seed: Of all draws.
        progress: Called with finished pairs and all.
        store: As in ``text_parts.TextReader``.

    Raises:
        InputError: if there is no pair, the model has no language-model head or is of another kind,
            a text is too long for it, or ``store`` holds readings of something else.
        ShareDone: if the store's parts are shared by several processes and another one gathers.
    """
    items = pair_items(
        model,
        pairs,
        scored=scored,
        start=start,
        batch_size=batch_size,
        share_prefix=share_prefix,
        progress=progress,
        store=store,
    )
    drawn: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
    official_scores = official(pairs, items, **drawn)
    contrasts = [Contrast(pair.texts(), pair.context) for pair in pairs.pairs]
    ids = [contrast.ids for contrast in tokenize(model, contrasts)]
    return PairSetScores(
        items=items,
        scores=scores(items, **drawn),
        length_split=length_split(items),
        official=official_scores.table,
        record=PairsRecord(
            model=model_record(model, weights=model.weight_hash()),
            data=DataRecord(source=pairs.source, revision=pairs.revision),
            kind=model.kind,
            texts=PairTextsRecord(pairs=len(items), hash=texts_hash(ids)),
            set=pairs.name,
            licence=pairs.licence,
            uneven=tuple(sorted(pairs.uneven)),
            scored=scored,
            start=start,
            official=_official_record(official_scores),
            **drawn,
        ),
    )


def _official_record(scores: Official) -> OfficialRecord:
    headline = {name: None if value != value else value for name, value in scores.headline.items()}
    return OfficialRecord(name=scores.name, headline=headline, note=scores.note)
