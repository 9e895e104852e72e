"""The published risks of the PVF papers, beside those of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from tda_bias.types import InputError

if TYPE_CHECKING:
    from pvf.report import RiskReport


@cache
def published() -> dict[str, Any]:
    """The numbers that the papers print, with their sources."""
    text = files("pvf.data").joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def risk_table(reports: Mapping[str, RiskReport], table: str) -> pd.DataFrame:
    """A table of the PVF papers: published rows, and ours marked so.

    Args:
        reports: By model name.
        table: A key of ``published()["risk"]["tables"]``.

    Raises:
        InputError: if there is no such table.
    """
    risk = published()["risk"]
    if table not in risk["tables"]:
        raise InputError(f"`table` must be one of {', '.join(risk['tables'])}; got {table!r}")
    rows = [
        {**dict(zip(risk["columns"], row, strict=True)), "from": "paper"}
        for row in risk["tables"][table]["rows"]
    ]
    for name, report in reports.items():
        measured = report.summary.iloc[0]
        ours = {key: float(measured[key]) for key in ("R", "R_p", "R_v")}
        rows.append({"model": name, **ours, "from": "here", "the same as": paper_name(name)})
    found = pd.DataFrame(rows)
    return found.sort_values("R", ascending=False, kind="stable").reset_index(drop=True)


def paper_name(model: str) -> str:
    """The name under which the papers report a model; empty if none does."""
    names: dict[str, Sequence[str]] = published()["names"]
    return next((paper for paper, loaded in names.items() if model in loaded), "")
