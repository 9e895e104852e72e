"""The head paper's tables as data frames, beside those of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

from tda_bias.runs.run import Run
from tda_bias.runs.tables import write_table
from tda_bias.runs.text import counted
from tda_bias.types import InputError

if TYPE_CHECKING:
    from tda_bias.heads.result import HeadBias

TABLE_NUMBER = {"gender": 1, "profession": 2, "race": 3, "religion": 4}


@cache
def published() -> dict[str, Any]:
    """The numbers that the paper prints, with their source."""
    text = files("tda_bias.data").joinpath("published.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def extreme_groups(result: HeadBias, category: str) -> pd.DataFrame:
    """The two groups with the largest and the two with the smallest mean over heads.

    Returns:
        Columns ``group mean minimum maximum triples unstable`` and the mean over the other heads;
        unstable is the number of heads whose unrelated texts hardly vary in that group, which is
        where extreme values come from.

    Source: Varadarajan & Songdechakraiwut, tables 1-4.
    """
    groups = result.groups[result.groups["category"] == category]
    if groups.empty:
        raise InputError(f"the run has no groups of {category}")
    ordered = groups.sort_values("metric_mean", ascending=False, kind="stable")
    chosen = ordered if len(ordered) <= 4 else pd.concat([ordered.head(2), ordered.tail(2)])
    combined = result.combined[result.combined["category"] == category]
    unstable = combined.groupby("group")["unstable"].sum()
    stable = stable_means(result, category)
    return pd.DataFrame(
        {
            "group": chosen["group"],
            "mean": chosen["metric_mean"],
            "minimum": chosen["metric_min"],
            "maximum": chosen["metric_max"],
            "triples": chosen["n"],
            "unstable": [int(unstable[group]) for group in chosen["group"]],
            "mean of the others": [float(stable.get(g, np.nan)) for g in chosen["group"]],
        }
    ).reset_index(drop=True)


def stable_means(result: HeadBias, category: str) -> pd.Series[float]:
    """Each group's mean of metric T over the heads whose unrelated texts vary."""
    stable = result.combined[
        (result.combined["category"] == category) & ~result.combined["unstable"]
    ]
    return stable.groupby("group")["combined_metric"].mean()


def beside_published(result: HeadBias, category: str) -> pd.DataFrame:
    """The paper's groups with its numbers and ours for the same groups, and where ours stand."""
    groups = result.groups[result.groups["category"] == category]
    groups = groups.assign(rank=groups["metric_mean"].rank(ascending=False).astype(int)).set_index(
        "group"
    )
    heads, rows = published()["heads"], []
    for values in heads["tables"][category]:
        row = dict(zip(heads["columns"], values, strict=True))
        name = next((g for g in groups.index if str(g).casefold() == row["group"].casefold()), None)
        ours = groups.loc[name] if name is not None else None
        rows.append(
            {
                "group": row["group"],
                **{f"{c}, paper": row[c] for c in ("mean", "minimum", "maximum")},
                **{
                    f"{c}, here": float("nan") if ours is None else float(ours[f"metric_{short}"])
                    for c, short in (("mean", "mean"), ("minimum", "min"), ("maximum", "max"))
                },
                "rank here": "" if ours is None else f"{int(ours['rank'])} of {len(groups)}",
            }
        )
    return pd.DataFrame(rows)


def unlike_the_paper(result: HeadBias) -> list[str]:
    """Settings in which a run differs from the paper, so that values cannot be compared.

    Args:
        result: A run of ``tdabias heads``.

    Returns:
        One reason each; empty where model, texts and statistic are the paper's.
    """
    record, config, reasons = result.record, result.record.config, []
    if record.model.name not in published()["heads"]["names"]:
        reasons.append(f"another model ({record.model.name})")
    source = record.data.source if record.data is not None else "unknown"
    if source != "stereoset":
        reasons.append(f"texts from {Path(source).name} instead of StereoSet's on the hub")
    limit = record.settings.get("limit")
    if limit is not None:
        reasons.append(f"at most {counted(limit, 'triple')} of each group")
    for name, theirs in (("distance", "steps"), ("edges", "attention"), ("adjust", "none")):
        if getattr(config, name) != theirs:
            reasons.append(f"{name} {getattr(config, name)}, the paper's is {theirs}")
    return reasons


def write_tables(runs: Sequence[Run], out: Path) -> int:
    """Write tables 1-4 of the head paper for every run of heads, alone and beside the paper's.

    Returns:
        Their number.
    """
    from tda_bias.heads.result import HeadBias

    written = 0
    for run in (run for run in runs if run.command == "heads"):
        result = run.load(HeadBias.load)
        for category in (name for name in result.categories if name in TABLE_NUMBER):
            name = f"table{TABLE_NUMBER[category]}_{category}"
            caption = f"{category}: metric T over heads of {run.model}, run {run.id}"
            write_table(out, name, extreme_groups(result, category), caption)
            table = beside_published(result, category)
            beside = f"{caption}, beside the paper's GPT-2"
            if reasons := unlike_the_paper(result):
                beside += f". Unlike the paper: {'; '.join(reasons)}"
            write_table(out, f"{name}_beside_paper", table, beside)
            written += 2
    return written
