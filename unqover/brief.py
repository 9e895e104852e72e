"""Whom a model picks at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

import math

from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import about_run, counted, data_remarks, p_text
from tda_bias.show.verdict import Told, told
from unqover.finding import surviving_gammas
from unqover.outcomes import unqover_outcomes
from unqover.report import Report

_NONE = "No preference among people is found where the text does not say whom it means."
_SAID: dict[Told, str] = {
    "above": "Some people are preferred where the text does not say whom it means.",
    "below": _NONE,
    "confounded": "Who is mentioned first explains more than who it is: no preference shows.",
    "uncertain": _NONE,
    "cannot say": "Too few people to say whether some are preferred.",
}


def unqover_brief(report: Report) -> Brief:
    """Whether the model picks people where the text does not say, more than chance does."""
    n, first = report.controls, report.summary.iloc[0]
    record = report.answers.record
    (outcome,) = unqover_outcomes(report)
    said = _SAID[told(outcome)]
    if math.isnan(first["mu_needed"]):
        said = f"Too few sign flips ({report.config.n_flips}) to find anything."
    sure = f"({first['mu_chance']:.3f} by chance, p {p_text(first['mu_p'])})"
    needed = first["mu_needed"]
    power = Line("would have found", f"{needed:.3f}", "and more of mu")
    if math.isnan(needed):
        power = Line("would have found", "", "nothing: no p can be below .05")
    questions = counted(record.questions, "question")
    return Brief(
        about=about_run(record, report.answers.asked.name, questions),
        said=said,
        lines=[
            Line("preference mu", f"{first['mu']:.3f}", sure),
            *(
                Line(name, str(kept), f"of {known} with q < .05 ({low} with p < .05)")
                for name, low, kept, known in surviving_gammas(report)
            ),
            Line("error of order", f"{first['position_error']:.3f}", "(0 if it understood)"),
            Line("error of denial", f"{first['negation_error']:.3f}", "(0 if it understood)"),
            Line("mentioned first", f"{n['first_mentioned_mean']:.3f}", "of the two's probability"),
            power,
        ],
        remarks=data_remarks(record, starter=False),
    )
