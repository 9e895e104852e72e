"""What ``run.json`` says of a run of ``head_bias``, and the columns of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from tda_bias.config import HeadBiasConfig
from tda_bias.runs.record import HookedModelRecord, Number, RecordPart, RunRecord
from tda_bias.types import InputError, PValue, RankBy

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.runs.run import Run


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
    """Counts of attention rows that do not sum to 1; see ``patterns.row_sums.RowCheck``."""

    tolerance: float
    failed: dict[int, int] = Field(default_factory=dict)
    checked: int
    worst: Number


class GroupRecord(RecordPart):
    """One group: how many triples, and when and how its patterns were taken.

    Attributes:
        depends_on: What its saved part depends on beside the settings (a hash of the texts), so
            that it is known again; None in runs of version 0.1.
    """

    category: str
    group: str
    triples: int
    depends_on: dict[str, str] | None = None
    created: str | None = None
    prefix_sharing: str | None = None
    row_sums: RowSumsRecord | None = None
    seconds: dict[str, float] = Field(default_factory=dict)


class TestedMapRecord(RecordPart):
    """Heads below .05 in a map, by every p, how many are expected, and how reliable the map is."""

    p05: int
    expected: float
    p_max05: int
    q05: int
    reliability: Number


class TwinsRecord(RecordPart):
    """What is about the target and what is wording; see ``tda_bias.heads.controls``."""

    contexts: int
    twins: int
    location: TestedMapRecord
    dispersion: TestedMapRecord
    difference_left: Number
    map_correlation: Number
    smallest_location: Number
    smallest_share: Number


class ControlsRecord(RecordPart):
    """What must be read beside a category's ranking: chance, reliability, length."""

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
    reliability_group_mean: Number
    length_correlation_0: Number
    length_correlation_1: Number
    location: TestedMapRecord | None = None
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

# Of the maps and tests that were added later, an older run has fewer.
_P = r"(p|p_max|q)_.+"
_MAPS: tuple[RankBy, ...] = ("relative", "statistic", "metric")


def _of_head() -> dict[str, Any]:
    return {**_of_category(), "layer": int, "head": int, "unstable": bool}


def _of_category() -> dict[str, Any]:
    return {"model": str, "category": str}


def _numbers(*names: str) -> dict[str, Any]:
    return {name: float for name in names}


HEAD_COLUMNS = {
    **_of_head(),
    "group": str,
    **{name: int for name in ("dim", "n", "n_steps")},
    **_numbers("var_stereotype", "var_anti", "var_unrelated", "S", "relative", "T"),
    **_numbers("length_statistic"),
    **{name: float for name in ("p_paper", "p_paired", "p_label", "p_max", "q_bh")},
    _P: float,
}
COMBINED_COLUMNS = {
    **_of_head(),
    "group": str,
    **_numbers(*(f"{kind}_{name}" for name in _MAPS for kind in ("combined", "z"))),
    r"(combined|z)_.+": float,
}
CATEGORY_COLUMNS = {
    **_of_head(),
    "n_groups": int,
    "n_unstable": int,
    **_numbers(*(f"z_{name}" for name in _MAPS), "z_null_relative", "z_null_statistic"),
    r"(z|z_null|sd_null|evidence)_.+": float,
    _P: float,
}
GROUP_COLUMNS = {
    **_of_category(),
    "group": str,
    "n": int,
    **_numbers("tokens_min", "tokens_mean", "tokens_max", "reliability"),
    **_numbers(*(f"{name}_{what}" for name in _MAPS for what in ("mean", "min", "max"))),
    **_numbers("S0_mean_stable", "S1_mean_stable", "length_statistic_0", "length_statistic_1"),
}
# Attribute of ``HeadBias``, file and columns.
TABLES = (
    ("table", "heads.parquet", HEAD_COLUMNS),
    ("combined", "combined.parquet", COMBINED_COLUMNS),
    ("category", "category.parquet", CATEGORY_COLUMNS),
    ("groups", "groups.csv", GROUP_COLUMNS),
)


def read_tables(run: Run, record: HeadsRecord) -> dict[str, pd.DataFrame]:
    """The tables of a run, each with every head of every group once.

    Raises:
        InputError: if one is damaged or not whole. Version 0.1 listed no files, so that nothing
            else shows that half of a table is gone.
    """
    tables = {name: run.table(file, schema) for name, file, schema in TABLES}
    heads = int(tables["category"]["head"].max()) + 1 if len(tables["category"]) else 0
    categories = {controls.category for controls in record.controls}
    groups = {(group.category, group.group) for group in record.groups}
    of_group, of_head = ["category", "group"], ["layer", "head"]
    per_head = len(record.model.layers) * heads
    expected = {
        "table": (len(groups) * per_head * 2, [*of_group, *of_head, "dim"]),
        "combined": (len(groups) * per_head, [*of_group, *of_head]),
        "category": (len(categories) * per_head, ["category", *of_head]),
        "groups": (len(groups), of_group),
    }
    for name, file, _ in TABLES:
        table, (rows, key) = tables[name], expected[name]
        present = set(zip(*(table[column] for column in of_group if column in table), strict=True))
        wanted = groups if "group" in table else {(category,) for category in categories}
        if len(table) != rows or table.duplicated(key).any() or present != wanted:
            raise InputError(
                f"{run.folder / file} does not hold every head of every group once; {run.again}"
            )
    return tables
