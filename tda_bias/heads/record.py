"""Record of a run of heads, with the columns of its tables and their rankings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, get_args

import pandas as pd
from pydantic import Field

from tda_bias.config import HeadBiasConfig
from tda_bias.runs.record import HookedModelRecord, Number, RecordPart, RunRecord
from tda_bias.types import InputError, PValue, RankBy

# -- run.json --------------------------------------------------------------------------------------


class LeftOutRecord(RecordPart):
    """A triple that was not used, and why."""

    source: str
    group: str
    reason: str


class TextsRecord(RecordPart):
    """The texts of a run.

    Attributes:
        groups: Number of groups.
        triples_used: Triples that were compared.
        triples_left_out: The others.
        tokens: Of all texts.
        tokens_with_prefixes_once: The same where a triple's common beginning counts once.
        hash: Of their token ids.
    """

    groups: int
    triples_used: int
    triples_left_out: tuple[LeftOutRecord, ...] = ()
    tokens: int
    tokens_with_prefixes_once: int
    hash: str


class RowSumsRecord(RecordPart):
    """Counts of attention rows that do not sum to 1; see ``patterns.RowCheck``."""

    tolerance: float
    failed: dict[int, int] = Field(default_factory=dict)
    checked: int
    worst: Number


class GroupRecord(RecordPart):
    """One group: how many triples, and when and how its patterns were taken.

    Attributes:
        depends_on: What its saved part depends on beside the settings (a hash of the texts), so
            that it is known again.
    """

    category: str
    group: str
    triples: int
    depends_on: dict[str, str]
    created: str
    prefix_sharing: str
    row_sums: RowSumsRecord


class TestedMapRecord(RecordPart):
    """Heads below .05 in a map, by every p, how many are expected, and how reliable the map is."""

    p05: int
    expected: float
    p_max05: int
    q05: int
    reliability: Number


class TwinsRecord(RecordPart):
    """Differences about the target, and those of wording; see ``tables.controls``."""

    contexts: int
    twins: int
    location: TestedMapRecord
    dispersion: TestedMapRecord
    difference_left: Number
    map_correlation: Number
    smallest_share: Number


class ControlsRecord(RecordPart):
    """Controls of a category's ranking: chance, reliability, length."""

    category: str
    groups: int
    triples: int
    heads: int
    unstable_heads: int
    hot_spot_map: str
    hot_spots_p05: int
    hot_spots_expected: float
    hot_spots_p_max05: int
    hot_spots_q05: int
    pvalue: PValue
    smallest_testable_group: int
    groups_too_small: int
    group_tests: int
    group_tests_p05: int
    group_tests_expected: float
    group_tests_p_max05: int
    groups_p_max05: int
    group_tests_q05: int
    reliability: Number
    null_map_correlation: Number
    length_correlation_0: Number
    length_correlation_1: Number
    location: TestedMapRecord
    twins: TwinsRecord | None = None


class HeadsRecord(RunRecord):
    """Everything needed to repeat a run of ``head_bias``, and the controls.

    Attributes:
        config: How it was computed.
        texts: What was read.
        twins: How the twins came about; None for a run without.
        groups: One entry per group.
        controls: One entry per category.
        seconds: Spent by stage.
    """

    command: str = "heads"
    model: HookedModelRecord
    config: HeadBiasConfig
    texts: TextsRecord
    twins: dict[str, Any] | None = None
    groups: tuple[GroupRecord, ...]
    controls: tuple[ControlsRecord, ...]
    seconds: dict[str, float] = Field(default_factory=dict)


# -- tables ----------------------------------------------------------------------------------------

# Attribute of ``HeadBias``, file, and columns that stay texts: a group may be called ``007``.
TABLES: tuple[tuple[str, str, dict[str, type]], ...] = (
    ("table", "heads.parquet", {}),
    ("combined", "combined.parquet", {}),
    ("category", "category.parquet", {}),
    ("groups", "groups.csv", dict.fromkeys(("model", "category", "group"), str)),
)


# -- rankings --------------------------------------------------------------------------------------

# Published maps: mean z over groups of |combined|. They rank heads by their noise level.
PUBLISHED: tuple[RankBy, ...] = ("relative", "statistic", "metric")


@dataclass(frozen=True)
class MapColumns:
    """The columns of a map.

    Attributes:
        value: Column of the category's table with the values that rank.
        tested: Name of the map whose test is reported with it, as the tables' columns end.
        combined: Column of the table per group with each head's value.
    """

    value: str
    tested: str
    combined: str


def map_columns(rank_by: RankBy, columns: Collection[str]) -> MapColumns:
    """The columns of a ranking in a category's table.

    Args:
        rank_by: The ranking. ``evidence`` and ``location`` are those of triples minus twins where
            the run had twins. The p of the paper's metric cannot be recomputed cheaply: that of the
            statistic is reported with it.
        columns: The columns that the table has.

    Raises:
        InputError: if there is no such ranking.
    """
    if rank_by not in get_args(RankBy):
        raise InputError(f"`by` must be one of {', '.join(get_args(RankBy))}; got {rank_by!r}")
    twin = "_twin" if "p_relative_twin" in columns else ""
    if rank_by in ("evidence", "location"):
        tested = f"{'relative' if rank_by == 'evidence' else 'location'}{twin}"
        return MapColumns(f"evidence_{tested}", tested, f"combined_{tested}")
    tested = "statistic" if rank_by == "metric" else rank_by
    return MapColumns(f"z_{rank_by}", tested, f"combined_{rank_by}")


def ranked(category: pd.DataFrame, rank_by: RankBy) -> pd.DataFrame:
    """Heads of one category in descending order of a map, unstable ones after all others.

    Whether a head is unstable says something of maps with the paper's denominator only.
    """
    value = map_columns(rank_by, category.columns).value
    if rank_by in PUBLISHED:
        return category.sort_values(["unstable", value], ascending=[True, False], kind="stable")
    return category.sort_values(value, ascending=False, kind="stable")


def short_named(category: pd.DataFrame, rank_by: RankBy) -> pd.DataFrame:
    """Heads of one category with the columns ``layer head z p p_max q unstable`` of a ranking."""
    columns = map_columns(rank_by, category.columns)
    tests = {f"{name}_{columns.tested}": name for name in ("p", "p_max", "q")}
    short = ["layer", "head", "z", "p", "p_max", "q", "unstable"]
    return category.rename(columns={columns.value: "z", **tests})[short].reset_index(drop=True)
