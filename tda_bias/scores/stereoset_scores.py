"""A model's scores on StereoSet, and what of them is about the target: one call, one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import PartStore, Store, texts_hash
from tda_bias.runs.record import RecordPart, RunRecord
from tda_bias.runs.result import SavedResult, Table, summary_html
from tda_bias.runs.run import Run
from tda_bias.runs.text import counted
from tda_bias.runs.work import Job
from tda_bias.scores.beta import LIMITS, beta_table, twin_table, with_beta
from tda_bias.scores.likelihood import TripleLikelihood, split_triples, triple_likelihoods
from tda_bias.scores.stereoset import item_table, length_split, scores
from tda_bias.triples import triple_ids

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.twins import Twins
    from tda_bias.types import Triple


class ScoredTextsRecord(RecordPart):
    """The texts of a run: how many triples, and a hash of their token ids."""

    triples: int
    hash: str


class StereoSetRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        twins: How the twins came about; None for a run without.
        n_resamples: Of the bootstrap.
        confidence: Coverage of the intervals.
        seed: Of all draws.
    """

    command: str = "stereoset"
    kind: str
    texts: ScoredTextsRecord
    twins: dict[str, Any] | None = None
    n_resamples: int | None = None
    confidence: float | None = None
    seed: int | None = None


_ROLES = {
    **{f"log_prob_{role}": float for role in ("s", "a", "u")},
    **{f"tokens_{role}": int for role in ("s", "a", "u")},
}
ITEM_COLUMNS = {
    "category": str,
    "group": str,
    "id": str,
    **_ROLES,
}
_SCORES = ("lms", "ss", "icat")
SCORE_COLUMNS = {
    **{name: str for name in ("scoring", "category", "group")},
    "items": int,
    "ties": int,
    **{name: float for name in _SCORES},
    **{f"{name}_{end}": float for name in _SCORES for end in ("low", "high", "items")},
}
SPLIT_COLUMNS = {
    "category": str,
    "longer": int,
    "items": int,
    "ss": float,
    "scoring": str,
}
TWIN_COLUMNS = {
    "item": int,
    **{f"log_prob_{role}": float for role in "sa"},
    **{f"tokens_{role}": int for role in "sa"},
}
BETA_COLUMNS = {
    **{name: str for name in ("scoring", "category", "group")},
    **{name: int for name in ("items", "left_out", "targets")},
    **{name: float for name in ("p", "q", "p_ss_twin", "explained")},
    **{name: float for name in ("beta", "beta_sd", "ss_twin", "t", "r", "smallest")},
    **{name: float for name in ("log_odds", "log_odds_sd", "log_odds_twin", "twins")},
    **{name: float for name in LIMITS},
}
# Attribute of ``StereoSetScores``, file and columns.
TABLES = (
    ("items", "items.parquet", ITEM_COLUMNS),
    ("scores", "scores.csv", SCORE_COLUMNS),
    ("length_split", "length_split.csv", SPLIT_COLUMNS),
)
# Those of a run with twins.
TWIN_TABLES = (
    ("twins", "twins.parquet", TWIN_COLUMNS),
    ("beta", "beta.csv", BETA_COLUMNS),
)


# Triples whose readings are kept in one file: a stopped run loses at most so many.
_BLOCK = 128


@dataclass(frozen=True)
class StereoSetScores(SavedResult):
    """Result of ``stereoset_scores``.

    Attributes:
        items: One row per item: log-probability and number of tokens of its continuations and, with
            twins, beta; see ``beta.with_beta``.
        scores: One row per scoring, category and group: the official scores; see
            ``stereoset.scores``.
        length_split: How often the stereotype wins by which text is longer.
        twins: One row per twin; empty without twins.
        beta: One row per scoring, category and group: what is about the target; see
            ``beta.beta_table``. Empty without twins.
        record: Everything needed to repeat the run.
    """

    COMMAND = "stereoset"
    RECORD = StereoSetRecord
    TABLES = (*TABLES, *TWIN_TABLES)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    twins: pd.DataFrame
    beta: pd.DataFrame
    record: StereoSetRecord

    def __repr__(self) -> str:
        about = f"{counted(len(self.items), 'item')}, {counted(len(self.twins), 'twin')}"
        return f"StereoSetScores({self.record.model.name}: {about})"

    def _repr_html_(self) -> str:
        official = self.scores[self.scores["group"] == "all"]
        shown = official[["scoring", "category", "items", "lms", "ss", "ss_low", "ss_high", "icat"]]
        tables = {"official scores with intervals": shown}
        if self.has_twins:
            beta = self.beta[self.beta["group"] == "all"]
            columns = [
                "scoring",
                "category",
                "items",
                "log_odds",
                "beta",
                "beta_low",
                "beta_high",
                "p",
            ]
            tables["what of the preference is about the target (beta)"] = beta[columns]
        return summary_html(repr(self), tables=tables)

    @property
    def has_twins(self) -> bool:
        """Tell whether any item was compared with a twin."""
        return not self.twins.empty

    def _tables(self) -> Sequence[Table]:
        return self.TABLES if self.has_twins else TABLES

    @classmethod
    def _read(cls, run: Run) -> dict[str, pd.DataFrame]:
        if any(run.has(file) for _, file, _ in TWIN_TABLES):
            return super()._read(run)
        tables = {name: run.table(file, schema) for name, file, schema in TABLES}
        return {**tables, "twins": twin_table([]), "beta": pd.DataFrame()}


