"""What ``run.json`` says of a run of ``tdabias ablate``, and the columns of its tables."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tda_bias.runs.record import Number, RunRecord
from tda_bias.runs.tables import columns, counts, finite, flags, numbers, shares, texts
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
        planned: What a budget of time allowed, and the time it was planned to take; None without.
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
    planned: dict[str, Number] | None = None
    share_prefix: bool
    survivors: int
    base: dict[str, Number]


EFFECT_COLUMNS = columns(
    {"kind": texts(), "heads": texts(), "d_log_odds": finite(), "d_.+": numbers(regex=True)}
)
SET_TEST_COLUMNS = columns(
    {
        "outcome": texts(),
        **{name: numbers() for name in ("effect", "random_mean", "random_sd", "percentile")},
        "p": shares(),
    }
)
HEAD_COLUMNS = columns(
    {
        "layer": counts(),
        "head": counts(),
        "unstable": flags(),
        **{name: numbers() for name in ("effect", "importance", "direct", "exact")},
        **{name: numbers(required=False) for name in ("effect_beta", "exact_beta")},
        r"(z|evidence)_.+": numbers(regex=True),
    }
)
AGREEMENT_COLUMNS = columns(
    {
        "ranking": texts(),
        **{f"n_{name}": counts() for name in ("effect", "exact")},
        **{f"rho_{name}": numbers() for name in ("effect", "exact")},
        **{f"p_{name}": shares() for name in ("effect", "exact")},
        **{f"n_{name}_beta": counts(required=False) for name in ("effect", "exact")},
        **{f"rho_{name}_beta": numbers(required=False) for name in ("effect", "exact")},
        **{f"p_{name}_beta": shares(required=False) for name in ("effect", "exact")},
    }
)
# Attribute of ``AblationStudy``, file and columns.
TABLES = (
    ("effects", "effects.csv", EFFECT_COLUMNS),
    ("set_tests", "set_tests.csv", SET_TEST_COLUMNS),
    ("heads", "heads.csv", HEAD_COLUMNS),
    ("agreement", "agreement.csv", AGREEMENT_COLUMNS),
)
