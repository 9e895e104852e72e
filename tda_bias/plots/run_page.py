"""A run's charts and tables, as the page of ``tdabias report`` shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from tda_bias.heads.items import ITEMS_ARRAYS, ItemDifferences
from tda_bias.heads.result import HeadBias
from tda_bias.plots import charts
from tda_bias.plots.explorer import explorer
from tda_bias.runs.page import Chart
from tda_bias.runs.run import Run, made_from

_CHARTS: dict[str, Callable[[Run], list[Chart]]] = {
    "ablate": charts.ablate,
    "ablate curve": charts.prune_curve,
    "compare": charts.compare,
    "crossref": charts.crossref,
    "debias": charts.debias,
    "pvf": charts.pvf,
    "unqover": charts.unqover,
}
# Columns of heads that only other programs read.
_LEFT_OUT = ("model", "n_", "z_null_", "sd_null_")


def page_parts(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    """Charts and tables of a run, of heads the map and its tables: fields of a ``Section``.

    Args:
        run: The run.
        runs: All of the page, which may have the texts of its items or be made from it.
    """
    if run.command == "heads":
        result = run.load(HeadBias.load)
        others = [other for other in runs if other.command == "ablate" and made_from(other, run)]
        columns = [
            name
            for name in result.category.columns
            if not name.startswith(_LEFT_OUT) and "signed" not in name
        ]
        tables = {"heads": result.category[columns], "groups": result.groups.drop(columns="model")}
        return {"explorer": explorer(run, others), "tables": tables}
    texts = _item_texts(runs)
    if run.command == "stereoset":
        drawn = charts.stereoset(run, texts)
    else:
        drawn = _CHARTS[run.command](run) if run.command in _CHARTS else []
    return {"charts": drawn, "tables": _tables(run, texts)}


def _tables(run: Run, texts: dict[str, str]) -> dict[str, pd.DataFrame]:
    """Every table of a run, with the texts of its items where another run has them."""
    tables = {}
    for name in run.record.files:
        if name.endswith((".csv", "items.parquet")):
            table = run.table(name)
            if "id" in table and texts:
                table = table.assign(text=table["id"].map(lambda key: texts.get(str(key), "")))
            tables[name.rpartition(".")[0]] = table
    return tables


def _item_texts(runs: Sequence[Run]) -> dict[str, str]:
    """Texts of items by name, from runs of heads, which keep them."""
    texts: dict[str, str] = {}
    for run in runs:
        if run.command == "heads" and run.has(ITEMS_ARRAYS):
            table = ItemDifferences.read(run).items
            if "stereotype" in table:
                texts |= dict(zip(table["id"], table["stereotype"], strict=True))
    return texts