def stereoset_scores(
    model: LanguageModel,
    triples: Sequence[Triple],
    *,
    twins: Twins | None = None,
    batch_size: int = 32,
    share_prefix: str = "auto",
    n_resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    store: Store | None = None,
) -> StereoSetScores:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score, and beta.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: From ``load_triples``.
        twins: From ``tda_bias.twins``: the same texts about other targets. With them, beta says
            what of the preference is about the target.
        batch_size: Texts per forward pass.
        share_prefix: ``auto`` or ``never``: run a causal model's context once per triple.
        n_resamples: Bootstrap resamples of the intervals.
        confidence: Their coverage.
        seed: Of all draws.
        progress: Called with finished triples and all, twins included.
        store: Given what the readings depend on, returns the store in which they are kept and
            looked up; without it nothing is saved on the way.

    Raises:
        InputError: if the model has no language-model head or is of another kind, a text is too
            long for it, there is no triple, or ``store`` holds readings of something else.
        ShareDone: if the store's parts are shared by several processes and another one gathers.
    """
    twins_of = [twins.of(triple) if twins is not None else () for triple in triples]
    every = [*triples, *(twin for several in twins_of for twin in several)]
    weights = model.weight_hash()
    reader = _Blocks(model, batch_size=batch_size, share_prefix=share_prefix, progress=progress)
    readings = reader.read(every, store(_identity(model, weights)) if store is not None else None)
    items = item_table(triples, readings[: len(triples)]).assign(id=triple_ids(triples))
    drawn: dict[str, Any] = {"n_resamples": n_resamples, "confidence": confidence, "seed": seed}
    rest = iter(readings[len(triples) :])
    twin_items = twin_table([[next(rest) for _ in several] for several in twins_of])
    beta = pd.DataFrame()
    if not twin_items.empty:
        beta = beta_table(items, twin_items, **drawn)
        items = with_beta(items, twin_items)
    return StereoSetScores(
        items=items,
        scores=scores(items, **drawn),
        length_split=length_split(items),
        twins=twin_items,
        beta=beta,
        record=StereoSetRecord(
            model=model_record(model, weights=weights),
            kind=model.kind,
            texts={"triples": len(triples), "hash": _hash(model, every)},
            twins=None if twins is None else twins.only(triples).record(),
            **drawn,
        ),
    )


# -- parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Blocks:
    """Triples in blocks, each read or found among the saved parts."""

    model: LanguageModel
    batch_size: int
    share_prefix: str
    progress: Progress | None

    def read(self, triples: Sequence[Triple], store: PartStore | None) -> list[TripleLikelihood]:
        """The readings of all triples."""
        blocks = range(0, len(triples), _BLOCK)
        jobs = [self._job(triples, first) for first in blocks]
        readings: list[TripleLikelihood] = []
        for arrays in (store or PartStore(None, {})).each(jobs):
            readings += _from_arrays(arrays)
            self._tell(len(readings), len(triples))
        return readings

    def _job(self, triples: Sequence[Triple], first: int) -> Job:
        block = triples[first : first + _BLOCK]
        return Job(
            f"triples {first + 1} to {first + len(block)}",
            float(sum(len(text) for triple in block for text in triple.texts())),
            lambda: {"texts": _hash(self.model, block)},
            lambda: self._computed(block, first, len(triples)),
        )

    def _computed(self, block: Sequence[Triple], first: int, total: int) -> dict[str, np.ndarray]:
        return _as_arrays(
            triple_likelihoods(
                self.model,
                block,
                batch_size=self.batch_size,
                share_prefix=self.share_prefix,
                progress=lambda done, _: self._tell(first + done, total),
            )
        )

    def _tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _as_arrays(readings: Sequence[TripleLikelihood]) -> dict[str, np.ndarray]:
    return {
        "log_prob": np.concatenate([tokens for reading in readings for tokens in reading.tokens]),
        "n_tokens": np.array([reading.n_tokens for reading in readings]),
    }


def _from_arrays(arrays: Mapping[str, np.ndarray]) -> list[TripleLikelihood]:
    sizes = arrays["n_tokens"]
    texts = iter(np.split(arrays["log_prob"], np.cumsum(sizes.reshape(-1))[:-1]))
    return [TripleLikelihood(tuple(next(texts) for _ in row)) for row in sizes]


def _identity(model: LanguageModel, weights: str) -> dict[str, Any]:
    """Identity of saved readings, beside the texts."""
    about = {"format": 1, "model": model.name, "weights": weights, "dtype": model.dtype_name}
    return {**about, "kind": model.kind}


def _hash(model: LanguageModel, triples: Sequence[Triple]) -> str:
    return texts_hash([split.ids for split in split_triples(model, triples)])
