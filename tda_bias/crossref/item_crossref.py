"""Heads against the model's preference item by item, as one result of two runs of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from tda_bias.crossref.item_tests import item_tests
from tda_bias.crossref.targets import same_model
from tda_bias.heads.item_differences import ItemDifferences
from tda_bias.runs.record import RunRecord
from tda_bias.runs.result import SavedResult
from tda_bias.runs.run import content_hash
from tda_bias.scores.stereoset import Scoring

if TYPE_CHECKING:
    from tda_bias.runs.run import Run
    from tda_bias.scores.stereoset_scores import StereoSetScores

COMMAND = "crossref items"


class ItemCrossrefRecord(RunRecord):
    """Everything needed to repeat it.

    Attributes:
        heads: Folder of the run of the heads, as it was given.
        stereoset: Folder of the run with the model's preferences.
        scoring: Whether log-probabilities were added up or averaged over tokens.
        n_resamples: Permutations of items within targets.
        seed: Of the permutations.
        left_out: By category, items of the heads that the other run does not have.
    """

    command: str = COMMAND
    heads: str | None = None
    stereoset: str | None = None
    scoring: Scoring
    n_resamples: int
    seed: int
    left_out: dict[str, int] = Field(default_factory=dict)


_PLACE = {"category": str, "way": str, "measure": str, "dim": int}
HEAD_COLUMNS = {
    **_PLACE,
    "layer": int,
    "head": int,
    "rho": float,
    **{name: float for name in ("p", "p_max", "q")},
}
SUMMARY_COLUMNS = {
    **_PLACE,
    **{name: int for name in ("n", "heads", "p05", "family_wise")},
    **{name: float for name in ("expected", "largest", "needed", "smallest")},
}
# Attribute of ``ItemCrossReference``, file and columns.
TABLES = (
    ("heads", "heads.csv", HEAD_COLUMNS),
    ("summary", "summary.csv", SUMMARY_COLUMNS),
)


@dataclass(frozen=True)
class ItemCrossReference(SavedResult):
    """Result of ``cross_reference_items``.

    Attributes:
        heads: One row per category, way, measure, dimension and head; see ``item_tests.ItemTests``.
        summary: One row per category, way, measure and dimension.
        record: Everything needed to repeat it.
    """

    COMMAND = COMMAND
    RECORD = ItemCrossrefRecord
    TABLES = TABLES
    SHOWN = (("heads that go with what the model says, over items", "summary"),)

    heads: pd.DataFrame
    summary: pd.DataFrame
    record: ItemCrossrefRecord

    def __repr__(self) -> str:
        n = ", ".join(f"{row.category} {row.n}" for row in self._counts().itertuples())
        return f"ItemCrossReference({self.record.model.name}: items of {n})"

    def _counts(self) -> pd.DataFrame:
        return self.summary.drop_duplicates("category")[["category", "n"]]


def cross_reference_items(
    heads: Run,
    stereoset: StereoSetScores,
    *,
    scoring: Scoring = "sum",
    n_resamples: int = 9999,
    seed: int = 0,
) -> ItemCrossReference:
    """Over items, does what a head does go with the model's preference?

    Args:
        heads: A finished run of ``tdabias heads``.
        stereoset: The same model's scores on the same data; with twins if the heads' run had them.
        scoring: Log-probabilities as sums, or per token.
        n_resamples: Permutations of items within targets.
        seed: Of the permutations.

    Raises:
        InputError: if the two are not of one model, the run of the heads has no items, or a
            category shares fewer than 10 items between them.
    """
    same_model(heads.record, stereoset.record)
    tests = item_tests(
        ItemDifferences.read(heads),
        stereoset.items,
        scoring=scoring,
        n_resamples=n_resamples,
        seed=seed,
    )
    contents = {"heads": heads.content, "stereoset": content_hash(stereoset.record)}
    return ItemCrossReference(
        heads=tests.table,
        summary=tests.summary,
        record=ItemCrossrefRecord(
            model=heads.record.model,
            made_from={name: value for name, value in contents.items() if value is not None},
            scoring=scoring,
            n_resamples=n_resamples,
            seed=seed,
            left_out=dict(tests.left_out),
        ),
    )
