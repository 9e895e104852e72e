"""What ``run.json`` says of a run of ``tdabias stereoset``, and the columns of its tables."""

from __future__ import annotations

from typing import Any

from tda_bias.runs.record import RecordPart, RunRecord
from tda_bias.scores.beta import LIMITS


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
