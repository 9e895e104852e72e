"""The result of a run: tidy tables, their files, and the maps drawn from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from tda_bias.records.figures import write_figure
from tda_bias.records.files import atomic, remove_leftovers, to_json, write_csv, write_text
from tda_bias.records.record import reading_run
from tda_bias.results.tables import in_order, ranked, tested_map
from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TABLES = {"table": "heads", "combined": "combined", "category": "category"}


@dataclass(frozen=True)
class HeadBias:
    """What ``head_bias`` found.

    Attributes:
        table: One row per group, layer, head and dimension: the statistic and its p-values.
        combined: One row per group, layer and head: the mean of both dimensions, z over heads.
        category: One row per category, layer and head: the maps and the hot-spot tests.
        groups: One row per group: mean, minimum and maximum over heads, lengths, reliability.
        record: Everything needed to repeat the run, and the controls.
    """

    table: pd.DataFrame
    combined: pd.DataFrame
    category: pd.DataFrame
    groups: pd.DataFrame
    record: dict[str, Any]

    @property
    def categories(self) -> list[str]:
        """The categories of the run, in their usual order."""
        return in_order(list(self.category["category"].unique()))

    @property
    def rank_by(self) -> RankBy:
        """The map the run ranks heads by."""
        return cast(RankBy, self.record["config"]["rank_by"])

    def with_record(self, **entries: Any) -> HeadBias:
        """The same result with further entries in its record."""
        return replace(self, record={**self.record, **entries})

    def controls(self, category: str | None = None) -> dict[str, Any]:
        """What must be read beside a category's ranking: chance, reliability, length."""
        name = self._category(category)
        return next(c for c in self.record["controls"] if c["category"] == name)

    def category_map(
        self, category: str | None = None, *, by: RankBy | None = None
    ) -> Float[np.ndarray, "layer head"]:
        """Mean over groups of the z-score over heads of |combined|, layers by heads.

        Args:
            category: May be left out where the run has one.
            by: Which combined value; default the one the run ranks by.
        """
        return self.layer_by_head(f"z_{by or self.rank_by}", category)

    def layer_by_head(self, column: str, category: str | None = None) -> np.ndarray:
        """Any column of ``category`` as an array, layers by heads."""
        rows = self._rows(category)
        return rows.pivot(index="layer", columns="head", values=column).to_numpy()

    def top(
        self, k: int = 10, *, category: str | None = None, by: RankBy | None = None
    ) -> pd.DataFrame:
        """The k heads with the largest map values; unstable heads come after all others.

        Returns:
            Columns ``layer head z p p_max q unstable``. p is the hot-spot test of the map; for the
            ranking by the paper's metric it is that of the statistic.
        """
        name = by or self.rank_by
        return _with_short_names(ranked(self._rows(category), name).head(k), name)

    def survivors(
        self, *, category: str | None = None, by: RankBy | None = None, level: float = 0.05
    ) -> pd.DataFrame:
        """Heads whose hot-spot test survives correction: max-z p or q below the level.

        A head is judged against its own values under flipped labels, so a survivor need not stand
        high in the map.

        Returns:
            As ``top``, in ascending order of p.
        """
        name = by or self.rank_by
        rows = _with_short_names(self._rows(category), name)
        kept = rows[(rows["p_max"] < level) | (rows["q"] < level)]
        return kept.sort_values("p", kind="stable").reset_index(drop=True)

    def plot_heatmap(
        self,
        ax: Axes | None = None,
        *,
        category: str | None = None,
        by: RankBy | None = None,
    ) -> Axes:
        """Draw the map of a category; see ``tda_bias.plots.heat_map.plot_heatmap``."""
        from tda_bias.plots.heat_map import plot_heatmap

        return plot_heatmap(self, ax=ax, category=self._category(category), by=by or self.rank_by)

    # -- files --

    def save(self, folder: str | Path) -> list[Path]:
        """Write the tables, the heat map and ``run.json``; each file is whole or not there.

        Returns:
            The files, ``run.json`` last: where it is, the others are.

        Raises:
            InputError: if the folder cannot be written.
        """
        from tda_bias.plots.heat_map import heatmap_figure

        folder = Path(folder)
        written = []
        for attribute, name in _TABLES.items():
            with atomic(folder / f"{name}.parquet") as path:
                getattr(self, attribute).to_parquet(path, index=False)
            written.append(folder / f"{name}.parquet")
        for name, table in (("heads", self.table), ("groups", self.groups)):
            write_csv(folder / f"{name}.csv", table)
            written.append(folder / f"{name}.csv")
        written += write_figure(folder, "heatmap", heatmap_figure(self))
        write_text(folder / "run.json", to_json(self.record))
        remove_leftovers(folder)
        return [*written, folder / "run.json"]

    @classmethod
    def load(cls, folder: str | Path) -> HeadBias:
        """Read what ``save`` wrote.

        Raises:
            InputError: if the folder holds no finished run.
        """
        folder = Path(folder)
        with reading_run(folder, "heads"):
            record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            tables = {a: pd.read_parquet(folder / f"{n}.parquet") for a, n in _TABLES.items()}
            groups = pd.read_csv(folder / "groups.csv")
        return cls(**tables, groups=groups, record=record)

    # -- helpers --

    def _category(self, category: str | None) -> str:
        if category is None and len(self.categories) == 1:
            return self.categories[0]
        if category not in self.categories:
            allowed = ", ".join(self.categories)
            raise InputError(f"`category` must be one of {allowed}; got {category!r}")
        return str(category)

    def _rows(self, category: str | None) -> pd.DataFrame:
        return self.category[self.category["category"] == self._category(category)]


def _with_short_names(category: pd.DataFrame, by: RankBy) -> pd.DataFrame:
    tested = tested_map(by)
    names = {f"z_{by}": "z", f"p_{tested}": "p", f"p_max_{tested}": "p_max", f"q_{tested}": "q"}
    columns = ["layer", "head", "z", "p", "p_max", "q", "unstable"]
    return category.rename(columns=names)[columns].reset_index(drop=True)
