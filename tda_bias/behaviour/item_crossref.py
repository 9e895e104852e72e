"""Heads against the model's preference item by item, as one result of two runs of one model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pydantic import Field

from tda_bias.behaviour.item_tests import item_tests
from tda_bias.behaviour.stereoset import Scoring
from tda_bias.behaviour.targets import same_model
from tda_bias.records.files import RECORD
from tda_bias.records.record import RunRecord, updated
from tda_bias.records.runs import content_hash, open_run
from tda_bias.records.tables import columns, counts, numbers, shares, texts
from tda_bias.records.writing import writing_run
from tda_bias.results.item_differences import ItemDifferences

if TYPE_CHECKING:
    from tda_bias.behaviour.stereoset_scores import StereoSetScores
    from tda_bias.records.runs import Run

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


_PLACE = {"category": texts(), "way": texts(), "measure": texts(), "dim": counts()}
HEAD_COLUMNS = columns(
    {
        **_PLACE,
        "layer": counts(),
        "head": counts(),
        "rho": numbers(),
        **{name: shares() for name in ("p", "p_max", "q")},
    }
)
SUMMARY_COLUMNS = columns(
    {
        **_PLACE,
        **{name: counts() for name in ("n", "heads", "p05", "family_wise")},
        **{name: numbers() for name in ("expected", "largest", "needed", "smallest")},
    }
)
# Attribute of ``ItemCrossReference``, file and columns.
TABLES = (
    ("heads", "heads.csv", HEAD_COLUMNS),
    ("summary", "summary.csv", SUMMARY_COLUMNS),
)


@dataclass(frozen=True)
class ItemCrossReference:
    """What ``cross_reference_items`` found.

    Attributes:
        heads: One row per category, way, measure, dimension and head; see ``item_tests.ItemTests``.
        summary: One row per category, way, measure and dimension.
        record: Everything needed to repeat it.
    """

    heads: pd.DataFrame
    summary: pd.DataFrame
    record: ItemCrossrefRecord

    def __repr__(self) -> str:
        n = ", ".join(f"{row.category} {row.n}" for row in self._counts().itertuples())
        return f"ItemCrossReference({self.record.model.name}: items of {n})"

    def _counts(self) -> pd.DataFrame:
        return self.summary.drop_duplicates("category")[["category", "n"]]

    def with_record(self, **entries: Any) -> ItemCrossReference:
        """The same result with further entries in its record; new ones win."""
        return replace(self, record=updated(self.record, entries))

    def save(self, folder: str | Path) -> list[Path]:
        """Write the tables and ``run.json``: all of them, or none.

        Returns:
            The files, ``run.json`` last: where it is, the others are.

        Raises:
            InputError: if the folder cannot be written.
        """
        folder = Path(folder)
        with writing_run(folder, self.record) as run:
            for attribute, name, _ in TABLES:
                run.table(name, getattr(self, attribute))
        return [*(folder / name for name in run.names), folder / RECORD]

    @classmethod
    def load(cls, folder: str | Path) -> ItemCrossReference:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run, or a file is not as it was written.
        """
        run = open_run(folder, COMMAND)
        tables = {name: run.table(file, schema) for name, file, schema in TABLES}
        return cls(**tables, record=run.record_as(ItemCrossrefRecord))


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
    found = item_tests(
        ItemDifferences.read(heads),
        stereoset.named_items(),
        scoring=scoring,
        n_resamples=n_resamples,
        seed=seed,
    )
    contents = {"heads": heads.content, "stereoset": content_hash(stereoset.record)}
    return ItemCrossReference(
        heads=found.table,
        summary=found.summary,
        record=ItemCrossrefRecord(
            model=heads.record.model,
            made_from={name: value for name, value in contents.items() if value is not None},
            scoring=scoring,
            n_resamples=n_resamples,
            seed=seed,
            left_out=dict(found.left_out),
        ),
    )
