"""What ``run.json`` says of a run of ``tdabias ablate``, and the columns of its tables."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tda_bias.runs.record import Number, RunRecord
from tda_bias.types import RankBy


class AblationRecord(RunRecord):
    """Everything needed to repeat an ablation.

    Attributes:
        run: Folder of the run whose heads were removed, as it was given.
        category: The map that ranked them.
        rank_by: Which of its values did.
        top: Heads from each end of the ranking.
        ablation: What replaces a removed head's output.
        precision: Of matrix products while heads were removed.
        n_random: Random sets of heads, all different.
        n_possible: How many different ones are possible; None in records of version 0.1.
        n_resamples: Permutations for the agreement.
        seed: Of random sets and permutations.
        triples: Number of texts' triples.
        twinned: How many of them have twins.
        twins: How the twins came about; None for a run without.
        share_prefix: Whether a triple's common beginning was run once.
        survivors: Heads of the map that survive correction.
        base: Summaries of the unchanged model.
    """

    command: str = "ablate"
    run: str | None = None
    category: str
    rank_by: RankBy
    top: int = Field(ge=1)
    ablation: Literal["mean", "zero"] | None = None
    precision: str = "float32"
    n_random: int
    n_possible: int | None = None
    n_resamples: int | None = None
    seed: int
    triples: int
    twinned: int = 0
    twins: dict[str, Any] | None = None
    share_prefix: bool
    survivors: int
    base: dict[str, Number]


EFFECT_COLUMNS = {"kind": str, "heads": str, "d_log_odds": float, "d_.+": float}
SET_TEST_COLUMNS = {
    "outcome": str,
    **{name: float for name in ("effect", "random_mean", "random_sd", "percentile")},
    "p": float,
}
HEAD_COLUMNS = {
    "layer": int,
    "head": int,
    "unstable": bool,
    **{name: float for name in ("effect", "importance", "direct", "exact")},
    r"(z|evidence)_.+": float,
}
AGREEMENT_COLUMNS = {
    "ranking": str,
    **{f"n_{name}": int for name in ("effect", "exact")},
    **{f"rho_{name}": float for name in ("effect", "exact")},
    **{f"p_{name}": float for name in ("effect", "exact")},
}
# Attribute of ``AblationStudy``, file and columns.
TABLES = (
    ("effects", "effects.csv", EFFECT_COLUMNS),
    ("set_tests", "set_tests.csv", SET_TEST_COLUMNS),
    ("heads", "heads.csv", HEAD_COLUMNS),
    ("agreement", "agreement.csv", AGREEMENT_COLUMNS),
)
