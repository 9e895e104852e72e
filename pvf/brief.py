"""The risks of a model at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pvf.finding import leaning, mass_warning, needed_prejudice
from pvf.outcomes import pvf_outcomes
from pvf.report import RiskReport
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import about_run, counted, data_remarks, interval_text
from tda_bias.show.verdict import told


def risk_brief(report: RiskReport) -> Brief:
    """Whether prejudice is above that of a model that has none, and how large the risks are."""
    n, record = report.controls, report.preferences.record
    measured, null = report.summary.iloc[0], report.summary.iloc[-1]
    low, high = (float(measured[f"R_p_{end}_both"]) for end in ("low", "high"))
    classes = report.preferences.classes_text(" and ")
    templates = counted(n["templates"], "template")
    against = "" if report.reference is None else f", against {report.against}"
    sure = f"({interval_text(low, high, 3)}; {null['R_p']:.3f} without prejudice){against}"
    return Brief(
        about=about_run(record, classes, f"{report.words}, {templates}"),
        said=_said(report, classes),
        lines=[
            Line("risk R", f"{measured['R']:.3f}", against.removeprefix(", ")),
            Line("prejudice R_p", f"{measured['R_p']:.3f}", sure),
            Line("volatility R_v", f"{measured['R_v']:.3f}"),
            *_leaning(report, against),
            Line(
                "union mass",
                f"{n['union_mass_mean']:.2g}",
                "of the probability (where small, the rest says little)",
            ),
            _power(report),
        ],
        remarks=[
            *mass_warning(report.preferences),
            *data_remarks(record, starter=False),
        ],
    )


def _said(report: RiskReport, classes: str) -> str:
    (one,) = pvf_outcomes(report)
    match told(one):
        case "above":
            return f"Prejudice of {classes} is found: R_p is above that of a model without any."
        case "confounded":
            return (
                f"The model hardly ever says a word of {classes}: this tells nothing of prejudice."
            )
        case "cannot say":
            return f"Too few words or templates to tell the prejudice R_p of {classes} from chance."
        case _:
            return f"No prejudice of {classes} is found beyond that of a model without any."


def _leaning(report: RiskReport, against: str) -> Iterator[Line]:
    """Words by the class that they lean to, where there are two."""
    classes = report.preferences.classes
    if len(classes) == 2:
        first, second, neither = leaning(report.of_weight[f"s_{classes[0]}"])
        rest = f"words, {second} to {classes[1]}{f', {neither} to neither' * bool(neither)}"
        yield Line(f"lean to {classes[0]}", str(first), f"{rest}{against}")


def _power(report: RiskReport) -> Line:
    needed = needed_prejudice(report)
    if not math.isfinite(needed):
        return Line("would have found", "", "not known: too few words or templates")
    return Line("would have found", f"{needed:.3f}", "and more of R_p")
