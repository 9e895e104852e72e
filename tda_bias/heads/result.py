"""The result of a run: its tables, their files, and the maps drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from pydantic import Field

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.items import (
    EXAMPLE,
    ITEMS_ARRAYS,
    PATTERNS_TABLE,
    TEXT_ROLES,
    WANTED_COLUMNS,
    ExamplePattern,
    ItemDifferences,
    KeptPatterns,
    carriers,
    shares,
)
from tda_bias.heads.patterns import RowCheck
from tda_bias.heads.ranking import Ranking
from tda_bias.heads.ranking_controls import ControlsRecord
from tda_bias.heads.smoothing import SmoothingRecord
from tda_bias.heads.tables import (
    PUBLISHED,
    MapColumns,
    are_named,
    map_columns,
    of_two_tests,
    surviving,
)
from tda_bias.heads.texts import TextsRecord
from tda_bias.show.text import about_run, counted
from tda_bias.stats.resampling import LEVEL
from tda_bias.store.record import HookedModelRecord, RecordPart, RunRecord
from tda_bias.store.result import LazyResult, RunWriter
from tda_bias.store.run import Run
from tda_bias.twins.twins import TEXTS
from tda_bias.types import TESTS, HeadId, InputError, RankBy, in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes


NULLS = "nulls.npz"
# Texts of a head whose patterns are kept.
TEXTS_PER_HEAD = 3


class GroupRecord(RecordPart):
    """One group: how many triples, and when and how its patterns were taken.

    Its saved part depends on ``depends_on`` (a hash of the texts) beside the settings.
    """

    category: str
    group: str
    triples: int
    depends_on: dict[str, str]
    created: str
    prefix_sharing: str
    row_sums: RowCheck


class HeadsRecord(RunRecord):
    """Everything needed to repeat a run of ``head_bias``, the controls, and seconds by stage."""

    command: str = "heads"
    model: HookedModelRecord
    config: HeadBiasConfig
    texts: TextsRecord
    twins: dict[str, Any] | None = None
    groups: tuple[GroupRecord, ...]
    controls: tuple[ControlsRecord, ...]
    smoothing: SmoothingRecord | None = None
    seconds: dict[str, float] = Field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class HeadBias(LazyResult):
    """The result of ``head_bias``.

    Attributes:
        table: One row per group, layer, head and dimension: the statistic and its p-values.
        combined: One row per group, layer and head: the mean of both dimensions, z over heads.
        category: One row per category, layer and head: the maps and the hot-spot tests.
        groups: One row per group: mean, minimum and maximum over heads, lengths, reliability.
        record: Everything needed to repeat the run, and the controls.
        run: The run that it was loaded from; None for a new one.
        extras: By file, what is not in the folder of ``run``: see the properties ``example``,
            ``items``, ``nulls`` and ``kept``, which are read when they are first asked for.
    """

    COMMAND = "heads"
    RECORD = HeadsRecord
    TABLES = (
        ("table", "heads.parquet", {}),
        ("combined", "combined.parquet", {}),
        ("category", "category.parquet", {}),
        # Columns that stay texts: a group may be called ``007``.
        ("groups", "groups.csv", dict.fromkeys(("model", "category", "group"), str)),
    )

    table: pd.DataFrame
    combined: pd.DataFrame
    category: pd.DataFrame
    groups: pd.DataFrame
    record: HeadsRecord
    run: Run | None = field(default=None, repr=False, compare=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def example(self) -> ExamplePattern | None:
        """The patterns of one text, for pictures."""
        return self._extra(EXAMPLE, ExamplePattern.read) if self._has(EXAMPLE) else None

    @cached_property
    def items(self) -> ItemDifferences:
        """The differences of every head on every item."""
        return self._extra(ITEMS_ARRAYS, ItemDifferences.read)

    @cached_property
    def nulls(self) -> Mapping[str, np.ndarray]:
        """By ``CATEGORY.MAP`` the map under exchange, ``(quantile, head)``; see ``HotSpots``."""
        return self._extra(NULLS, lambda run: run.arrays(NULLS))

    @cached_property
    def kept(self) -> KeptPatterns | None:
        """Patterns of the heads and texts that matter most."""
        return self._extra(PATTERNS_TABLE, KeptPatterns.read) if self._has(PATTERNS_TABLE) else None

    def __repr__(self) -> str:
        heads = len(self.category) // max(1, len(self.categories))
        return (
            f"HeadBias({self.record.model.name}: {', '.join(self.categories)}; "
            f"{counted(len(self.groups), 'group')}, {counted(heads, 'head')})"
        )

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = []
        for category in self.categories:
            c, survivors = self.controls_record(category), self.survivors(category=category)
            lines += [
                self.title(category),
                self.said(category),
                f"{counted(c.hot_spots_p05, 'head')} with p < .05, {c.hot_spots_expected:.1f} "
                f"expected by chance; {len(survivors)} survive correction.",
            ]
        return lines

    def _shown(self) -> Mapping[str, pd.DataFrame]:
        return {f"{c}, first of the ranking": self.top(5, category=c) for c in self.categories}

    @property
    def categories(self) -> list[str]:
        """The categories of the run, in their usual order."""
        return in_order(self.category["category"])

    @property
    def rank_by(self) -> RankBy:
        """The map the run ranks heads by."""
        return self.record.config.rank_by

    def with_patterns(self, example: ExamplePattern, kept: KeptPatterns | None = None) -> HeadBias:
        """The same result with patterns, which ``save`` writes too."""
        added = {EXAMPLE: example} | ({PATTERNS_TABLE: kept} if kept is not None else {})
        return replace(self, extras={**self.extras, **added})

    def controls(self, category: str | None = None) -> dict[str, Any]:
        """Controls of a category's ranking: chance, reliability, length."""
        return self.controls_record(category).model_dump()

    def category_map(
        self, category: str | None = None, *, by: RankBy | None = None
    ) -> Float[np.ndarray, "layer head"]:
        """The values that heads are ranked by, layers by heads.

        ``category`` may be left out where the run has one, ``by`` for the map that the run ranks
        by. ``evidence`` and ``location`` are in standard deviations under exchange; the published
        maps are the mean over groups of the z-score over heads of |combined|.
        """
        return self.layer_by_head(self.columns(category, by=by).value, category)

    def columns(self, category: str | None = None, *, by: RankBy | None = None) -> MapColumns:
        """The columns of a ranking in ``category``: those of twins where the category has some."""
        return map_columns(by or self.rank_by, self._rows(category))

    def layer_by_head(self, column: str, category: str | None = None) -> np.ndarray:
        """Any column of ``category`` as an array, layers by heads."""
        rows = self._rows(category)
        return rows.pivot(index="layer", columns="head", values=column).to_numpy()

    def top(
        self, k: int | None = 10, *, category: str | None = None, by: RankBy | None = None
    ) -> pd.DataFrame:
        """The k heads with the largest map values, all with None.

        Unstable ones come last in published maps; where some heads were named, there are no others.

        Returns:
            Columns ``layer head z p p_max q unstable``, printed with what was found above them. p
            is the hot-spot test of the map; for the ranking by the paper's metric it is that of the
            statistic.

        Raises:
            InputError: if k is below 1, or there is no such category or map.
        """
        if k is not None and k < 1:
            raise InputError(f"`k` must be at least 1; got {k}")
        by = by or self.rank_by
        rows, columns = self._rows(category), self.columns(category, by=by)
        if named := self.record.config.heads:
            rows = rows[are_named(rows, named)]
        if by in PUBLISHED:  # S is a ratio to almost nothing in unstable heads
            order = ["unstable", columns.value]
            rows = rows.sort_values(order, ascending=[True, False], kind="stable")
        else:
            rows = rows.sort_values(columns.value, ascending=False, kind="stable")
        above = [self.title(category), self.said(category)]
        if self.survivors(category=category, by=by).empty:
            above.append("The top of a ranking, not findings: none survives correction.")
        ranking = Ranking(_short_named(rows if k is None else rows.head(k), columns))
        ranking.said = "\n".join(above)
        return ranking

    def survivors(self, *, category: str | None = None, by: RankBy | None = None) -> pd.DataFrame:
        """Heads whose hot-spot test survives correction: family-wise (max-z) p or q below .05.

        A head is judged against its own values under flipped labels, so a survivor need not stand
        high in the map.

        Returns:
            As ``top``, in ascending order of p.
        """
        rows, columns = self._rows(category), self.columns(category, by=by)
        kept = _short_named(rows[surviving(rows, columns.tested)], columns)
        return kept.sort_values("p", kind="stable").reset_index(drop=True)

    def n_surviving(self, tested: str, category: str | None = None) -> int:
        """How many heads survive correction in a tested map, such as ``location_twin``."""
        return int(surviving(self._rows(category), tested).sum())

    def title(self, category: str | None = None) -> str:
        """What a finding is about: the model, a category, and how much was compared."""
        c = self.controls_record(category)
        read = f"{c.heads} heads, {counted(c.triples, 'triple')}"
        return " · ".join(about_run(self.record, c.category, read))

    def said(self, category: str | None = None) -> str:
        """What was found of a category, in one sentence."""
        c = self.controls_record(category)
        if c.is_impossible:
            return f"Too few texts to find anything: no p below {c.smallest_p:.2g} is possible."
        by_second, found = self.by_second_test(category), len(self.found(category))
        own, second = TESTS.get(self.rank_by, f"map of {self.rank_by}"), TESTS["location"]
        heads = counted(found, "head is", "heads are") if found else "No head is"
        said = f"{heads} found to treat {c.category} differently"
        if by_second is None or len(self.survivors(category=category)):
            return f"{said} ({own})."
        if found:
            return f"{said} by the {second}, none by the {own}."
        if len(by_second):
            survive = counted(len(by_second), "head survives", "heads survive")
            return f"{said} ({own}); {survive} the {second}, not after correction for two tests."
        return f"{said} ({own}, {second})."

    def found(self, category: str | None = None) -> pd.DataFrame:
        """Heads that survive by the run's ranking; where none does, by location with twins.

        Of that second test the family-wise p, corrected for two tests, is asked. By chance the two
        find something in 5 to 10 of 100 runs (simulated: docs/method/calibration.md).
        """
        survivors, second = self.survivors(category=category), self.by_second_test(category)
        if len(survivors) or second is None:
            return survivors
        return second[of_two_tests(second["p_max"]) < LEVEL]

    def by_second_test(self, category: str | None = None) -> pd.DataFrame | None:
        """Survivors by location with twins; None without twins, or where heads are ranked by it."""
        if self.controls_record(category).twins is None or self.rank_by == "location":
            return None
        return self.survivors(category=category, by="location")

    def controls_record(self, category: str | None = None) -> ControlsRecord:
        """Controls of a category's ranking, as the record has them."""
        name = self._category(category)
        return next(c for c in self.record.controls if c.category == name)

    def texts_to_keep(self, n_heads: int) -> pd.DataFrame:
        """The heads that a person will look at first, each with the texts that carry it most.

        Those are, category by category, the first ``n_heads`` of the ranking, and as many that
        survive correction further down.

        Returns:
            Columns ``category layer head id role text``; the role is one of ``TEXT_ROLES``.
        """
        table, wanted, layers = self.items.items, [], self.record.model.layers
        for category in self.categories if n_heads else []:
            share = shares(self.items, twins=self.controls(category)["twins"] is not None)
            rows = np.flatnonzero(table["category"] == category)
            heads = [
                HeadId(int(row["layer"]), int(row["head"]))
                for first in (
                    self.top(n_heads, category=category),
                    self.survivors(category=category).head(n_heads),
                )
                for row in first.to_dict("records")
            ]
            for head in dict.fromkeys(heads):
                of_head = share[rows, layers.index(head.layer), head.head]
                for place in rows[carriers(of_head, TEXTS_PER_HEAD)]:
                    item = table.iloc[int(place)]
                    wanted += [
                        (category, head.layer, head.head, item["id"], role, item[name])
                        for role, name in zip(TEXT_ROLES, TEXTS, strict=True)
                        if item[name]
                    ]
        return pd.DataFrame(wanted, columns=list(WANTED_COLUMNS)).astype(WANTED_COLUMNS)

    def category_summary(self) -> pd.DataFrame:
        """Columns ``category groups mean sd standard_error`` of the groups' means of T over heads.

        The SD has the divisor n, as in the paper's figure; the standard error n - 1.
        """
        rows = []
        for category in self.categories:
            values = self.groups.loc[self.groups["category"] == category, "metric_mean"].to_numpy()
            n = len(values)
            rows.append(
                {
                    "category": category,
                    "groups": n,
                    "mean": values.mean(),
                    "sd": values.std(),
                    "standard_error": values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan,
                }
            )
        return pd.DataFrame(rows)

    def plot_heatmap(
        self,
        ax: Axes | None = None,
        *,
        category: str | None = None,
        by: RankBy | None = None,
    ) -> Axes:
        """Draw the map of a category; see ``tda_bias.plots.heads.plot_heatmap``."""
        from tda_bias.plots.heads import plot_heatmap

        return plot_heatmap(self, ax=ax, category=self._category(category), by=by or self.rank_by)

    def plot_attention(self, head: HeadId, *, ax: Axes | None = None) -> Axes:
        """Draw a head's attention on the run's example sentence, with its tokens on both axes.

        Raises:
            InputError: if the run has no example, or the head does not exist.
        """
        from tda_bias.plots.illustrations import plot_attention

        if self.example is None:
            raise InputError(
                "the result has no example; add one by `with_patterns(example_pattern(model))`"
            )
        tokens, pattern = self.example.tokens, self.example.of(head)
        return plot_attention(tokens, pattern, title=f"{head} of {self.record.model.name}", ax=ax)

    # -- files --

    def _write(self, run: RunWriter) -> None:
        from tda_bias.plots.heads import heatmap_figure

        super()._write(run)
        run.table("heads.csv", self.table)
        run.figure("heatmap", heatmap_figure(self))
        if self.example is not None:
            example = vars(self.example).items()
            run.arrays(EXAMPLE, {name: np.asarray(value) for name, value in example})
        self.items.write(run)
        run.arrays(NULLS, self.nulls)
        if self.kept is not None:
            self.kept.write(run)

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


def _short_named(rows: pd.DataFrame, columns: MapColumns) -> pd.DataFrame:
    """Heads with the columns ``layer head z p p_max q unstable`` of a ranking."""
    tests = {f"{name}_{columns.tested}": name for name in ("p", "p_max", "q")}
    short = ["layer", "head", "z", "p", "p_max", "q", "unstable"]
    return rows.rename(columns={columns.value: "z", **tests})[short].reset_index(drop=True)
