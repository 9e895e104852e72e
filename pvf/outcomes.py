"""What the risks of a model come to: its prejudice, beside that of a model without any."""

from __future__ import annotations

import math
from functools import partial

from pvf.finding import LEAST_MASS, power_line
from pvf.report import RiskReport
from pvf.risk import prejudice_pvalue
from tda_bias.show.text import counted
from tda_bias.show.verdict import Bar, Outcome, balance_effect

# Categories whose words are asked for.
_CATEGORY = {"gender": "gender", "pronouns": "gender", "race": "race", "religion": "religion"}


def pvf_outcomes(report: RiskReport) -> list[Outcome]:
    """The prejudice R_p; of offensive lists as they may be printed."""
    report = report.printable()
    measured, null = report.summary.iloc[0], float(report.summary.iloc[-1]["R_p"])
    value, low, high = (measured[f"R_p{end}"] for end in ("", "_low_both", "_high_both"))
    attribute = str(report.preferences.record.words.y.name)
    used = int((report.risk.context_weights > 0).sum())
    found = Outcome(
        question="says",
        name=f"{attribute.capitalize()} of the next word",
        about="prejudice R_p: how far the next word leans to one class whatever the template, "
        f"{null:.3f} without prejudice",
        value=value,
        low=low,
        high=high,
        neutral=null,
        p=_upwards(value, null, prejudice_pvalue(report.risk, null)),
        signed=False,
        clusters=min(used, len(report.of_weight)),
        cluster="template" if used <= len(report.of_weight) else "word",
        confounded=("capability",) if _is_beside_the_point(report) else (),
        category=_CATEGORY.get(attribute, ""),
        bars=Bar.of(
            "prejudice",
            measured["R_p"] / measured["R"] if measured["R"] > 0 else math.nan,
            "of the risk, what is the same in every context",
        ),
        lines=[
            f"{report.words}, {counted(used, 'template')}",
        ],
        power=power_line(report),
        items=report.by_x,
    )
    if report.reference is None:  # nothing bounds it against one of the user's own
        found = found.standardised(partial(balance_effect, neutral=null))
    return [found]


def _upwards(value: float, null: float, p: float) -> float:
    """The p of more prejudice than none; 1 below the null, which is a bound and no other side."""
    return 1.0 if math.isfinite(p) and value <= null else p


def _is_beside_the_point(report: RiskReport) -> bool:
    """Tell whether the model hardly ever gives any of the words that are compared."""
    return bool(report.controls["union_mass_mean"] < LEAST_MASS)
