"""What ``run.json`` says of a run of ``tdabias crossref``, and the columns of its tables."""

from __future__ import annotations

from pydantic import Field

from tda_bias.runs.record import Number, RunRecord
from tda_bias.types import RankBy


class CrossrefRecord(RunRecord):
    """Everything needed to repeat a cross-reference.

    Attributes:
        heads: Folder of the run of the heads, as it was given.
        behaviour: Folder of the run that says what the model says of words.
        stereoset: Folder of the run with StereoSet's scores, if there was one.
        by: Which combined value of a head is T.
        match: How loosely a word may stand for a target.
        n_resamples: Permutations of targets.
        seed: Of all draws.
        shuffled_heads: By quantity, what a head map shows where heads mean nothing.
    """

    command: str = "crossref"
    heads: str | None = None
    behaviour: str | None = None
    stereoset: str | None = None
    by: RankBy
    match: str
    n_resamples: int
    seed: int
    shuffled_heads: dict[str, dict[str, Number]] = Field(default_factory=dict)


TARGET_COLUMNS = {
    "category": str,
    "target": str,
    "match_type": str,
    "matched": str,
    "n_items": int,
    "r": float,
    "s_.+": float,
}
CORRELATION_COLUMNS = {
    "quantity": str,
    "summary": str,
    "n": int,
    **{name: float for name in ("spearman", "low", "high", "pearson", "partial")},
    **{name: float for name in ("p", "p_partial", "q")},
}
HEAD_COLUMNS = {
    "layer": int,
    "head": int,
    "rho": float,
    **{name: float for name in ("p", "p_max", "q")},
    "quantity": str,
}
PROFILE_COLUMNS = {"quantity": str, "distance": str, "rho": float, "p": float}
# Attribute of ``CrossReference``, file and columns.
TABLES = (
    ("targets", "targets.csv", TARGET_COLUMNS),
    ("correlations", "correlations.csv", CORRELATION_COLUMNS),
    ("heads", "head_map.csv", HEAD_COLUMNS),
)
PROFILES = "profiles.csv"
