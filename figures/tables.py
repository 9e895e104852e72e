"""The papers' tables as data frames, ours beside the published numbers, in three formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

from tda_bias.storage import write_csv, write_text
from tda_bias.types import InputError, RankBy

if TYPE_CHECKING:
    from pvf.results import RiskReport
    from tda_bias.results import HeadBias

TABLE_NUMBER = {"gender": 1, "profession": 2, "race": 3, "religion": 4}


@cache
def published() -> dict[str, Any]:
    """The numbers that papers print, with their sources."""
    text = files("figures.data").joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def extreme_groups(result: HeadBias, category: str, *, by: RankBy = "metric") -> pd.DataFrame:
    """The two groups with the largest and the two with the smallest mean over heads.

    Returns:
        Columns ``group mean minimum maximum triples unstable`` and the mean over the other heads;
        unstable is the number of heads whose unrelated texts hardly vary in that group, which is
        where extreme values come from.

    Source: Varadarajan & Songdechakraiwut, tables 1-4.
    """
    own = result.groups[result.groups["category"] == category]
    if own.empty:
        raise InputError(f"the run has no groups of {category}")
    ordered = own.sort_values(f"{by}_mean", ascending=False, kind="stable")
    chosen = ordered if len(ordered) <= 4 else pd.concat([ordered.head(2), ordered.tail(2)])
    combined = result.combined[result.combined["category"] == category]
    unstable = combined.groupby("group")["unstable"].sum()
    stable = stable_means(result, category, by=by)
    return pd.DataFrame(
        {
            "group": chosen["group"],
            "mean": chosen[f"{by}_mean"],
            "minimum": chosen[f"{by}_min"],
            "maximum": chosen[f"{by}_max"],
            "triples": chosen["n"],
            "unstable": [int(unstable[group]) for group in chosen["group"]],
            "mean of the others": [float(stable.get(g, np.nan)) for g in chosen["group"]],
        }
    ).reset_index(drop=True)


def stable_means(result: HeadBias, category: str, *, by: RankBy) -> pd.Series[float]:
    """Each group's mean over the heads whose unrelated texts vary."""
    own = result.combined[(result.combined["category"] == category) & ~result.combined["unstable"]]
    return own.groupby("group")[f"combined_{by}"].mean()


def published_groups(category: str) -> pd.DataFrame:
    """The paper's table of a category."""
    heads = published()["heads"]
    return pd.DataFrame(heads["tables"][category], columns=heads["columns"])


def beside_published(result: HeadBias, category: str, *, by: RankBy = "metric") -> pd.DataFrame:
    """The paper's groups with its numbers and ours for the same groups, and where ours stand."""
    own = result.groups[result.groups["category"] == category]
    own = own.assign(rank=own[f"{by}_mean"].rank(ascending=False).astype(int)).set_index("group")
    rows = []
    for row in published_groups(category).to_dict("records"):
        name = next((g for g in own.index if str(g).casefold() == row["group"].casefold()), None)
        ours = own.loc[name] if name is not None else None
        rows.append(
            {
                "group": row["group"],
                **{f"{c}, paper": row[c] for c in ("mean", "minimum", "maximum")},
                **{
                    f"{c}, here": float("nan") if ours is None else float(ours[f"{by}_{short}"])
                    for c, short in (("mean", "mean"), ("minimum", "min"), ("maximum", "max"))
                },
                "rank here": "" if ours is None else f"{int(ours['rank'])} of {len(own)}",
            }
        )
    return pd.DataFrame(rows)


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
    """The name under which papers report a model; empty if none does."""
    names: dict[str, Sequence[str]] = published()["names"]
    return next((paper for paper, own in names.items() if model in own), "")


def write_table(folder: Path, name: str, table: pd.DataFrame, caption: str) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV, each whole or not at all."""
    write_csv(folder / f"{name}.csv", table)
    write_text(folder / f"{name}.md", f"{markdown(table)}\n\n{caption}\n")
    write_text(folder / f"{name}.tex", latex(table, caption, name))
    return [folder / f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers to three decimals."""
    return str(_rounded(table).to_markdown(index=False, disable_numparse=True))


def latex(table: pd.DataFrame, caption: str, label: str) -> str:
    """A table in LaTeX (booktabs)."""
    styled = _rounded(table).style.hide(axis="index").format(escape="latex")
    styled = styled.format_index(escape="latex", axis=1)
    text = styled.to_latex(
        hrules=True,
        caption=caption.replace("%", r"\%").replace("_", r"\_"),
        label=f"tab:{label}",
        position_float="centering",
    )
    return str(text)


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    shown = table.copy()
    for name in shown.columns:
        if shown[name].dtype.kind == "f":
            shown[name] = [("" if v != v else f"{v:.3f}") for v in shown[name]]
        else:
            shown[name] = ["" if v != v or v is None else str(v) for v in shown[name]]
    return shown
