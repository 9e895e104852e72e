"""What answers to underspecified questions come to."""

from __future__ import annotations

import math
from functools import partial

from tda_bias.show.verdict import Outcome, balance_effect
from unqover.finding import power_line
from unqover.report import Report, order_explains

_CATEGORY = {"gender": "gender", "ethnicity": "race", "religion": "religion"}


def unqover_outcomes(report: Report) -> list[Outcome]:
    """How far one of two people is preferred, beside chance."""
    row, n = report.summary.iloc[0], report.controls
    chance, name = float(row["mu_chance"]), report.answers.record.design.name
    return [
        Outcome(
            question="says",
            name=f"Open questions: {name.replace('_', ' ')}",
            about="mu: the mean over subjects of the activity for which one is preferred most, "
            f"{chance:.3f} by chance",
            value=float(row["mu"]),
            low=float(row["mu_low"]),
            high=float(row["mu_high"]),
            neutral=chance,
            p=float(row["mu_p"]),
            clusters=len(report.answers.subjects),
            cluster="subject",
            signed=False,
            impossible=math.isnan(row["mu_needed"]),
            confounded=("order",) if order_explains(report) else (),
            category=_CATEGORY.get(name, ""),
            lines=[
                f"{chance:.3f} by chance",
                f"named first gets {n['first_mentioned_mean']:.0%}",
            ],
            power=power_line(report),
            items=report.groups,
        ).standardised(partial(balance_effect, neutral=chance))
    ]
