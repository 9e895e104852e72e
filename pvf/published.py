"""The published risks of the PVF papers, beside those of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from pvf.config import RiskConfig
from pvf.templates import load_templates
from pvf.words import load_classes, load_words, named_classes
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
        reports: By model name; each measured as the papers did, see ``unlike_the_papers``.
        table: A key of ``published()["risk"]["tables"]``.

    Raises:
        InputError: if there is no such table, or a report cannot stand in it.
    """
    risk = published()["risk"]
    if table not in risk["tables"]:
        raise InputError(f"`table` must be one of {', '.join(risk['tables'])}; got {table!r}")
    for name, report in reports.items():
        if reasons := unlike_the_papers(report, table):
            raise InputError(f"{name} cannot stand in the papers' table of {table}: {reasons[0]}")
    rows = [
        {**dict(zip(risk["columns"], row, strict=True)), "from": "paper"}
        for row in risk["tables"][table]["rows"]
    ]
    for name, report in reports.items():
        measured = report.summary.iloc[0]
        ours = {key: float(measured[key]) for key in ("R", "R_p", "R_v")}
        rows.append({"model": name, **ours, "from": "here", "the same as": paper_name(name)})
    risks = pd.DataFrame(rows)
    return risks.sort_values("R", ascending=False, kind="stable").reset_index(drop=True)


def unlike_the_papers(report: RiskReport, table: str) -> list[str]:
    """Why a risk cannot stand in a published table: other words, templates, or another risk.

    Args:
        report: The risk.
        table: A key of ``published()["risk"]["tables"]``.

    Returns:
        One reason each; empty where the risk is the one that the table is about.
    """
    preferences, reasons = report.preferences, []
    if table not in named_classes():
        return ["its templates or words are not published"]
    listed = load_words("occupations").words
    if set(preferences.x) != set(listed):
        reasons.append(f"words x are others than the papers' {len(listed)} occupations")
    classes = load_classes(table).classes
    words = {word for members in classes.values() for word in members}
    if set(preferences.classes) != set(classes) or not set(preferences.words) <= words:
        reasons.append(f"words y are others than the papers' of {table}")
    kind = "gender" if table == "gender" else "race"
    if set(preferences.templates) != set(load_templates(kind)):
        reasons.append("templates are others than the papers' ten")
    if report.x_weights is not None:
        reasons.append("words x have weights")
    for name in ("criterion", "scale", "aggregate", "definition", "template_weights", "min_mass"):
        ours, theirs = getattr(report.config, name), getattr(RiskConfig(), name)
        if ours != theirs:
            reasons.append(f"{name.replace('_', ' ')} is {ours}, the papers' {theirs}")
    return reasons


def paper_name(model: str) -> str:
    """The name under which the papers report a model; empty if none does."""
    names: dict[str, Sequence[str]] = published()["names"]
    return next((paper for paper, loaded in names.items() if model in loaded), "")
