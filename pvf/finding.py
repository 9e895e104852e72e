"""What a model's risks say, in sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pvf.preferences import Preferences
from pvf.reference import EQUALITY
from pvf.report import RiskReport
from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text

# A mean union mass below it says more about the question than about the model.
LEAST_MASS = 1e-4
# Beginnings of the names of letters that are written without spaces between words.
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def mass_warning(preferences: Preferences) -> list[str]:
    """A warning where the listed words have hardly any probability, with the likely cause."""
    mass = float(preferences.by_class().union_mass.mean())
    if mass >= LEAST_MASS:
        return []
    letters = "".join(preferences.words)
    unspaced = any(unicodedata.name(one, "").startswith(_WITHOUT_SPACES) for one in letters)
    if unspaced and any(template.joint for template in preferences.templates):
        cause = (
            "the words are of a language without spaces, and a template has one before [Y]: write "
            "[X]说[Y], not [X]说 [Y]"
        )
    elif not unspaced and not all(template.joint for template in preferences.templates):
        cause = "a template has no space before [Y], so that the words continue the one before"
    else:
        cause = (
            "the templates do not lead to these words (their form, capitals, language), or the "
            "model does not know the language"
        )
    return [
        f"Warning: the mean union mass is {mass:.2g}, below {LEAST_MASS:g}. Likely cause: {cause}."
    ]


def needed_prejudice(report: RiskReport) -> float:
    """The prejudice whose interval, as wide on a log scale as this one, lies above the null."""
    measured, null = report.summary.iloc[0], report.summary.iloc[-1]
    low, high = (measured[f"R_p_{end}_both"] for end in ("low", "high"))
    return float(null["R_p"] * np.sqrt(high / low))


def power_line(report: RiskReport) -> str:
    """The same as a sentence."""
    needed, null = needed_prejudice(report), report.summary.iloc[-1]["R_p"]
    if not np.isfinite(needed):
        return "Not known: an interval needs five templates, five words, and a risk above 0."
    return (
        f"A prejudice R_p above {needed:.3f} would have an interval above that of such a model "
        f"({null:.3f})."
    )


def leaning(s: pd.Series[float]) -> tuple[int, int, int]:
    """How many words lean to the first, to the second and to neither of two classes.

    Args:
        s: The words' stereotypes for the first class, above 0 where they lean to it.
    """
    first, second, neither = (int((np.sign(s) == sign).sum()) for sign in (1, -1, 0))
    return first, second, neither


def _leaning(classes: Sequence[str], s: pd.Series[float]) -> str:
    """The same as a sentence."""
    first, second, neither = leaning(s)
    said = f"{first} of {counted(len(s), 'word')} lean to {classes[0]}, {second} to {classes[1]}"
    return f"{said}, {neither} to neither." if neither else f"{said}."


def risk_finding(report: RiskReport) -> Finding:
    """Prejudice and volatility of a model, compared with models without prejudice."""
    n, classes = report.controls, report.preferences.classes
    measured, null = report.summary.iloc[0], report.summary.iloc[-1]
    low, high = (measured[f"R_p_{end}_both"] for end in ("low", "high"))
    leaning = ""
    if len(classes) == 2:
        leaning = f" {_leaning(classes, report.of_weight[f's_{classes[0]}'])}"
    over = "" if report.x_weights is None else f", over {report.words}"
    against = ""
    if report.reference is not None:
        equal = report.summary[report.summary["row"] == EQUALITY].iloc[0]
        leaning = leaning.replace("lean to", f"lean, against {report.against}, to")
        against = (
            f" All of it against {report.against}; against equality, on the same scale (p/p* - 1), "
            f"R is {equal['R']:.3f}, R_p {equal['R_p']:.3f} and R_v {equal['R_v']:.3f}."
        )
    return Finding(
        result=[
            f"{report.model}: risk R {measured['R']:.3f}, of which prejudice R_p "
            f"{measured['R_p']:.3f} ({interval_text(low, high, 3)}) and volatility R_v "
            f"{measured['R_v']:.3f}, of {report.preferences.classes_text(' and ')}{over}.{leaning}"
            f"{against}"
        ],
        control=[
            f"A model without prejudice, whose preferences are random in each template, has R_p = "
            f"{null['R_p']:.3f} with so few templates.",
            f"Union mass (probability of any listed word): mean {n['union_mass_mean']:.3g}, median "
            f"{n['union_mass_median']:.3g}, 5 % to 95 % {n['union_mass_q05']:.2g} to "
            f"{n['union_mass_q95']:.2g}. Where it is small, preferences mean little.",
            *mass_warning(report.preferences),
        ],
        power=[power_line(report)],
        details=[*_details(n), *_distributions(report.distributions)],
    )


def _details(n: Mapping[str, Any]) -> list[str]:
    """Sentences about the controls, beside the finding."""
    details = [
        f"Contexts: {counted(n['templates'], 'template weighs', 'templates weigh')} like "
        f"{n['n_effective_contexts']:.1f}.",
    ]
    if n["words_shared_by_classes"] or n["words_not_read"]:
        shared, unread = n["words_shared_by_classes"], n["words_not_read"]
        details.append(
            f"Words not read: {len(shared)} in two classes, {len(unread)} that these settings "
            "exclude for this tokenizer; run.json names them."
        )
    if n["words_that_begin_others"]:
        details.append(
            f"Words that are, in tokens, the beginning of another: "
            f"{len(n['words_that_begin_others'])}; what continues to the longer one is not counted "
            "for the shorter."
        )
    if n["prompts_without_mass"]:
        details.append(
            f"{n['prompts_without_mass']} prompts give no listed word any probability (uniform "
            "there)."
        )
    return details


def _distributions(tests: pd.DataFrame) -> list[str]:
    """A sentence for each claim about how a risk is distributed over words."""
    lines = []
    for row in tests.to_dict("records"):
        needed = row["words_needed"]
        more = f"; {needed:.0f} words would be needed" if needed == needed else ""
        lines.append(
            f"{row['quantity']} over {row['words']} words, {row['claim']}? {row['test']} "
            f"{number_text(row['statistic'])}, p {p_text(row['p'])}: {row['found']}{more}."
        )
    return lines
