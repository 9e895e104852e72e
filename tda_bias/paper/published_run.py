"""A run's maps beside published rankings of its model's heads, as a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.paper.rankings import TOP, against_published
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.run import content_hash
from tda_bias.runs.text import counted
from tda_bias.types import RankBy

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

COMMAND = "crossref published"


class PublishedRecord(RunRecord):
    """Everything needed to repeat it.

    Attributes:
        heads: Folder of the run of the heads, as it was given.
        published: The model whose published rankings were read.
        by: Which map of the run ranks its heads.
        top: So many heads from the top of two rankings are compared.
        n_resamples: Permutations of heads.
        seed: Of the permutations.
    """

    command: str = COMMAND
    heads: str | None = None
    published: str
    by: RankBy
    top: int
    n_resamples: int
    seed: int


_COLUMNS = {
    **{name: str for name in ("category", "first", "second")},
    **{name: int for name in ("heads", "overlap")},
    "spearman": float,
    "chance": float,
    **{name: float for name in ("p", "p_within_layers", "p_overlap")},
}


@dataclass(frozen=True)
class PublishedAgreement(SavedResult):
    """How far a run's maps agree with published rankings.

    Attributes:
        agreement: As ``rankings.against_published``.
        record: Everything needed to repeat it.
    """

    COMMAND = COMMAND
    RECORD = PublishedRecord
    TABLES = (("agreement", "published.csv", _COLUMNS),)
    SHOWN = (("agreement of rankings", "agreement"),)

    agreement: pd.DataFrame
    record: PublishedRecord

    def __repr__(self) -> str:
        return (
            f"PublishedAgreement({self.record.model.name} beside {self.record.published}: "
            f"{counted(len(self.agreement), 'pair of rankings', 'pairs of rankings')})"
        )

    @property
    def is_of_other_name(self) -> bool:
        """Tell whether the run's model is not called like the one whose scores were published."""
        return Path(self.record.model.name).name.lower() != self.record.published.lower()


def published_agreement(
    run: HeadBias,
    model: str,
    *,
    by: RankBy | None = None,
    top: int = TOP,
    n_resamples: int = 9999,
    seed: int = 0,
) -> PublishedAgreement:
    """The maps of a run beside the published rankings of its model's heads.

    Args:
        run: From ``tdabias heads``.
        model: One of ``rankings.published_models``.
        by: Which map of the run; that which ranks its heads if None.
        top: So many heads from the top count as chosen.
        n_resamples: Permutations of heads.
        seed: Of the permutations.

    Raises:
        InputError: as ``rankings.against_published``.
    """
    options: dict[str, Any] = {"top": top, "n_resamples": n_resamples, "seed": seed}
    content = content_hash(run.record)
    return PublishedAgreement(
        against_published(run, model, by=by, **options),
        PublishedRecord(
            model=run.record.model,
            made_from={} if content is None else {run.record.command: content},
            published=model,
            by=by or run.rank_by,
            **options,
        ),
    )
