"""The columns of a ranking of heads: its values, its tests, its values per group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

import pandas as pd

from tda_bias.types import InputError, RankBy

# Published maps: mean z over groups of |combined|. They rank heads by their noise level.
PUBLISHED: tuple[RankBy, ...] = ("relative", "statistic", "metric")


@dataclass(frozen=True)
class MapColumns:
    """The columns of a map.

    Attributes:
        value: Column of the category's table with the values that rank.
        tested: Name of the map whose test stands beside it, as the tables' columns end.
        combined: Column of the table per group with each head's value.
    """

    value: str
    tested: str
    combined: str

    @property
    def short_names(self) -> dict[str, str]:
        """Columns of the category's table by what they are called in a ranking."""
        tests = {f"{name}_{self.tested}": name for name in ("p", "p_max", "q")}
        return {self.value: "z", **tests}


def map_columns(rank_by: RankBy, columns: Collection[str]) -> MapColumns:
    """The columns of a ranking in a category's table.

    Args:
        rank_by: The ranking. ``evidence`` and ``location`` are those of triples minus twins where
            the run had twins. The p of the paper's metric cannot be recomputed cheaply: that of the
            statistic stands beside it.
        columns: The columns that the table has.

    Raises:
        InputError: if there is no such ranking.
    """
    if rank_by not in get_args(RankBy):
        raise InputError(f"`by` must be one of {', '.join(get_args(RankBy))}; got {rank_by!r}")
    twin = "_twin" if "p_relative_twin" in columns else ""
    match rank_by:
        case "evidence":
            tested = f"relative{twin}"
            return MapColumns(f"evidence_{tested}", tested, f"combined_{tested}")
        case "location":
            tested = f"location{twin}"
            return MapColumns(f"evidence_{tested}", tested, f"combined_{tested}")
        case "metric":
            return MapColumns("z_metric", "statistic", "combined_metric")
        case _:
            return MapColumns(f"z_{rank_by}", rank_by, f"combined_{rank_by}")


def ranked(category: pd.DataFrame, rank_by: RankBy) -> pd.DataFrame:
    """Heads of one category in descending order of a map, unstable ones after all others.

    Whether a head is unstable says something of maps with the paper's denominator only.
    """
    value = map_columns(rank_by, category.columns).value
    if rank_by in PUBLISHED:
        return category.sort_values(["unstable", value], ascending=[True, False], kind="stable")
    return category.sort_values(value, ascending=False, kind="stable")
